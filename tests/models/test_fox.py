import math

import pytest
import torch
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.base import LayerInfo
from linbench.models.blocks.heads import share_input
from linbench.models.fox import FoX
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 30


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
def test_it_is_the_published_formula(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    """The formula is a recurrence over numerators and denominators that both forget.

    The mixer makes sums of gates a bias instead.
    """
    mixer = randomise(build_mixer(FoX))
    mixer.readout.linear.weight.copy_(torch.eye(D))
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    f = torch.sigmoid(x @ mixer.forget.weight.T + mixer.forget.bias)
    expected = torch.zeros(B, T, HEADS, D // HEADS, dtype=torch.float64)
    for t in range(T):
        above, below = torch.zeros_like(expected[:, 0]), torch.zeros(B, HEADS, 1, dtype=torch.float64)
        for s in range(t + 1):
            weight = ((q[:, t] * k[:, s]).sum(dim=-1, keepdim=True) / math.sqrt(D // HEADS)).exp()
            keep = f[:, s, :, None] if s else 1.0
            above, below = keep * above + weight * v[:, s], keep * below + weight
        expected[:, t] = above / below
    assert relative_error(mixer(x).y, expected.flatten(2)) < 1e-10


@torch.no_grad()
def test_fox_that_never_forgets_is_attention_without_positions(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    fox, plain = randomise(build_mixer(FoX)), build_mixer(Attention, positions="none")
    missing, extra = plain.load_state_dict(fox.state_dict(), strict=False)
    assert not missing
    assert {*extra} == {"forget.weight", "forget.bias"}
    expected = plain(x).y
    assert relative_error(fox(x).y, expected) > 1e-3
    fox.forget.weight.zero_()
    fox.forget.bias.fill_(math.inf)
    assert relative_error(fox(x).y, expected) < 1e-12


@torch.no_grad()
def test_one_gate_for_all_tokens_is_a_linear_bias(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    fox, alibi = randomise(build_mixer(FoX)), build_mixer(Attention, positions="alibi")
    alibi.load_state_dict(
        {
            **{name: value for name, value in fox.state_dict().items() if "forget" not in name},
            "slopes": alibi.slopes,
        }
    )
    fox.forget.weight.zero_()
    fox.forget.bias.copy_(-torch.expm1(alibi.slopes).log())  # log sigmoid(b) = -slope
    assert relative_error(fox(x).y, alibi(x).y) < 1e-10


@torch.no_grad()
def test_gates_are_a_half_at_first_unless_asked() -> None:
    mixer = build_mixer(FoX, LayerInfo(0, 1, 512))
    assert not mixer.forget.bias.any()
    assert 0.018 < mixer.forget.weight.std() < 0.022
    ones = torch.ones(1, 1, D, dtype=torch.float64)
    keeping = build_mixer(FoX, forget_bias=8.0)
    assert (keeping.log_forget(share_input(ones, keeping, keeping.readout)) > -0.001).all()
    half = build_mixer(FoX)
    half.forget.weight.zero_()
    assert half.log_forget(share_input(ones, half, half.readout)).flatten().tolist() == pytest.approx(
        [math.log(0.5)] * HEADS
    )


@torch.no_grad()
def test_the_cache_says_what_is_left_of_each_key(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(FoX))
    log_f = torch.nn.functional.logsigmoid(x @ mixer.forget.weight.T + mixer.forget.bias)
    state = mixer.init_state(B, capacity=T + 3)
    for part in x.split([1, 9, T - 10], dim=1):
        state = mixer(part, state).state
    expected = log_f.sum(dim=1, keepdim=True) - log_f.cumsum(dim=1)
    torch.testing.assert_close(state.log_left[:, :T], expected, rtol=1e-12, atol=1e-12)
    assert (state.log_left[:, T - 1] == 0).all()


@torch.no_grad()
def test_a_long_stream_in_float32_stays_what_the_whole_is(
    randomise: Randomise, relative_error: Error, generator: torch.Generator
) -> None:
    mixer = randomise(build_mixer(FoX)).float()
    x = torch.randn(1, 1500, D, generator=generator)
    state, parts = mixer.init_state(1, capacity=1500), []
    for part in x.split(500, dim=1):
        y, state, _ = mixer(part, state)
        parts.append(y)
    assert relative_error(torch.cat(parts, dim=1), mixer.double()(x.double()).y) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("reset", [-1e12, -1e30, -3.4028234663852886e38, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_gate_that_forgets_all_begins_a_sequence_anew(
    monkeypatch: pytest.MonkeyPatch,
    x: Tensor,
    randomise: Randomise,
    relative_error: Error,
    reset: float,
    dtype: torch.dtype,
) -> None:
    """Before the whole, from the state, and in the cache."""
    mixer, x = randomise(build_mixer(FoX)).to(dtype), x.to(dtype)
    gates = torch.nn.functional.logsigmoid(x @ mixer.forget.weight.T + mixer.forget.bias)
    gates[:, [11, 12]] = reset
    alone = torch.cat([mixer(x[:, :11]).y, mixer(x[:, 11:12]).y, mixer(x[:, 12:]).y], dim=1)
    rest = iter(())
    monkeypatch.setattr(mixer, "log_forget", lambda given: next(rest))
    for points in ([T], [7, 10, T - 17], [1] * T):
        for step in (mixer.forward, mixer.decode):
            rest = iter(gates.split(points, dim=1))
            state, parts = mixer.init_state(B, capacity=T), []
            for part in x.split(points, dim=1):
                y, state, _ = step(part, state)
                parts.append(y)
            assert relative_error(torch.cat(parts, dim=1), alone) < (1e-5 if dtype == torch.float32 else 1e-9)
