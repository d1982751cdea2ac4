"""More heads of values than of keys: each variant that takes `key_heads` is the one in which the heads of a
group have keys and queries that are alike."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor
from torch.func import functional_call

from linbench.common.errors import UserError
from linbench.kernels.matrix_state.recurrence import Recurrence
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.slots import SlotMixer
from linbench.models.deltanet import DeltaNet
from linbench.models.gla import GLA
from linbench.models.hgrn2 import HGRN2
from linbench.models.mamba2 import Mamba2
from linbench.models.rwkv6 import RWKV6
from tests.helpers.cells import plan
from tests.helpers.models import SHARING, B, D, Error, Randomise, build_mixer, streamed

HEADS, KEY_HEADS = 4, 2
FOUR: dict[str, Any] = {"heads": HEADS, "head_dim": 4, "silent": False}
GROUPED: dict[str, Any] = {**FOUR, "key_heads": KEY_HEADS}
SECOND = LayerInfo(1, 2, D)
"""A layer that has all that later layers of some variants have more than the first."""

FORMS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in SHARING} | {
    "deltaproduct of three with positions": ("deltaproduct", {"steps": 3, "positions": "rope"}),
    "linear attention unnormalised": ("linear_attention", {"normalise": False, "feature_map": "dpfp-2"}),
    "gated rfa": ("rfa", {"gated": True, "directions": 3}),
    "gated rfa unnormalised": ("rfa", {"gated": True, "directions": 3, "normalise": False}),
    "rwkv6 with a convolution": ("rwkv6", {"conv": 4}),
    "kda of signed decays": ("kda", {"signed_decay": "spread", "neg_eigval": True}),
    "kda of full rms norms": ("kda", {"qk_norm": "rms", "output_norm": "rms_all"}),
}
ALL_FORMS = [*FORMS, *(f"controlled {name}" for name in SHARING)]
each_form = pytest.mark.parametrize("form", ALL_FORMS)
SHARED_TO_THE_KERNEL = [
    form
    for form in ALL_FORMS
    if "least_squares" not in SHARING.get(form.removeprefix("controlled "), DeltaNet).kernel_families
    and form != "kda of signed decays"
]
"""All forms but those that solve for a query of its own in every head, or give q and k each head's signs."""


def pair(form: str) -> tuple[Any, Any]:
    """Return a layer with shared keys, and the same with a key for each head."""
    name = form.removeprefix("controlled ")
    name, settings = FORMS[name] if form in FORMS else (name, SHARING[name].controlled or {})
    cls = SHARING[name]
    return build_mixer(cls, SECOND, **settings, **GROUPED), build_mixer(cls, SECOND, **settings, **FOUR)


def repeated(shared: Any, apart: Any) -> dict[str, Tensor]:
    """Return the weights of `apart` with which the heads of a group have keys that are alike.

    They are made of those of `shared`, through which gradients flow.
    """
    wanted = {name: x.shape for name, x in [*apart.named_parameters(), *apart.named_buffers()]}
    weights = {}
    for name, x in [*shared.named_parameters(), *shared.named_buffers()]:
        if x.shape == wanted[name]:
            weights[name] = x
        elif name in ("project.linear.weight", "project.conv.weight"):  # [channels, D] and [kernel, channels]
            channels = x if "linear" in name else x.T
            widths = shared.project.widths if "linear" in name else shared.project.convolved
            parts = channels.split(widths)
            keys = [_repeat(part, shared.project.head_dim) for part in parts[:2]]
            both = torch.cat([*keys, *parts[2:]])
            weights[name] = both if "linear" in name else both.T
        else:  # [Hk, ...], or [Hk K, ...] of a map to keys
            weights[name] = _repeat(x, x.shape[0] // KEY_HEADS)
        assert weights[name].shape == wanted[name], name
    return weights


def _repeat(x: Tensor, head: int) -> Tensor:
    return x.unflatten(0, (-1, head)).repeat_interleave(HEADS // KEY_HEADS, dim=0).flatten(0, 1)


def carried(state: Any) -> Iterator[Tensor]:
    """Return what is kept for heads of values: no number of tokens, and no last inputs of a convolution."""
    parts = (x for name, x in state._asdict().items() if name != "conv" and isinstance(x, Tensor))
    return (x for x in parts if x.is_floating_point())


def drawn(generator: torch.Generator, length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


@each_form
@pytest.mark.parametrize("length", [1, 63, 65, 100])
def test_outputs_states_and_gradients_are_those_of_keys_that_are_alike(
    generator: torch.Generator, randomise: Randomise, form: str, length: int
) -> None:
    shared, apart = pair(form)
    randomise(shared)
    weights, x = repeated(shared, apart), drawn(generator, length).requires_grad_()
    found, expected = shared(x), functional_call(apart, weights, (x,))
    pairs = [(found.y, expected.y), *zip(carried(found.state), carried(expected.state), strict=True)]
    losses = [torch.zeros((), dtype=torch.float64)] * 2
    for each in pairs:
        torch.testing.assert_close(*each, rtol=1e-8, atol=1e-10)
        weight = torch.randn(each[0].shape, dtype=torch.float64, generator=generator)
        losses = [loss + (weight * part).sum() for loss, part in zip(losses, each, strict=True)]
    wanted = [x, *shared.parameters()]
    of_shared, of_apart = (torch.autograd.grad(loss, wanted, materialize_grads=True) for loss in losses)
    for one, other in zip(of_shared, of_apart, strict=True):
        assert (one - other).abs().max() <= 1e-8 * max(1.0, float(other.abs().max()))


@each_form
@torch.no_grad()
def test_streams_prompts_and_single_tokens_are_those_of_keys_that_are_alike(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str
) -> None:
    shared, apart = pair(form)
    randomise(shared)
    x = drawn(generator, 100)
    expected = functional_call(apart, repeated(shared, apart), (x,)).y
    for y in streamed(shared, x, prompt=90):
        assert relative_error(y, expected) < 1e-9


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.parametrize("form", ["native", "controlled"])
@torch.no_grad()
def test_as_many_keys_as_values_is_what_it_was_bit_for_bit(
    generator: torch.Generator, name: str, form: str
) -> None:
    cls = SHARING[name]
    settings = {**((cls.controlled or {}) if form == "controlled" else {}), **FOUR}
    before = build_mixer(cls, SECOND, **settings)
    after = build_mixer(cls, SECOND, **settings, key_heads=HEADS)
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(one, other)
    x = drawn(generator, 9)
    states = [mixer.init_state(B, capacity=9) for mixer in (before, after)]
    assert before(x).y.abs().max() > 0
    assert torch.equal(before(x).y, after(x).y)
    assert torch.equal(before(x, states[0]).y, after(x, states[1]).y)
    assert torch.equal(before.decode(x, states[0]).y, after.decode(x, states[1]).y)


@pytest.fixture
def arriving(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Record every query, key, and what is shaped as keys, that arrives behind the doors of the kernels."""
    arrived: list[Tensor] = []

    def watch_matrix_state(backend: Any) -> Any:
        def call(recurrence: Recurrence) -> Any:
            _, *of_keys = recurrence.update.tensors
            arrived.extend(x for x in (recurrence.q, recurrence.k, *of_keys) if x is not None)
            return backend(recurrence)

        return call

    def watch_q_and_k(backend: Any) -> Any:
        def call(q: Tensor, k: Tensor, *others: Tensor, **more: Any) -> Any:
            arrived.extend((q, k))
            return backend(q, k, *others, **more)

        return call

    for family, watch in (
        ("matrix_state", watch_matrix_state),
        ("two_sided", watch_q_and_k),
        ("momentum_delta", watch_q_and_k),
    ):
        backends = importlib.import_module(f"linbench.kernels.{family}")._BACKENDS
        for name, backend in [*backends.items()]:
            monkeypatch.setitem(backends, name, watch(backend))
    return arrived


@pytest.mark.parametrize("form", SHARED_TO_THE_KERNEL)
@pytest.mark.parametrize("length", [1, 9])
@torch.no_grad()
def test_queries_and_keys_reach_the_kernel_unrepeated(
    generator: torch.Generator, arriving: list[Tensor], form: str, length: int
) -> None:
    shared, _ = pair(form)
    x = drawn(generator, length)
    shared(x)
    shared.decode(x, shared.init_state(B, capacity=length))
    if isinstance(shared, SlotMixer):  # slots are read after that, in a call for each head of values
        arriving = [each for place, each in enumerate(arriving) if place % 4 < 2]
    assert len(arriving) >= 4
    assert {each.shape[2] for each in arriving} == {KEY_HEADS}


@pytest.mark.parametrize("name", SHARING)
def test_sizes_count_what_is_there(name: str) -> None:
    shared, apart = pair(f"controlled {name}")
    sizes, whole = shared.state_floats(70), apart.state_floats(70)
    width = (1 + shared.project.steps) * (HEADS - KEY_HEADS) * shared.project.head_dim
    kept = sum(x[0].numel() for x in carried(shared.init_state(1, capacity=70)))
    assert sizes.recurrent == whole.recurrent == kept
    assert sizes.convolution == whole.convolution - 3 * width
    squares = 2 * (2 * D + 3)  # a decay, a strength and a centre for each head of keys
    fewer = {
        "comba": 2 * 2,
        "gated_deltanet2": 2 * 4 * D,
        "momentum_deltanet": 2,
        "precond_gdn": squares,
        "precond_kda": squares,
        "rfa": 2 * 4,
        "rwkv7": (3 + 32) * 2 * 4,
    }.get(name, 0)
    parameters, before = (sum(p.numel() for p in mixer.parameters()) for mixer in (shared, apart))
    assert parameters == before - width * (D + 4) - fewer
    # of one key or query, or half of what is done for both
    features = {
        "performer": 2 * 5 * 4,
        "rfa": 2 * 64 * 4,
        "precond_gdn": 13 * 2,
        "precond_kda": 13 * 2,
        "log_linear_gdn": 4,
    }.get(name, 0)
    assert shared.recurrence_flops(70) == apart.recurrence_flops(70) - 2 * (HEADS - KEY_HEADS) * features


@pytest.mark.parametrize("name", SHARING)
def test_identities_are_what_they_were(name: str) -> None:
    settings = SHARING[name].Settings
    assert "key_heads" not in settings().identity()
    assert settings(key_heads=1).identity()["key_heads"] == 1
    first, second = (
        plan("mqar/quick", [model], device="cpu")[0].id for model in (name, f"{name}[key_heads=null]")
    )
    assert first == second


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (DeltaNet, {"heads": 4, "key_heads": 3}),
        (RWKV6, {"heads": 2, "key_heads": 4}),
        (GLA, {"heads": 2, "key_heads": 0}),
        (Mamba2, {"heads": 2, "key_heads": 1}),
        (Mamba2, {"heads": 2, "groups": 4}),
        (HGRN2, {"heads": 2, "key_heads": 1}),
    ],
)
def test_keys_that_cannot_be_shared_are_refused(
    cls: type[Mixer], settings: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        build_mixer(cls, **settings)
    assert str(refused.value) == snapshot


@pytest.mark.parametrize("cls", [Mamba2, HGRN2])
def test_variants_without_the_setting_have_the_identity_that_they_had(cls: type[Mixer]) -> None:
    assert "key_heads" not in cls.Settings().identity()
