"""GSA, ABC and Raven: two memories of slots that a softmax reads, token by token, and in the limit."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.abc import BoundedMemory
from linbench.models.gsa import GSA
from linbench.models.raven import Raven
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T, HEAD, M = 37, D // HEADS, 5


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@pytest.fixture
def qkv(generator: torch.Generator) -> Tensor:
    return torch.randn(3, B, T, HEADS, HEAD, dtype=torch.float64, generator=generator)


def slots(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, write: Tensor) -> tuple[Tensor, Tensor]:
    """Return what softmax reads of slots after each token, and their keys and values after the last."""
    memory, outputs = q.new_zeros(B, HEADS, keep.shape[-1], k.shape[-1] + v.shape[-1]), []
    for t in range(q.shape[1]):
        new = torch.cat([k[:, t], v[:, t]], dim=-1)
        memory = keep[:, t, :, :, None] * memory + write[:, t, :, :, None] * new[:, :, None]
        keys, values = memory.split([k.shape[-1], v.shape[-1]], dim=-1)
        p = torch.einsum("bhmk,bhk->bhm", keys, q[:, t]).softmax(dim=-1)
        outputs.append(torch.einsum("bhmv,bhm->bhv", values, p))
    return torch.stack(outputs, dim=1), memory


@torch.no_grad()
def test_gsa_is_its_loop(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(GSA, slots=M))
    q, k, v = (
        F.silu(part).unflatten(-1, (HEADS, HEAD))
        for part in (x @ mixer.project.linear.weight.T).split(D, dim=-1)
    )
    keep = torch.sigmoid(x @ mixer.gate.weight.T).unflatten(-1, (HEADS, M)) ** (1 / 8)
    o, memory = slots(q, k, v, keep, 1 - keep)
    o = F.silu(o).flatten(2)
    normed = o / (o.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * mixer.readout.norm.weight
    y, state, _ = mixer(x)
    assert relative_error(y, normed @ mixer.readout.linear.weight.T) < 1e-10
    assert relative_error(state.memory, memory) < 1e-10


@torch.no_grad()
def test_gsa_of_slots_written_one_by_one_is_softmax_attention_over_their_tokens(
    qkv: Tensor, x: Tensor, monkeypatch: pytest.MonkeyPatch, relative_error: Error
) -> None:
    mixer = build_mixer(GSA, slots=M, value_map="identity", output_map="identity")
    turns = F.one_hot(torch.arange(T) % M, M)
    replaced = torch.where(turns == 1, -torch.inf, 0.0).double()[None, :, None].expand(B, -1, HEADS, -1)
    monkeypatch.setattr(mixer, "decay", lambda x: replaced)
    o, _ = mixer.recur(x, *qkv, None)
    q, k, v = qkv
    age = torch.arange(T)[:, None] - torch.arange(T)
    seen = torch.where((age >= 0) & (age < M), 0.0, -torch.inf)
    p = (torch.einsum("bihk,bjhk->bhij", q, k) + seen).softmax(dim=-1)
    expected = torch.einsum("bhij,bjhv->bihv", p, v)
    assert relative_error(o[:, M - 1 :], expected[:, M - 1 :]) < 1e-12
    assert relative_error(o[:, : M - 1], expected[:, : M - 1]) > 1e-3  # slots that are empty count


@torch.no_grad()
def test_gsa_of_one_slot_is_a_gated_mean_of_values(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    settings = {"slots": 1, "output_map": "identity", "output_norm": "none"}
    mixer = randomise(build_mixer(GSA, **settings))
    v = F.silu(x @ mixer.project.linear.weight[-D:].T).unflatten(-1, (HEADS, HEAD))
    keep = torch.sigmoid(x @ mixer.gate.weight.T)[..., None] ** (1 / 8)
    mean, means = torch.zeros(B, HEADS, HEAD, dtype=torch.float64), []
    for t in range(T):
        mean = keep[:, t] * mean + (1 - keep[:, t]) * v[:, t]
        means.append(mean)
    expected = torch.stack(means, dim=1).flatten(2) @ mixer.readout.linear.weight.T
    assert relative_error(mixer(x).y, expected) < 1e-10


def controlled_gates(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gates of running means, which keep and write, for the logits of ABC."""
    z = logits.logcumsumexp(dim=1)
    before = torch.cat([torch.full_like(z[:, :1], -torch.inf), z[:, :-1]], dim=1)
    return (before - z).exp(), (logits - z).exp()


@torch.no_grad()
def test_abc_is_its_loop(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    settings = {"slots": M, "positions": "none", "output_gate": "none", "output_norm": "none"}
    mixer = randomise(build_mixer(BoundedMemory, **settings))
    q, k, v = (
        part.unflatten(-1, (HEADS, -1))
        for part in (x @ mixer.project.linear.weight.T).split([D // 2, D // 2, D], dim=-1)
    )
    keep, write = controlled_gates((x @ mixer.control.weight.T).unflatten(-1, (HEADS, M)))
    o, memory = slots(q / (HEAD // 2) ** 0.5, k, v, keep, write)
    y, state, _ = mixer(x)
    assert relative_error(y, o.flatten(2) @ mixer.readout.linear.weight.T) < 1e-10
    *sums, total = state.memory.split([HEAD // 2, HEAD, 1], dim=-1)
    assert relative_error(torch.cat(sums, dim=-1) / total, memory) < 1e-10


@torch.no_grad()
def test_abc_is_gsa_with_gates_of_running_means(
    x: Tensor, qkv: Tensor, randomise: Randomise, monkeypatch: pytest.MonkeyPatch, relative_error: Error
) -> None:
    abc = randomise(build_mixer(BoundedMemory, slots=M, expand_k=1.0))
    gsa = build_mixer(GSA, slots=M, value_map="identity", output_map="identity")
    keep, _ = controlled_gates(abc.control(x).unflatten(-1, (HEADS, M)))
    monkeypatch.setattr(gsa, "decay", lambda x: keep.log())
    q, k, v = qkv
    assert relative_error(abc.recur(x, q, k, v, None)[0], gsa.recur(x, q / HEAD**0.5, k, v, None)[0]) < 1e-10


@torch.no_grad()
def test_abc_without_control_is_the_running_mean(x: Tensor, qkv: Tensor, relative_error: Error) -> None:
    mixer = build_mixer(BoundedMemory, expand_k=1.0)
    mixer.control.weight.zero_()
    mean = qkv[2].cumsum(dim=1) / torch.arange(1, T + 1)[:, None, None]
    assert relative_error(mixer.recur(x, *qkv, None)[0], mean) < 1e-12


@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_control_without_bounds_would_overflow(x: Tensor, qkv: Tensor, size: float) -> None:
    mixer = build_mixer(BoundedMemory, expand_k=1.0).float()
    mixer.control.weight.data.fill_(size)
    q, k, v = qkv.float().requires_grad_().unbind()
    o, memory = mixer.recur(x.float(), q, k, v, None)
    (gradient,) = torch.autograd.grad(o.sum(), q)
    assert all(part.isfinite().all() for part in (o, memory, gradient))
    assert memory[..., -1].log().abs().max() < 37


@torch.no_grad()
def test_raven_is_its_loop(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(Raven, slots=M, active=2))
    q, k, v = (
        F.silu(part).unflatten(-1, (HEADS, HEAD))
        for part in (x @ mixer.project.linear.weight.T).split(D, dim=-1)
    )
    q, k = (
        each / (each.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * norm.weight
        for each, norm in ((q, mixer.project.q_norm), (k, mixer.project.k_norm))
    )
    scores = torch.sigmoid(x @ mixer.router.weight.T).unflatten(-1, (HEADS, M))
    scores = scores.where(scores >= scores.sort(dim=-1, descending=True).values[..., 1:2], 0.0)
    step = F.softplus(x @ mixer.whole_decay.project.weight.T + mixer.whole_decay.dt_bias)
    rate = (
        (mixer.whole_decay.A_log.exp() * step)[..., None] * scores / (scores.sum(dim=-1, keepdim=True) + 1e-9)
    )
    o, memory = slots(q, k, v, (-rate).exp(), 1 - (-rate).exp())
    o = F.silu(o).flatten(2)
    normed = o / (o.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * mixer.readout.norm.weight
    y, state, _ = mixer(x)
    assert relative_error(y, normed @ mixer.readout.linear.weight.T) < 1e-10
    assert relative_error(state.memory, memory) < 1e-10


@torch.no_grad()
def test_raven_of_equal_shares_is_gsa_with_one_gate_for_all_slots(
    x: Tensor, qkv: Tensor, randomise: Randomise, monkeypatch: pytest.MonkeyPatch, relative_error: Error
) -> None:
    raven, gsa = randomise(build_mixer(Raven, slots=M, active=M + 1)), build_mixer(GSA, slots=M)
    expected, _ = raven.recur(x, *qkv, None)
    monkeypatch.setattr(gsa, "decay", lambda x: raven.whole_decay(x)[..., None].expand(-1, -1, -1, M) / M)
    assert relative_error(expected, gsa.recur(x, *qkv, None)[0]) > 1e-4
    raven.router.weight.zero_()
    expected, memory = raven.recur(x, *qkv, None)
    found, of_gsa = gsa.recur(x, *qkv, None)
    assert relative_error(found, expected) < 1e-7  # the 1e-9 beside the sum of scores
    assert relative_error(of_gsa, memory) < 1e-7


@torch.no_grad()
def test_slots_that_are_not_chosen_stay_bit_for_bit(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(Raven, slots=9, active=2))
    before = mixer.prefill(x[:, :4], capacity=T).state
    chosen = mixer.shares(x) > 0
    assert (chosen.sum(dim=-1) == 2).all()
    never = ~chosen[:, :4].any(dim=1)
    assert never.any()
    assert torch.equal((before.memory == 0).all(dim=-1), never)
    for step in (mixer, mixer.decode):
        for end in (5, T):
            after = step(x[:, 4:end], before).state.memory
            stayed = (after == before.memory).all(dim=-1)
            assert torch.equal(stayed, ~chosen[:, 4:end].any(dim=1))


@torch.no_grad()
def test_a_noisy_router_chooses_at_random_in_training_alone(x: Tensor) -> None:
    noisy, plain = build_mixer(Raven, slots=9, noise=True), build_mixer(Raven, slots=9)
    expected = plain.shares(x)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        first, second = noisy.shares(x), noisy.shares(x)
    for one, other in ((first, second), (first, expected)):
        assert ((one > 0) != (other > 0)).double().mean() > 0.1
    assert torch.equal(noisy.eval().shares(x), expected)
    torch.testing.assert_close(first.sum(dim=-1), torch.ones_like(first[..., 0]))
