"""A mixture of memories: each memory is a Gated DeltaNet of the tokens that are routed to it."""

import pytest
import torch
import torch.nn.functional as F
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.blocks.heads import share_input
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.mom import MoM
from tests.helpers.equations import assert_recurs_as
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 70


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def looped(mixer: MoM, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return o and the memories: of each row, the tokens of one memory after the other."""
    s, maps = mixer.settings, mixer.decay.shape[0]
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    k, v = (each.unflatten(1, (-1, maps)) for each in (k, v))
    steps = F.softplus((x @ mixer.decay.project.weight.T).unflatten(-1, (maps, HEADS)) + mixer.decay.dt_bias)
    a = (-mixer.decay.A_log.exp() * steps).exp()
    beta = torch.sigmoid(x @ mixer.beta.project.weight.T).unflatten(-1, (maps, HEADS))
    scores = (x @ mixer.router.weight.T).softmax(dim=-1)
    o, memories = [], []
    for b in range(len(x)):
        rows: list[Tensor] = [torch.zeros_like(v[b, 0, 0]) for _ in range(x.shape[1])]
        of_row = []
        for m in range(s.all_memories):
            S, own = x.new_zeros(HEADS, k.shape[-1], v.shape[-1]), m if maps > 1 else 0
            for t in range(x.shape[1]):
                best = scores[b, t].topk(s.active).indices.tolist()
                if m < s.memories and m not in best:
                    continue
                weight = scores[b, t, m] / scores[b, t, best].sum() if m < s.memories else 1.0
                key, S = k[b, t, own], a[b, t, own, :, None, None] * S
                error = v[b, t, own] - torch.einsum("hkv,hk->hv", S, key)
                S = S + beta[b, t, own, :, None, None] * key[..., None] * error[:, None]
                rows[t] = rows[t] + weight * torch.einsum("hkv,hk->hv", S, q[b, t]) / q.shape[-1] ** 0.5
            of_row.append(S)
        o.append(torch.stack(rows))
        memories.append(torch.stack(of_row, dim=1).flatten(0, 1))
    return torch.stack(o), torch.stack(memories)


@pytest.mark.parametrize("settings", [{}, {"single_kv": True}, {"shared_memory": True}], ids=str)
def test_a_memory_is_a_delta_rule_of_the_tokens_routed_to_it(
    x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, bool]
) -> None:
    mixer = randomise(build_mixer(MoM, memories=4, **settings))
    assert_recurs_as(looped, mixer, x, relative_error)


@torch.no_grad()
def test_memories_that_are_alike_and_all_chosen_are_gated_deltanet(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer, host = randomise(build_mixer(MoM, memories=3, active=3)), build_mixer(GatedDeltaNet)
    one = randomise(build_mixer(MoM, memories=1, active=1))
    assert not host.load_state_dict(one.state_dict(), strict=False).missing_keys
    expected = host(x).y
    assert relative_error(one(x).y, expected) < 1e-12
    for name, weight in host.state_dict().items():
        wanted = mixer.get_parameter(name)
        if name.startswith("project."):
            q, k, v = (weight if "linear" in name else weight.T).split(host.project.widths)
            weight = torch.cat([q, k, k, k, v, v, v])
            weight = weight if "linear" in name else weight.T
        elif weight.shape != wanted.shape:
            weight = weight.repeat(3, 1)
        wanted.copy_(weight)
    assert relative_error(mixer(x).y, expected) < 1e-12
    assert relative_error(randomise(mixer)(x).y, expected) > 1e-3


@torch.no_grad()
def test_memories_that_are_not_chosen_stay_bit_for_bit(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(MoM, memories=4))
    state = mixer.prefill(x[:, :-1], capacity=T).state
    chosen = mixer.route(share_input(x[:, -1:], mixer, mixer.readout))[1][:, 0]
    assert chosen.sum(dim=-1).tolist() == [2] * B
    for decode in (mixer, mixer.decode):
        after = decode(x[:, -1:], state).state.memory
        stayed = (after == state.memory).flatten(2).all(dim=-1).unflatten(1, (HEADS, 4))
        assert torch.equal(stayed, ~chosen[:, None].expand(-1, HEADS, -1))


def test_more_active_memories_than_there_are_is_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        build_mixer(MoM, memories=2, active=3)
    assert str(refused.value) == snapshot
