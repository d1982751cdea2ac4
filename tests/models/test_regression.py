"""Layers that solve least squares: each is its equation, token by token, and falls together with a simpler
one where it should."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import Rule
from linbench.models.blocks.heads import share_input
from linbench.models.gated_kalmanet import GatedKalmaNet
from linbench.models.mesa_layer import MesaLayer
from linbench.models.mesanet import MesaNet
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

K = D // HEADS
LENGTHS = (1, 65, *(pytest.param(length, marks=pytest.mark.slow) for length in (63, 100)))


@pytest.fixture
def tokens(generator: torch.Generator) -> Callable[[int], Tensor]:
    return lambda length: torch.randn(B, length, D, dtype=torch.float64, generator=generator)


def outer(k: Tensor, v: Tensor) -> Tensor:
    return k[..., :, None] * v[..., None, :]


def heads_of(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as the recurrence has them."""
    return mixer.project(share_input(x, mixer, mixer.readout), None)[:3]


def solved(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, ridge: Callable[[Tensor, int], Tensor]
) -> tuple[Tensor, Tensor]:
    """o and the memory, by a direct solution for every token.

    Args:
        decay, strength: [B, T, H].
        ridge: from the Gram matrix and the number of a token to its ridge [..., K].
    """
    gram, cross, outputs = q.new_zeros(B, HEADS, K, K), q.new_zeros(B, HEADS, K, K), []
    for t in range(q.shape[1]):
        a, b = decay[:, t, :, None, None], strength[:, t, :, None, None]
        gram, cross = a * gram + b * outer(k[:, t], k[:, t]), a * cross + b * outer(k[:, t], v[:, t])
        x = torch.linalg.solve(gram + torch.diag_embed(ridge(gram, t)), q[:, t, ..., None])
        outputs.append((cross * x).sum(dim=-2))
    return torch.stack(outputs, dim=1), torch.cat([gram, cross], dim=-1)


def assert_is_its_loop(
    mixer: Any, x: Tensor, loop: Callable[[Any, Tensor], tuple[Tensor, Tensor]], limit: float = 1e-9
) -> None:
    """Outputs, the memory and every gradient are those of the loop."""
    found: list[dict[str, Tensor | None]] = []
    for looped in (False, True):
        given = x.clone().requires_grad_()
        mixer.zero_grad()
        if looped:
            o, memory = loop(mixer, given)
            y = mixer.readout(o, given)
        else:
            y, (memory, *_), _ = mixer(given)
        numbers = torch.cat([y.flatten(), memory.flatten()])
        (numbers * torch.linspace(-1, 2, numbers.numel(), dtype=y.dtype).sin()).sum().backward()
        gradients = {name: p.grad for name, p in mixer.named_parameters()}
        found.append({"y": y, "memory": memory, "x": given.grad, **gradients})
    for name, wanted in found[1].items():
        got = found[0][name]
        assert got is not None
        assert wanted is not None
        scale = 1 + wanted.abs().max().item()
        torch.testing.assert_close(got, wanted, rtol=0, atol=limit * scale, msg=lambda m, n=name: f"{n}: {m}")


def mesanet(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """MesaNet token by token."""
    gates = [
        torch.sigmoid(x @ gate.weight.T + gate.bias) if gate is not None else x.new_ones(*x.shape[:2], HEADS)
        for gate in (mixer.forget, mixer.strength)
    ]
    ridge = F.softplus(mixer.ridge) + mixer.settings.ridge_floor
    return solved(*heads_of(mixer, x), *gates, lambda gram, t: ridge.expand(B, -1, -1))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"method": "exact", "conv_v": True}, {"decay": "none"}, {"strength": "one", "conv": 0}],
    ids=str,
)
def test_mesanet_is_its_equation(
    tokens: Callable[[int], Tensor], randomise: Randomise, length: int, settings: dict[str, Any]
) -> None:
    assert_is_its_loop(randomise(build_mixer(MesaNet, **settings)), tokens(length), mesanet)


@torch.no_grad()
def test_mesanets_values_are_a_linear_map_of_their_token(
    tokens: Callable[[int], Tensor], randomise: Randomise, relative_error: Error
) -> None:
    mixer, x = randomise(build_mixer(MesaNet)), tokens(9)
    q, k, v = heads_of(mixer, x)
    linear = (x @ mixer.project.linear.weight[-D:].T).unflatten(-1, (HEADS, -1))
    assert relative_error(v, linear) < 1e-12
    assert (q.norm(dim=-1) - 1).abs().max() < 1e-4
    assert (k.norm(dim=-1) - 1).abs().max() < 1e-4


@torch.no_grad()
def test_with_a_large_ridge_mesanet_is_scaled_linear_attention(
    tokens: Callable[[int], Tensor], randomise: Randomise, relative_error: Error
) -> None:
    mixer, x, ridge = randomise(build_mixer(MesaNet)), tokens(70), 1e9
    mixer.ridge.fill_(ridge)
    q, k, v = heads_of(mixer, x)
    given = share_input(x, mixer, mixer.readout)
    o, _ = mixer.recur(given, q, k, v, None)
    log_decay, strength = F.logsigmoid(mixer.forget(x)), torch.sigmoid(mixer.strength(x))
    sums, _ = matrix_state(q, k, strength[..., None] * v, log_decay=log_decay, scale=1 / ridge)
    assert relative_error(o, sums) < 1e-7


def recursive(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Recursive least squares, a delta rule that writes under another key, and the sums it stands for."""
    q, k, v = heads_of(mixer, x)
    ridge = (F.softplus(mixer.ridge) + mixer.settings.ridge_floor).expand(-1, K)
    P = torch.diag_embed(1 / ridge).expand(B, -1, -1, -1)
    S, outputs = torch.zeros(B, HEADS, K, K, dtype=torch.float64), []
    for t in range(x.shape[1]):
        Pk = torch.einsum("bhkl,bhl->bhk", P, k[:, t])
        gain = Pk / (1 + (k[:, t] * Pk).sum(dim=-1, keepdim=True))
        S = S + outer(gain, v[:, t] - torch.einsum("bhkv,bhk->bhv", S, k[:, t]))
        P = P - outer(gain, Pk)
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
    sums = [torch.einsum("bthk,bthv->bhkv", k, each) for each in (k, v)]
    return torch.stack(outputs, dim=1), torch.cat(sums, dim=-1)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("settings", [{}, {"method": "cg", "ridge_of": "channel", "conv": 4}], ids=str)
def test_the_mesa_layer_is_recursive_least_squares(
    tokens: Callable[[int], Tensor], randomise: Randomise, length: int, settings: dict[str, Any]
) -> None:
    assert_is_its_loop(randomise(build_mixer(MesaLayer, **settings)), tokens(length), recursive)


@torch.no_grad()
def test_solved_exactly_and_without_gates_mesanet_is_the_mesa_layer(
    tokens: Callable[[int], Tensor], randomise: Randomise, relative_error: Error
) -> None:
    """It is by conjugate gradients, too, once they have converged."""
    layer, x = randomise(build_mixer(MesaLayer, output_norm="rms")), tokens(65)
    for method in ("exact", "cg"):
        plain = {"decay": "none", "strength": "one", "ridge_of": "head", "ridge_floor": 0, "conv": 0}
        mixer = build_mixer(MesaNet, method=method, **plain)
        mixer.load_state_dict(layer.state_dict())
        assert relative_error(mixer(x).y, layer(x).y) < 1e-10


@torch.no_grad()
def test_orthogonal_keys_are_recalled_exactly_as_the_ridge_vanishes() -> None:
    mixer = build_mixer(MesaNet, decay="none", strength="one", ridge=1e-8, ridge_floor=0)
    k = torch.eye(K, dtype=torch.float64)[None, :, None].expand(B, K, HEADS, K)
    v = torch.linspace(-1, 2, k.numel(), dtype=torch.float64).sin().view_as(k)
    x = torch.zeros(B, K, D, dtype=torch.float64)
    _, memory = mixer.recur(share_input(x, mixer, mixer.readout), k, k, v, None)
    o, _ = mixer.recur(share_input(x, mixer, mixer.readout), k, 0 * k, v, memory)
    torch.testing.assert_close(o, v, rtol=0, atol=1e-6)


@torch.no_grad()
def test_more_steps_come_closer(tokens: Callable[[int], Tensor], randomise: Randomise) -> None:
    x, errors = tokens(40), []
    exact = randomise(build_mixer(MesaNet, method="exact"))
    for steps in (1, 2, 4, 8):
        mixer = build_mixer(MesaNet, steps=steps)
        mixer.load_state_dict(exact.state_dict())
        errors.append(float((mixer(x).y - exact(x).y).norm()))
    assert all(after < before / 2 for before, after in itertools.pairwise(errors))
    assert errors[-1] < 1e-9


def test_mesanet_starts_as_published() -> None:
    mixer = build_mixer(MesaNet)
    torch.testing.assert_close(
        F.softplus(mixer.ridge) + 0.25, torch.ones_like(mixer.ridge), rtol=1e-6, atol=0
    )
    assert not mixer.forget.bias.any()
    assert not mixer.strength.bias.any()
    assert mixer.parameter_rules() == {"ridge": Rule(decay=False)}


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"ridge": 0.2}, "ridge_floor"), ({"decay": "none", "forget_bias": 8}, "forget_bias")],
    ids=str,
)
def test_starts_that_there_are_not_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        build_mixer(MesaNet, **settings)


def kalman_gates(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the decay, the square of b, and c."""
    decay = mixer.decay(share_input(x, mixer, mixer.readout)).exp()
    b, c = (torch.sigmoid(x @ gate.weight.T + gate.bias) for gate in (mixer.beta, mixer.mix))
    return decay, (b + 1e-6) ** 2, c


def kalman(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Gated KalmaNet token by token, solved directly."""
    (q, k, v), (decay, strength, c) = heads_of(mixer, x), kalman_gates(mixer, x)

    def ridge(gram: Tensor, t: int) -> Tensor:
        return (0.02 * gram.square().sum(dim=(-2, -1)).sqrt())[..., None].expand(-1, -1, K)

    o, memory = solved(q, k, v, decay, strength, ridge)
    plain, _ = matrix_state(q, k, strength[..., None] * v, log_decay=decay.log(), scale=1.0)
    return (plain + c[..., None] * (o - plain)) * K**-0.5, memory


@pytest.mark.parametrize("length", LENGTHS)
def test_gated_kalmanet_is_its_equation(
    tokens: Callable[[int], Tensor], randomise: Randomise, length: int
) -> None:
    mixer = randomise(build_mixer(GatedKalmaNet, method="exact"))
    assert_is_its_loop(mixer, tokens(length), kalman, limit=1e-8)


@torch.no_grad()
def test_steps_of_gated_kalmanet_contract_as_published(
    tokens: Callable[[int], Tensor], randomise: Randomise
) -> None:
    """Each step does by 0.754 or better, whatever the keys, since the condition is at most 51."""
    x, exact = tokens(40), randomise(build_mixer(GatedKalmaNet, method="exact"))
    exact.mix.bias.fill_(100.0)
    given = share_input(x, exact, exact.readout)
    q, k, v = heads_of(exact, x)
    expected = exact.recur(given, q, k, v, None)[0]
    for steps in (10, 30):
        mixer = build_mixer(GatedKalmaNet, steps=steps)
        mixer.load_state_dict(exact.state_dict())
        error = mixer.recur(share_input(x, mixer, mixer.readout), q, k, v, None)[0] - expected
        assert 0 < error.norm() <= 2 * 0.754 ** (steps + 1) * expected.norm()


@torch.no_grad()
def test_with_its_mix_shut_gated_kalmanet_is_gated_linear_attention(
    tokens: Callable[[int], Tensor], randomise: Randomise, relative_error: Error
) -> None:
    mixer, x = randomise(build_mixer(GatedKalmaNet)), tokens(40)
    mixer.mix.bias.fill_(-100.0)
    (q, k, v), (decay, strength, _) = heads_of(mixer, x), kalman_gates(mixer, x)
    o, _ = mixer.recur(share_input(x, mixer, mixer.readout), q, k, v, None)
    plain, _ = matrix_state(q, k, strength[..., None] * v, log_decay=decay.log())
    assert relative_error(o, plain) < 1e-10
