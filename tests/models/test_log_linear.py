"""Log-linear attention: the Fenwick recurrence token by token, and the hosts that it is in the limit."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.blocks.heads import share_input
from linbench.models.blocks.levels import LevelState, LogLinear
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.log_linear_gdn import LogLinearGDN
from linbench.models.log_linear_mamba2 import LogLinearMamba2
from linbench.models.mamba2 import Mamba2
from tests.helpers.equations import LENGTHS
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

HOSTS: dict[type[LogLinear], type[Any]] = {LogLinearGDN: GatedDeltaNet, LogLinearMamba2: Mamba2}
each = pytest.mark.parametrize("cls", HOSTS)


@pytest.fixture
def drawn(generator: torch.Generator) -> Any:
    return lambda length: torch.randn(B, length, D, dtype=torch.float64, generator=generator)


def gates(mixer: Any, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a and beta of what is erased [B, T, H], and the values that are written."""
    step = F.softplus(x @ mixer.decay.project.weight.T + mixer.decay.dt_bias)
    a = (-mixer.decay.A_log.exp() * step).exp()
    if isinstance(mixer, Mamba2):
        return a, torch.zeros_like(a), step[..., None] * v
    beta = torch.sigmoid(x @ mixer.beta.project.weight.T)
    return a, beta, beta[..., None] * v


def looped(mixer: Any, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """Return what the layer's readout gets, and the memories of the levels that are there at the end."""
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    q, k = (each.repeat_interleave(HEADS // each.shape[2], dim=2) for each in (q, k))
    a, erased, written = gates(mixer, x, v)
    logits = (x @ mixer.level_map.weight.T).unflatten(-1, (HEADS, -1))
    weights = F.softplus(mixer.level_scale * logits)
    scale = 1.0 if isinstance(mixer, Mamba2) else k.shape[-1] ** -0.5
    S: dict[int, Tensor] = {}
    outputs = []
    for t in range(x.shape[1]):
        if t:
            merged = (t & -t).bit_length()
            S[merged] = sum(S.pop(level) for level in [*S] if level < merged)  # type: ignore[assignment]
        for level, memory in S.items():
            recalled = torch.einsum("bhkv,bhk->bhv", memory, k[:, t])
            kept = memory - erased[:, t, :, None, None] * k[:, t, ..., None] * recalled[:, :, None]
            S[level] = a[:, t, :, None, None] * kept
        S[0] = k[:, t, ..., None] * written[:, t, :, None]
        read = [
            weights[:, t, :, level, None] * torch.einsum("bhkv,bhk->bhv", memory, q[:, t])
            for level, memory in S.items()
        ]
        outputs.append(scale * torch.stack(read).sum(dim=0))
    o = torch.stack(outputs, dim=1)
    return (o + mixer.skip[:, None] * v if isinstance(mixer, Mamba2) else o), S


@each
@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_the_fenwick_recurrence(
    cls: type[LogLinear], drawn: Any, randomise: Randomise, relative_error: Error, length: int
) -> None:
    """Outputs, memories and all gradients; a level that is being read holds what the recurrence has there."""
    mixer, x, found = randomise(build_mixer(cls, levels=8)), drawn(length), []
    for compute in (mixer, lambda x: looped(mixer, x)):
        given = x.clone().requires_grad_()
        mixer.zero_grad()
        made = compute(given)
        if isinstance(made[1], LevelState):
            y, count = made[0], made[1].levels.shape[1] // HEADS
            levels = [*made[1].levels.unflatten(1, (HEADS, count)).unbind(dim=2)]
            live = [level for level in range(count) if length - 1 >> level & 1]
            memories = [levels[level] for level in live]
        else:
            y, memories = mixer.readout(made[0], given), [made[1][1 + level] for level in live]
        assert len(memories) == (length - 1).bit_count()
        numbers = torch.cat([part.flatten() for part in (y, *memories)])
        (numbers * torch.linspace(-1, 2, len(numbers), dtype=torch.float64).sin()).sum().backward()
        gradients = {name: p.grad for name, p in mixer.named_parameters()} | {"x": given.grad}
        found.append({"numbers": numbers.detach(), **gradients})
    for name, expected in found[1].items():
        if expected is not None and expected.any():  # one token has no decay
            assert relative_error(found[0][name], expected) < 1e-8, name


@each
@torch.no_grad()
def test_weights_of_one_are_the_host(
    cls: type[LogLinear], drawn: Any, randomise: Randomise, relative_error: Error, monkeypatch: Any
) -> None:
    mixer, host, x = randomise(build_mixer(cls)), build_mixer(HOSTS[cls]), drawn(100)
    assert not host.load_state_dict(mixer.state_dict(), strict=False).missing_keys
    expected = host(x).y
    assert relative_error(mixer(x).y, expected) > 1e-3
    monkeypatch.setattr(mixer, "level_weights", lambda x, n: x.x.new_ones(*x.x.shape[:2], HEADS, 1 + n))
    assert relative_error(mixer(x).y, expected) < 1e-10
    # all that came before is in one level when a block of the largest begins: after 64 tokens in the seventh
    levels = mixer(x[:, :64], mixer.init_state(B, capacity=100)).state.levels.unflatten(1, (HEADS, -1))
    assert relative_error(levels[:, :, 6], host(x[:, :64]).state.memory) < 1e-10


@each
@torch.no_grad()
def test_rows_may_stand_at_different_places(
    cls: type[LogLinear], drawn: Any, randomise: Randomise, relative_error: Error
) -> None:
    mixer, x = randomise(build_mixer(cls)), drawn(80)
    expected = mixer(x).y
    first, second = (mixer.prefill(x[:, :place], capacity=80).state for place in (13, 30))
    parts = [None if a is None else torch.cat([a[:1], b[1:]]) for a, b in zip(first, second, strict=True)]
    rest = torch.stack([x[0, 13:63], x[1, 30:]])
    y = mixer(rest, LevelState(*parts)).y
    assert relative_error(y[0], expected[0, 13:63]) < 1e-10
    assert relative_error(y[1], expected[1, 30:]) < 1e-10


@torch.no_grad()
def test_levels_from_the_last_on_share_its_weights(
    drawn: Any, randomise: Randomise, relative_error: Error
) -> None:
    few, many, x = (
        randomise(build_mixer(LogLinearGDN, levels=3)),
        build_mixer(LogLinearGDN, levels=8),
        drawn(70),
    )
    weights = few.state_dict()
    order = [0, 1, *[2] * 6]
    weights["level_scale"] = weights["level_scale"][:, order]
    weights["level_map.weight"] = weights["level_map.weight"].unflatten(0, (HEADS, 3))[:, order].flatten(0, 1)
    many.load_state_dict(weights)
    assert relative_error(few(x).y, many(x).y) < 1e-12


@each
@torch.no_grad()
def test_levels_start_with_weights_of_about_ln_2(cls: type[LogLinear], drawn: Any) -> None:
    mixer = build_mixer(cls)
    weights = mixer.level_weights(share_input(drawn(90), mixer, mixer.readout), 7)
    assert weights.shape == (B, 90, HEADS, 8)
    assert abs(weights.median().item() - 0.693) < 0.05
    assert mixer.parameter_rules()["level_scale"].decay is False
    assert [
        mixer.state_floats(length).recurrent // mixer.state_floats(1).recurrent
        for length in (1, 2, 3, 40, 256)
    ] == [1, 1, 2, 6, 8]
