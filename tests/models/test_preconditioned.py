"""Delta rules that write under preconditioned keys are their equation, and their host without it."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import Mixer, Rule
from linbench.models.blocks.heads import share_input
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.kda import KDA
from linbench.models.precond_gdn import PrecondGDN
from linbench.models.precond_kda import PrecondKDA
from tests.helpers.equations import assert_recurs_as, recurred
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 70
each = pytest.mark.parametrize(("cls", "host"), [(PrecondGDN, GatedDeltaNet), (PrecondKDA, KDA)])


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def factors(mixer: Any, x: Tensor, k: Tensor) -> Tensor:
    """Return M [B, T, H, K], token by token."""
    part, made = mixer.preconditioner, []
    a = -part.decay.A_log.exp() * F.softplus(x @ part.decay.project.weight.T + part.decay.dt_bias)
    b, A = torch.sigmoid(x @ part.strength.project.weight.T), torch.zeros_like(k[:, 0])
    for t in range(T):
        A = a[:, t, :, None].exp() * A + b[:, t, :, None] * k[:, t] ** 2
        r = (A + 1e-6).log() - part.centre[:, None]
        made.append(mixer.settings.limit ** (-r / (1 + r.abs())))
    return torch.stack(made, dim=1)


def looped(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """o and the memory, without A."""
    given = share_input(x, mixer, mixer.readout)
    q, k, v, _ = mixer.project(given, None)
    decay = mixer.decay(given).exp()
    decay = decay[..., None] if decay.dim() == 3 else decay
    beta, M = torch.sigmoid(x @ mixer.beta.project.weight.T)[..., None], factors(mixer, x, k)
    S, outputs = x.new_zeros(B, HEADS, k.shape[-1], v.shape[-1]), []
    for t in range(T):
        S = decay[:, t, ..., None] * S
        error = beta[:, t] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S = S + torch.einsum("bhk,bhv->bhkv", M[:, t] * k[:, t], error)
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]) / math.sqrt(k.shape[-1]))
    return torch.stack(outputs, dim=1), S


def made(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    o, memory = recurred(mixer, x)
    return o, memory[..., :-1]


@each
def test_it_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, cls: type[Mixer], host: type[Mixer]
) -> None:
    assert_recurs_as(looped, randomise(build_mixer(cls)), x, relative_error, made=made)


@each
@torch.no_grad()
def test_a_preconditioner_of_one_is_its_host(
    x: Tensor, randomise: Randomise, relative_error: Error, cls: type[Mixer], host: type[Mixer]
) -> None:
    conditioned, one, plain = build_mixer(cls), build_mixer(cls, limit=1), build_mixer(host)
    weights = randomise(conditioned).state_dict()
    one.load_state_dict(weights)
    plain.load_state_dict({name: w for name, w in weights.items() if not name.startswith("preconditioner")})
    expected = plain(x).y
    assert relative_error(conditioned(x).y, expected) > 1e-3
    assert relative_error(one(x).y, expected) < 1e-12


@torch.no_grad()
def test_factors_stay_within_their_limit_and_fall_with_use(x: Tensor, randomise: Randomise) -> None:
    """Factors of channels without use are not one, but the limit to the power of r / (1 + r)."""
    mixer = randomise(build_mixer(PrecondGDN))
    given = share_input(x, mixer, mixer.readout)
    k = mixer.project(given, None)[1]
    found, _ = mixer.preconditioner(given, k, None)
    assert ((found > 1 / 1.5) & (found < 1.5)).all()
    more, _ = mixer.preconditioner(given, k, torch.ones_like(k[:, 0]))
    assert (more[:, 0] < found[:, 0]).all()
    mixer.preconditioner.strength.largest = 0.0
    mixer.preconditioner.centre.fill_(-0.2)
    constant, _ = mixer.preconditioner(given, k, None)
    r = math.log(1e6) - 0.2
    torch.testing.assert_close(constant, torch.full_like(constant, 1.5 ** (r / (1 + r))))


@pytest.mark.parametrize("settings", [{"limit": 2.5}, {"limit": 0.9}, {"neg_eigval": True}], ids=str)
def test_what_could_make_the_memory_grow_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(settings))):
        build_mixer(PrecondGDN, **settings)


def test_it_starts_as_published() -> None:
    mixer = build_mixer(PrecondKDA)
    assert (mixer.preconditioner.centre == torch.tensor(-0.2)).all()
    names = ("decay.A_log", "decay.dt_bias")
    unpulled = [*names, *(f"preconditioner.{name}" for name in (*names, "centre"))]
    assert mixer.parameter_rules() == dict.fromkeys(unpulled, Rule(decay=False))
