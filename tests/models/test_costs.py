"""Formulas of layers' costs, held to the operations that torch does."""

from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.engine.layer_under_test import tensor_leaves
from linbench.experiments.registry import SHIPPED, registry
from linbench.kernels.operators import prefer_backend
from linbench.models.base import LayerInfo, Mixer, StateSize
from linbench.models.costs import layer_flops, map_flops, state_bytes, work_bytes, work_flops
from linbench.models.deltanet import DeltaNet
from tests.helpers.models import SHARING
from tests.helpers.torch_costs import Touched, counted

D = 128
SOFTMAX = (
    "attention", "fox", "stick_breaking", "cope", "path", "path_fox", "deltaformer", "delta_positions",
    "gated_attention", "mla", "gau", "lact", "titans_mag", "titans_mac", "hyena", "attention_mamba",
    "attention_mamba2", "rosa", "moba", "nsa",
)  # fmt: skip
MIXERS = {name: entry.cls for name, entry in registry("model").entries.items() if entry.source == SHIPPED}
each = pytest.mark.parametrize("name", MIXERS)
forms = pytest.mark.parametrize("form", ["native", "controlled"])


def build(name: str, form: str = "native", dtype: torch.dtype = torch.float32, **more: Any) -> Mixer:
    """Build a mixer with one head, unless told otherwise, so that the recurrence weighs most."""
    cls = MIXERS[name]
    if form == "controlled" and cls.controlled is None:
        pytest.skip("there is no such form")
    settings: dict[str, Any] = dict(cls.controlled or {}) if form == "controlled" else {}
    settings |= {"heads": 1, **more} if "heads" in cls.Settings.model_fields else {}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return cls(cls.Settings.parse(settings, where="model"), LayerInfo(1, 2, D)).to(dtype).eval()


def tokens(length: int, dtype: torch.dtype = torch.float32, batch: int = 1) -> Tensor:
    return torch.randn(batch, length, D, generator=torch.Generator().manual_seed(0)).to(dtype)


def assert_operations_are_counted(mixer: Mixer, length: int) -> None:
    with prefer_backend("reference"):  # the recurrence as it is defined
        found = counted(lambda: mixer(tokens(length)))
    assert found.products + found.elementwise == pytest.approx(
        length * (layer_flops(mixer, length) or 0.0), rel=0.05
    )
    assert found.products <= 1.001 * length * (layer_flops(mixer, length) or 0.0)


@each
@forms
def test_operations_are_those_that_torch_counts(name: str, form: str) -> None:
    assert_operations_are_counted(build(name, form), 64 if name in SOFTMAX else 8)


@pytest.mark.parametrize("name", SHARING)
@forms
def test_operations_with_a_key_for_two_heads_are_those_that_torch_counts(name: str, form: str) -> None:
    assert_operations_are_counted(build(name, form, heads=2, key_heads=1), 8)


@each
@forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bytes_of_a_state_are_those_of_its_tensors(name: str, form: str, dtype: torch.dtype) -> None:
    mixer, length = build(name, form, dtype), 40
    held = sum(x.nbytes for x in tensor_leaves(mixer.init_state(1, capacity=length)) if x.is_floating_point())
    size = mixer.state_floats(length)
    assert size is not None
    assert state_bytes(size, dtype.itemsize) == pytest.approx(held, rel=0.05)


@each
@forms
def test_bytes_of_a_token_are_those_that_are_seen_to_be_read_and_made(name: str, form: str) -> None:
    mixer, batch, length = build(name, form), 2, 14
    with torch.no_grad():
        state = mixer(tokens(length, batch=batch), mixer.init_state(batch, capacity=length + 1)).state
        x = tokens(1, batch=batch)
        with Touched((list(mixer.parameters()), state, x)) as touched:
            y, after, _ = mixer(x, state)
    size, first, made = (
        mixer.state_floats(length),
        mixer.state_floats(1),
        sum(part.nbytes for part in tensor_leaves(after) if part.is_floating_point()),
    )
    assert size is not None
    assert first is not None
    if name in SOFTMAX:  # whose cache is copied with every token, of which only that token's place is new
        made = batch * state_bytes(first._replace(recurrent=size.recurrent), 4)
    stated = work_bytes(mixer, "decode", batch=batch, length=length, itemsize=4)
    assert stated == pytest.approx(touched.bytes + y.nbytes + made, rel=0.05)


def test_work_by_hand() -> None:
    mixer = DeltaNet(DeltaNet.Settings(heads=2), LayerInfo(0, 1, 8))
    weights = 4 * 8 * 8 + 4 * 24 + 4 + 2 * 8
    maps, recurrence, state = 2 * (4 * 8 * 8 + 4 * 24 + 2 * 8), 2 * 4 * 4 * 6, 2 * 4 * 4
    assert sum(p.numel() for p in mixer.parameters()) == weights
    assert work_flops(mixer, "prefill", batch=3, length=5) == 15 * (maps + recurrence)
    assert work_flops(mixer, "train", batch=3, length=5) == 45 * (maps + recurrence)
    assert work_flops(mixer, "decode", batch=3, length=5) == 3 * (maps + recurrence)
    assert work_bytes(mixer, "train", batch=3, length=5, itemsize=2) == 2 * (3 * weights + 5 * 3 * 5 * 8)
    memory = 4 * state + 2 * 3 * 24
    assert (
        work_bytes(mixer, "prefill", batch=3, length=5, itemsize=2)
        == 2 * (weights + 2 * 3 * 5 * 8) + 3 * memory
    )
    assert (
        work_bytes(mixer, "decode", batch=3, length=5, itemsize=2)
        == 2 * (weights + 2 * 3 * 8) + 3 * 2 * memory
    )


def test_a_token_after_many_attends_to_all_of_them() -> None:
    mixer = build("attention")
    assert work_flops(mixer, "decode", batch=1, length=99) == pytest.approx(map_flops(mixer) + 4 * D * 100)
    assert state_bytes(StateSize(recurrent=3, cache=5, convolution=2, shift=1), 2) == 3 * 4 + 8 * 2


def test_what_is_not_declared_costs_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = build("deltanet")
    monkeypatch.setattr(type(mixer), "recurrence_flops", lambda self, seq_len: None)
    monkeypatch.setattr(type(mixer), "state_floats", lambda self, seq_len: None)
    assert (
        layer_flops(mixer, 4)
        is work_flops(mixer, "train", batch=1, length=4)
        is work_flops(mixer, "decode", batch=1, length=4)
        is None
    )
    assert work_bytes(mixer, "decode", batch=1, length=4, itemsize=4) is None
