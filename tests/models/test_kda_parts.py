"""KDA without some of its parts: what is left is another variant, or a sum."""

from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import Mixer
from linbench.models.blocks.heads import share_input
from linbench.models.deltanet import DeltaNet
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.gated_deltanet2 import GatedDeltaNet2
from linbench.models.kda import KDA
from linbench.models.linear_attention import LinearAttention
from linbench.models.precond_kda import PrecondKDA
from tests.helpers.equations import assert_recurs_as
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 67
DECAYS = ("channel", "head", "none")


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def looped(mixer: KDA, x: Tensor) -> tuple[Tensor, Tensor]:
    """o and the memory of writes that erase nothing, token by token."""
    given = share_input(x, mixer, mixer.readout)
    q, k, v, _ = mixer.project(given, None)
    beta, S, outputs = torch.sigmoid(x @ mixer.beta.project.weight.T), x.new_zeros(mixer.memory_shape), []
    decay = x.new_ones(B, T, HEADS, 1) if mixer.decay is None else mixer.decay(given).exp()
    decay = decay if decay.dim() == 4 else decay[..., None]
    for t in range(x.shape[1]):
        write = beta[:, t, :, None, None] * k[:, t, ..., None] * v[:, t, :, None]
        S = decay[:, t, ..., None] * S + write
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]) / k.shape[-1] ** 0.5)
    return torch.stack(outputs, dim=1), S


@pytest.mark.parametrize("decay", DECAYS)
def test_a_write_that_erases_nothing_is_added(
    x: Tensor, randomise: Randomise, relative_error: Error, decay: str
) -> None:
    mixer = randomise(build_mixer(KDA, decay=decay, erases=False, expand_k=0.5))
    assert_recurs_as(looped, mixer, x, relative_error)


@torch.no_grad()
@pytest.mark.parametrize("neg_eigval", [False, True])
@pytest.mark.parametrize(("decay", "other"), [("head", GatedDeltaNet), ("none", DeltaNet)])
def test_with_another_decay_it_is_another_delta_rule(
    x: Tensor, randomise: Randomise, relative_error: Error, decay: str, other: type[Mixer], neg_eigval: bool
) -> None:
    same = {"expand_k": 1.0, "expand_v": 1.0, "output_gate": "none", "neg_eigval": neg_eigval}
    kda, expected = randomise(build_mixer(KDA, decay=decay, **same)), build_mixer(other, **same)
    expected.load_state_dict(kda.state_dict())
    assert relative_error(kda(x).y, expected(x).y) < 1e-12
    assert kda.recurrence_flops(T) == expected.recurrence_flops(T)


@torch.no_grad()
def test_without_decay_and_delta_rule_it_is_linear_attention(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    same = {"conv": 0, "qk_norm": "none", "output_norm": "none", "output_gate": "none"}
    kda = randomise(build_mixer(KDA, decay="none", erases=False, **same))
    plain = build_mixer(LinearAttention, normalise=False, feature_map="identity", **same)
    missing, extra = plain.load_state_dict(kda.state_dict(), strict=False)
    assert (missing, extra) == ([], ["beta.project.weight"])
    kda.beta.project.weight.zero_()  # every write has strength 1/2
    assert relative_error(2 * kda(x).y, plain(x).y) < 1e-12
    assert kda.recurrence_flops(T) == plain.recurrence_flops(T)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"erases": False, "neg_eigval": True}, "erases = false erases nothing"),
        ({"decay": "head", "safe_decay": True}, "safe_decay is of decays of channels; decay = head has none"),
        ({"decay": "none", "signed_decay": "spread"}, "signed_decay is of decays of channels"),
        ({"decay": "none", "forget_bias": 4.0}, "decay = none has none"),
    ],
)
def test_parts_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        build_mixer(KDA, **settings)


@pytest.mark.parametrize("cls", [GatedDeltaNet2, PrecondKDA])
@pytest.mark.parametrize("settings", [{"decay": "head"}, {"erases": False}])
def test_variants_of_kda_keep_all_of_it(cls: type[Mixer], settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        build_mixer(cls, **settings)
