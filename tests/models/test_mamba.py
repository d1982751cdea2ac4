"""Mamba: its equation token by token, its ties to the memories that are matrices, and how it starts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.selective_scan import selective_scan
from linbench.models import mamba
from linbench.models.base import LayerInfo, Rule
from linbench.models.mamba import Mamba
from tests.helpers.decayed_sums import normed
from tests.helpers.models import B, D, Error, Randomise, build_mixer

T, W, N = 37, 2 * D, 16


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def read(mixer: Mamba, x: Tensor) -> Tensor:
    """Return the output of the first map and the convolution."""
    u = x @ mixer.inner.weight.T
    if mixer.conv.short is None:
        return u
    y = sum(F.pad(u, (0, 0, 3 - i, 0))[:, : x.shape[1]] * mixer.conv.short.weight[i] for i in range(4))
    return F.silu(y if mixer.conv.short.bias is None else y + mixer.conv.short.bias)


def told(mixer: Mamba, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Steps [B, T, W], and B and C [B, T, N]."""
    step = F.softplus(u @ mixer.step.down.weight.T @ mixer.step.up.weight.T + mixer.step.up.bias)
    return step, u @ mixer.write.weight.T, u @ mixer.read.weight.T


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neg_eigval": True},
        {"conv_bias": False, "skip": False},
        {"conv": 0, "expand": 1.5, "states": 3, "step_rank": 5},
        {"output_norm": "rms"},
        {"output_norm": "rms", "output_gate": "none"},
    ],
    ids=str,
)
def test_it_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, Any]
) -> None:
    mixer = randomise(build_mixer(Mamba, **settings))
    u = read(mixer, x)
    step, write, reads = told(mixer, u)
    A = -mixer.A_log.exp()
    h, outputs = torch.zeros(B, *A.shape, dtype=torch.float64), []
    for t in range(T):
        decay = (step[:, t, :, None] * A).exp()
        h = (2 * decay - 1 if settings.get("neg_eigval") else decay) * h + (step[:, t] * u[:, t])[
            ..., None
        ] * write[:, t, None]
        outputs.append((h * reads[:, t, None]).sum(dim=-1))
    o = torch.stack(outputs, dim=1)
    o = o + mixer.skip * u if settings.get("skip", True) else o
    o = normed(o, mixer.norm.weight) if mixer.norm is not None else o
    o = o * F.silu(x @ mixer.gate.weight.T) if settings.get("output_gate") != "none" else o
    y, state, _ = mixer(x)
    assert relative_error(y, o @ mixer.linear.weight.T) < 1e-10
    assert relative_error(state.memory, h) < 1e-10


@torch.no_grad()
def test_it_is_a_matrix_for_every_channel_with_decays_of_rows(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    """A head for each channel, with values of one number; keys and queries are the same for all."""
    mixer = randomise(build_mixer(Mamba))
    u = read(mixer, x)
    step, write, reads = told(mixer, u)
    log_decay = step[..., None] * -mixer.A_log.exp()
    o, memory = matrix_state(
        reads[:, :, None], write[:, :, None], (step * u)[..., None], log_decay=log_decay, scale=1.0
    )
    found, state = mixer.recur(u, None)
    assert relative_error(found, o.squeeze(-1)) < 1e-10
    assert relative_error(state, memory.squeeze(-1)) < 1e-10


@torch.no_grad()
def test_with_one_rate_for_all_states_it_is_mamba2s_memory(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    """One decay for each head, which is a channel."""
    mixer = randomise(build_mixer(Mamba))
    mixer.A_log.copy_(mixer.A_log[:, :1].expand(W, N))
    u = read(mixer, x)
    step, write, reads = told(mixer, u)
    o, _ = matrix_state(
        reads[:, :, None],
        write[:, :, None],
        (step * u)[..., None],
        log_decay=step * -mixer.A_log[:, 0].exp(),
        scale=1.0,
    )
    assert relative_error(mixer.recur(u, None)[0], o.squeeze(-1)) < 1e-10


@torch.no_grad()
def test_negative_eigenvalues_count_by_two(generator: torch.Generator) -> None:
    """A step without bounds turns the sign of what is remembered, where without them it is forgotten."""
    for neg_eigval, left in ((True, -1.0), (False, 0.0)):
        mixer = build_mixer(Mamba, neg_eigval=neg_eigval)
        mixer.write.weight.zero_()
        mixer.step.up.bias.fill_(50.0)
        memory = torch.randn(B, W, N, dtype=torch.float64, generator=generator)
        _, state = mixer.recur(torch.zeros(B, 1, W, dtype=torch.float64), memory)
        torch.testing.assert_close(state, left * memory, rtol=0, atol=1e-12)


@torch.no_grad()
def test_it_starts_as_published() -> None:
    mixer = build_mixer(Mamba)
    torch.testing.assert_close(
        mixer.A_log.exp(), torch.arange(1.0, N + 1, dtype=torch.float64).expand(W, N), rtol=1e-6, atol=0
    )
    steps = F.softplus(mixer.step.up.bias)
    assert 1e-3 * 0.999 <= steps.min() < 1.3e-3
    assert 0.08 < steps.max() <= 0.1 * 1.001
    assert steps.median() == pytest.approx(0.01, rel=0.2)
    assert mixer.skip.tolist() == [1.0] * W
    assert (mixer.step.down.weight.shape, mixer.step.up.weight.shape) == ((1, W), (W, 1))
    assert not mixer.linear.weight.any()
    of_rank_4 = build_mixer(Mamba, LayerInfo(0, 1, 64)).step.up.weight.abs().max()
    assert 0.95 * 4**-0.5 < of_rank_4 <= 4**-0.5


@pytest.mark.parametrize(("d_model", "rank"), [(16, 1), (17, 2), (64, 4)])
def test_the_rank_of_steps_is_a_sixteenth_of_the_width(d_model: int, rank: int) -> None:
    assert build_mixer(Mamba, LayerInfo(0, 1, d_model)).step.down.weight.shape == (rank, 2 * d_model)


@torch.no_grad()
def test_in_16_bits_steps_keep_the_digits_of_their_bias(
    relative_error: Error, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step of a token that adds nothing is its bias, which bfloat16 would round by up to 2^-7."""
    seen: list[Tensor] = []
    mixer = build_mixer(Mamba, conv_bias=False).float()
    monkeypatch.setattr(
        mamba,
        "selective_scan",
        lambda u, step, *more, **options: (seen.append(step), selective_scan(u, step, *more, **options))[1],
    )
    with torch.autocast("cpu", torch.bfloat16):
        mixer(torch.zeros(1, 2, D))
    assert relative_error(seen[0][0, 0].double(), F.softplus(mixer.step.up.bias.double())) < 1e-6


def test_forgetting_and_skip_have_no_weight_decay() -> None:
    assert build_mixer(Mamba).parameter_rules() == dict.fromkeys(
        ("A_log", "step.up.bias", "skip"), Rule(decay=False)
    )
    assert build_mixer(Mamba, skip=False).parameter_rules().keys() == {"A_log", "step.up.bias"}
    assert build_mixer(Mamba).parameter_rules().keys() <= dict(build_mixer(Mamba).named_parameters()).keys()


def test_a_width_that_is_not_whole_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.expand = 0\.3 makes a layer of width 4\.8 inside"):
        build_mixer(Mamba, expand=0.3)
