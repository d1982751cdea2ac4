"""Gated DeltaNet-2 is its equation, KDA if its gates are alike, and RWKV-7's transition with its two keys."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import LowRank, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.heads import share_input
from linbench.models.gated_deltanet2 import GatedDeltaNet2
from linbench.models.kda import KDA
from tests.helpers.equations import assert_recurs_as, recurred
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 70


def gates(mixer: GatedDeltaNet2, x: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, b and w [B, T, H, dim]."""
    low = x @ mixer.decay.project.down.weight.T @ mixer.decay.project.up.weight.T + mixer.decay.dt_bias
    a = torch.exp(-mixer.decay.A_log.exp()[:, None] * F.softplus(low.view_as(k)))
    b, w = (torch.sigmoid(x @ gate.project.weight.T) for gate in (mixer.erase, mixer.write))
    return a, mixer.erase.largest * b.view_as(k), w.view_as(v)


def looped(mixer: GatedDeltaNet2, x: Tensor) -> tuple[Tensor, Tensor]:
    """o and the memory, token by token."""
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    a, b, w = gates(mixer, x, k, v)
    S, eye = x.new_zeros(B, HEADS, k.shape[-1], v.shape[-1]), torch.eye(k.shape[-1], dtype=x.dtype)
    outputs = []
    for t in range(x.shape[1]):
        erase = eye - k[:, t, ..., None] * (b * k)[:, t, :, None]
        S = erase @ (a[:, t, ..., None] * S) + k[:, t, ..., None] * (w * v)[:, t, :, None]
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]) / k.shape[-1] ** 0.5)
    return torch.stack(outputs, dim=1), S


def test_it_is_its_equation(generator: torch.Generator, randomise: Randomise, relative_error: Error) -> None:
    """Values are wider than keys, and b goes up to 2, which w does not."""
    x = torch.randn(B, T, D, dtype=torch.float64, generator=generator)
    mixer = randomise(build_mixer(GatedDeltaNet2, expand_k=0.5, neg_eigval=True))
    assert_recurs_as(looped, mixer, x, relative_error)


@torch.no_grad()
def test_gates_that_are_alike_are_kda(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    x = torch.randn(B, T, D, dtype=torch.float64, generator=generator)
    one = randomise(build_mixer(KDA))
    two = build_mixer(GatedDeltaNet2)
    missing, extra = two.load_state_dict(one.state_dict(), strict=False)
    assert missing == ["erase.project.weight", "write.project.weight"]
    assert extra == ["beta.project.weight"]
    expected = one(x).y
    assert relative_error(two(x).y, expected) > 1e-3
    for gate in (two.erase, two.write):
        gate.project.weight.copy_(one.beta.project.weight.repeat_interleave(D // HEADS, dim=0))
    assert relative_error(two(x).y, expected) < 1e-12


@torch.no_grad()
def test_it_is_a_transition_of_rwkv7_that_reads_with_gated_keys(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    x = torch.randn(B, T, D, dtype=torch.float64, generator=generator)
    mixer = randomise(build_mixer(GatedDeltaNet2))
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    a, b, w = gates(mixer, x, k, v)
    expected = matrix_state(q, k, w * v, log_decay=a.log(), update=LowRank(-b * k * a, k))
    for found, of_transition in zip(recurred(mixer, x), expected, strict=True):
        assert relative_error(found, of_transition) < 1e-10


@torch.no_grad()
def test_gates_start_around_a_half(generator: torch.Generator) -> None:
    mixer = build_mixer(GatedDeltaNet2, LayerInfo(0, 1, 128), neg_eigval=True)
    given = share_input(
        torch.randn(1, 99, 128, dtype=torch.float64, generator=generator), mixer, mixer.readout
    )
    for gate, middle in ((mixer.erase, 1.0), (mixer.write, 0.5)):
        assert abs(gate(given).median().item() - middle) < 0.02 * middle
    names = ("decay.A_log", "decay.dt_bias")
    assert mixer.parameter_rules() == dict.fromkeys(names, Rule(decay=False))
