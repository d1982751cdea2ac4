"""Channel mixers: by hand, streamed, and as each model was published."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.experiments.registry import registry
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import LayerInfo
from linbench.models.blocks.channel_mixers import CHANNEL_MIXERS, SwiGLU
from tests.helpers.cells import plan

B, T, D, COUNT = 2, 9, 8, 3
SHIFTED = {"rwkv4": (1, True), "rwkv6": (3, True), "rwkv7": (4, False)}
"""The power of what is left of the depth, and whether there is a receptance."""


@pytest.mark.parametrize("name", SHIFTED)
@pytest.mark.parametrize("index", range(COUNT))
def test_rwkvs_are_as_written_by_hand(
    name: str, index: int, relative_error: Callable[[Tensor, Tensor], float]
) -> None:
    power, receptance = SHIFTED[name]
    torch.manual_seed(0)
    mixer = CHANNEL_MIXERS[name](LayerInfo(index, COUNT, D), None).double()
    assert not any(
        p.any() for key, p in mixer.named_parameters() if key in {"value.weight", "receptance.weight"}
    )
    assert mixer.key.weight.shape == (4 * D, D)
    for linear in (part for part in mixer.modules() if isinstance(part, nn.Linear)):
        nn.init.normal_(linear.weight)
    x, own = torch.randn(B, T, D).double(), (torch.arange(D) / D).double() ** ((1 - index / COUNT) ** power)
    rows, before = [], torch.zeros(B, D).double()
    for token in x.unbind(dim=1):
        mixed = own * token + (1 - own) * before
        y = (mixed @ mixer.key.weight.T).clamp(min=0) ** 2 @ mixer.value.weight.T
        rows.append(y / (1 + torch.exp(-mixed @ mixer.receptance.weight.T)) if receptance else y)
        before = token
    found, last = mixer(x)
    assert relative_error(found, torch.stack(rows, dim=1)) < 1e-6  # shares are kept in float32
    assert torch.equal(last, x[:, -1])


def test_keys_of_rwkv4_start_orthogonal() -> None:
    weight = CHANNEL_MIXERS["rwkv4"](LayerInfo(0, 2, D), None).key.weight.double()
    assert torch.allclose(weight.T @ weight, 4 * torch.eye(D).double(), atol=1e-6)


def model(*names: str, **settings: Any) -> Backbone:
    classes = [registry("model").find(name).cls for name in names]
    layers = [
        Layer(cls, cls.Settings(**({"heads": 2} if "heads" in cls.Settings.model_fields else {})))
        for cls in classes
    ]
    return Backbone(BackboneSettings(d_model=16, layers=len(layers), **settings), layers, IO(20, 20), seed=0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rwkv4", "rwkv4"),
        ("rwkv5", "rwkv4"),
        ("rwkv6", "rwkv6"),
        ("rwkv7", "rwkv7"),
        ("deltanet", "swiglu"),
        ("mamba2", None),
    ],
)
def test_each_has_its_own(name: str, kind: str | None) -> None:
    own = model(name, channel_mixer="own")
    other = model(name, channel_mixer=kind or "none")
    assert own.state_dict().keys() == other.state_dict().keys()
    assert all(torch.equal(x, other.state_dict()[key]) for key, x in own.state_dict().items())
    assert own.state_size(10).total - model(name, channel_mixer="none").state_size(10).total == (
        16 if kind in SHIFTED else 0
    )


def test_a_hybrid_has_each_layers_own_and_streams(
    randomise: Callable[[Backbone], Backbone], relative_error: Callable[[Tensor, Tensor], float]
) -> None:
    whole = randomise(model("mamba2", "rwkv7", "deltanet", "rwkv4", channel_mixer="own")).double()
    assert list(whole.channel_mixers) == ["1", "2", "3"]
    assert isinstance(whole.channel_mixers["2"], SwiGLU)
    ids = torch.randint(20, (B, T), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, _ = whole.hidden(ids)
        states, parts = whole.init_states(B, capacity=T), []
        for part in ids.split([3, 1, 5], dim=1):
            x, states = whole.hidden(part, states)
            parts.append(x)
    assert relative_error(torch.cat(parts, dim=1), expected) < 1e-9


def test_shares_of_a_token_do_not_decay() -> None:
    rules = model("deltanet", channel_mixer="rwkv7").parameter_rules()
    assert rules["channel_mixers.0.shift.mix"].decay is False
    assert rules["channel_mixers.0.key.weight"].decay is None


def test_the_controlled_form_has_one_for_all() -> None:
    with pytest.raises(UserError, match=r"in the controlled form all models have the same channel mixer"):
        plan("mqar", ["rwkv7"], form="controlled", device="cpu", settings={"model.channel_mixer": "own"})
