"""Exponential gates: against the loop with and without its maximum, the parallel form, and linear
attention."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.stabiliser import stabilise_gates
from linbench.models.mlstm import MLSTM

B, T, D, HEADS = 2, 70, 16, 2
KEY, HEAD = D // HEADS // 2, D // HEADS
Error = Callable[[Tensor, Tensor], float]
Randomise = Callable[[Mixer], Mixer]
Given = tuple[Mixer, Tensor]


def build(heads: int = HEADS, **settings: Any) -> Mixer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return MLSTM(
            MLSTM.Settings.parse(
                {"heads": heads, "output_norm": "none", "output_gate": "none", **settings}, where="model"
            ),
            LayerInfo(0, 1, D),
        ).double()


@pytest.fixture
def given(generator: torch.Generator, randomise: Randomise) -> Given:
    """A layer whose gates move much from token to token, in both directions, and an input."""
    mixer = randomise(build())
    with torch.no_grad():
        for gate in (mixer.forget, mixer.input):
            gate.weight.mul_(10)
    return mixer, torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def parts(mixer: Mixer, x: Tensor) -> tuple[Tensor, ...]:
    """q, k / sqrt(K), v [B, T, H, ...], log f and log i [B, T, H]."""
    project = mixer.project
    q, k, v = (
        part.unflatten(-1, (HEADS, -1))
        for part in (x @ project.linear.weight.T).split(project.widths, dim=-1)
    )
    forget, write = (x @ gate.weight.T + gate.bias for gate in (mixer.forget, mixer.input))
    if mixer.settings.soft_cap is not None:
        forget, write = (15 * (gate / 15).tanh() for gate in (forget, write))
    return q, k / KEY**0.5, v, F.logsigmoid(forget), write


def loop(mixer: Mixer, x: Tensor, start: float = 0.0, epsilon: float = 1e-6) -> Tensor:
    """The published recurrence with its maximum, token by token."""
    q, k, v, log_f, log_i = parts(mixer, x)
    S, n = torch.zeros(B, HEADS, KEY, HEAD).double(), torch.zeros(B, HEADS, KEY).double()
    m = torch.full((B, HEADS), start).double()
    o = []
    for t in range(x.shape[1]):
        after = torch.maximum(log_f[:, t] + m, log_i[:, t])
        forget, write = (log_f[:, t] + m - after).exp()[..., None], (log_i[:, t] - after).exp()[..., None]
        S = forget[..., None] * S + (write * k[:, t])[..., None] * v[:, t, :, None, :]
        n, m = forget * n + write * k[:, t], after
        total = (n * q[:, t]).sum(dim=-1).abs()
        o.append(
            (S * q[:, t][..., None]).sum(dim=2) / (torch.maximum(total, (-m).exp()) + epsilon)[..., None]
        )
    return torch.stack(o, dim=1).flatten(-2) @ mixer.readout.linear.weight.T


@torch.no_grad()
@pytest.mark.parametrize("soft_cap", [15.0, None])
def test_mlstm_is_its_loop(given: Given, relative_error: Error, soft_cap: float | None) -> None:
    mixer, x = build(soft_cap=soft_cap), given[1]
    mixer.load_state_dict(given[0].state_dict())
    expected = loop(mixer, x)
    assert relative_error(mixer(x).y, expected) < 1e-10
    *_, log_f, log_i = parts(mixer, x)
    later = log_i > (log_f + log_i.roll(1, 1))
    assert later.any()
    assert not later.all()  # sometimes the past weighs more, sometimes the token
    state, streamed = mixer.init_state(B, capacity=T), []
    for part in x.split([1, 1, 30, 7, 31], dim=1):
        y, state, _ = mixer(part, state)
        streamed.append(y)
    assert relative_error(torch.cat(streamed, dim=1), expected) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("start", [0.0, -50.0, 20.0])
def test_outputs_do_not_depend_on_the_maximum(
    given: Given, relative_error: Error, monkeypatch: pytest.MonkeyPatch, start: float
) -> None:
    monkeypatch.setattr(MLSTM, "epsilon", 0.0)
    mixer, x = given
    state = mixer.init_state(B, capacity=T)
    moved = mixer(x, state._replace(maximum=torch.full_like(state.maximum, start)))
    assert relative_error(moved.y, loop(mixer, x, start=0.0, epsilon=0.0)) < 1e-10
    *_, log_f, log_i = parts(mixer, x)
    expected = torch.full((B, HEADS), start).double()
    for t in range(T):
        expected = torch.maximum(log_f[:, t] + expected, log_i[:, t])
    assert relative_error(moved.state.maximum, expected) < 1e-10


@torch.no_grad()
def test_mlstm_is_its_parallel_form(
    given: Given, relative_error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MLSTM, "epsilon", 0.0)
    mixer, x = given
    q, k, v, log_f, log_i = parts(mixer, x)
    forgotten = log_f.cumsum(dim=1)
    log_d = (forgotten[:, :, None] - forgotten[:, None] + log_i[:, None]).masked_fill(
        torch.ones(T, T).triu(1).bool()[:, :, None], -math.inf
    )
    m = log_d.amax(dim=2)
    scores = torch.einsum("bihk,bjhk->bijh", q, k) * (log_d - m[:, :, None]).exp()
    o = (
        torch.einsum("bijh,bjhv->bihv", scores, v)
        / torch.maximum(scores.sum(dim=2).abs(), (-m).exp())[..., None]
    )
    assert relative_error(mixer(x).y, o.flatten(-2) @ mixer.readout.linear.weight.T) < 1e-10


def test_gradients_are_those_without_a_maximum(
    given: Given, relative_error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MLSTM, "epsilon", 0.0)
    mixer, x = given
    weights = torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    q, k, v, log_f, log_i = parts(mixer, x)
    o, _ = matrix_state(
        q,
        log_i.exp()[..., None] * k,
        torch.cat([v, torch.ones_like(v[..., :1])], dim=-1),
        log_decay=log_f,
        scale=1.0,
    )
    plain = (o[..., :-1] / o[..., -1:].abs().clamp(min=1)).flatten(-2) @ mixer.readout.linear.weight.T
    expected = torch.autograd.grad((plain * weights).sum(), list(mixer.parameters()))
    for found, wanted in zip(
        torch.autograd.grad((mixer(x).y * weights).sum(), list(mixer.parameters())), expected, strict=True
    ):
        assert relative_error(found, wanted) < 1e-9


@torch.no_grad()
def test_mlstm_with_open_gates_is_linear_attention_that_divides_by_at_least_one(
    given: Given, relative_error: Error
) -> None:
    mixer, x = build(soft_cap=None), given[1]
    mixer.load_state_dict(given[0].state_dict())
    for gate, bias in ((mixer.forget, 1e4), (mixer.input, 0.0)):
        gate.weight.zero_()
        gate.bias.fill_(bias)
    q, k, v, *_ = parts(mixer, x)
    scores = torch.einsum("bihk,bjhk->bijh", q, k) * torch.ones(T, T).tril()[:, :, None]
    total = scores.sum(dim=2)
    assert total.abs().min() < 1 < total.abs().max()
    o = torch.einsum("bijh,bjhv->bihv", scores, v) / (total.abs().clamp(min=1) + 1e-6)[..., None]
    assert relative_error(mixer(x).y, o.flatten(-2) @ mixer.readout.linear.weight.T) < 1e-10


@pytest.mark.parametrize("size", [30.0, 300.0])
def test_gates_of_any_size_neither_overflow_nor_lose_their_gradient(
    given: Given, relative_error: Error, size: float
) -> None:
    mixer, x = build(soft_cap=None), given[1]
    mixer.load_state_dict(given[0].state_dict())
    with torch.no_grad():
        mixer.input.weight.mul_(size / 10)
    *_, log_i = parts(mixer, x)
    assert log_i.max() > 2 * size
    with torch.no_grad():
        expected = loop(mixer, x)
        assert relative_error(mixer(x).y, expected) < 1e-10
    y = mixer.float()(x.float()).y
    assert relative_error(y, expected) < 1e-2
    y.sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_float32_keeps_up_over_thousands_of_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    log_f = F.logsigmoid(4 + 3 * torch.randn(1, 5000, 2, generator=generator))
    log_i = 3 * torch.randn(1, 5000, 2, generator=generator)
    wide, narrow = (
        stabilise_gates(log_f.to(d), log_i.to(d), torch.zeros(1, 2, dtype=d))
        for d in (torch.float64, torch.float32)
    )
    assert (narrow.log_decay <= 0).all()
    assert (narrow.strength <= 1).all()
    for found, expected in zip(narrow, wide, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() < 1e-5


@torch.no_grad()
@pytest.mark.parametrize(
    ("soft_cap", "shortest", "longest"), [(None, 0.9526, 0.9975), (15.0, 0.9508, 0.9967)]
)
def test_gates_start_as_published(soft_cap: float | None, shortest: float, longest: float) -> None:
    mixer = build(heads=4, soft_cap=soft_cap)
    x = torch.randn(3, 5, D, dtype=torch.float64)
    forget = torch.sigmoid(mixer._capped(mixer.forget(x)))
    assert forget[0, 0].tolist() == pytest.approx(sorted(forget[0, 0].tolist()))
    assert forget.min() == pytest.approx(shortest, abs=1e-4)
    assert forget.max() == pytest.approx(longest, abs=1e-4)
    if soft_cap is None:
        assert 14 < math.log(0.5) / forget.min().log() < 15  # the half-life of the shortest memory
    assert not mixer.input.weight.any()
    assert mixer.forget.bias.tolist() == pytest.approx([3, 4, 5, 6])
    biases = torch.cat(
        [
            build(heads=64, head_dim=1, expand_k=1.0, input_bias=-10.0).input.bias + 10,
            build(heads=64, head_dim=1, expand_k=1.0).input.bias,
        ]
    )
    assert 0.05 < biases.std() < 0.15
    assert biases.abs().max() < 0.5
    assert not mixer.parameter_rules()


@pytest.mark.parametrize("reset", [-1e12, -1e30, -3.4028234663852886e38, -math.inf])
def test_a_gate_that_forgets_all_begins_a_sequence_anew(
    reset: float, relative_error: Error, generator: torch.Generator
) -> None:
    """The sum and its maximum hold only the tokens since then, in float32.

    The gradient of such a gate is zero.
    """
    log_f, log_i = (
        F.logsigmoid(torch.randn(1, 60, 2, generator=generator)),
        4 * torch.randn(1, 60, 2, generator=generator),
    )
    log_f[:, [20, 21]] = reset
    q, k, v = (torch.randn(1, 60, 2, 8, generator=generator) for _ in range(3))

    def read(first: int, end: int) -> Tensor:
        log_decay, strength, maximum = stabilise_gates(
            log_f[:, first:end], log_i[:, first:end], torch.zeros(1, 2)
        )
        o, _ = matrix_state(
            q[:, first:end], k[:, first:end] * strength[..., None], v[:, first:end], log_decay=log_decay
        )
        return o * maximum.exp()[..., None]

    log_f.requires_grad_()
    whole = read(0, 60)
    assert relative_error(whole, torch.cat([read(0, 20), read(20, 21), read(21, 60)], dim=1)) < 1e-5
    (gradient,) = torch.autograd.grad(whole.square().sum(), log_f)
    assert gradient.isfinite().all()
    assert not gradient[:, [20, 21]].any()
