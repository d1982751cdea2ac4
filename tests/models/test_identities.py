"""Settings at which one variant equals another, or a formula."""

import math

import pytest
import torch
from torch import Tensor

from linbench.kernels.rotary import angles, rotate
from linbench.models.attention import Attention
from linbench.models.blocks.gates import ScalarDecay, WriteStrength
from linbench.models.blocks.positions import alibi_slopes
from linbench.models.deltanet import DeltaNet
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.linear_attention import LinearAttention
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 70


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize("neg_eigval", [False, True])
def test_gated_deltanet_that_keeps_everything_is_deltanet(
    x: Tensor, randomise: Randomise, relative_error: Error, neg_eigval: bool
) -> None:
    same = {"expand_k": 1.0, "expand_v": 1.0, "output_gate": "none", "neg_eigval": neg_eigval}
    gated = randomise(build_mixer(GatedDeltaNet, **same))
    plain = build_mixer(DeltaNet, **same)
    missing, extra = plain.load_state_dict(gated.state_dict(), strict=False)
    assert not missing
    assert all(name.startswith("decay.") for name in extra)
    expected = plain(x).y
    assert relative_error(gated(x).y, expected) > 1e-3
    gated.decay.A_log.fill_(-math.inf)
    assert relative_error(gated(x).y, expected) < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("positions", ["rope", "none", "alibi"])
def test_a_window_wider_than_the_sequence_is_no_window(
    x: Tensor, randomise: Randomise, relative_error: Error, positions: str
) -> None:
    without = randomise(build_mixer(Attention, positions=positions))
    wide, narrow = (
        build_mixer(Attention, positions=positions, window=10**6),
        build_mixer(Attention, positions=positions, window=T - 1),
    )
    for windowed in (wide, narrow):
        windowed.load_state_dict(without.state_dict())
    expected = without(x).y
    assert relative_error(wide(x).y, expected) < 1e-12
    assert relative_error(narrow(x).y[:, :-1], expected[:, :-1]) < 1e-12
    assert relative_error(narrow(x).y[:, -1], expected[:, -1]) > 1e-6


@torch.no_grad()
def test_only_attention_without_positions_does_not_know_the_order_of_the_past(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    shuffled = torch.cat(
        [x[:, torch.randperm(T - 1, generator=torch.Generator().manual_seed(0))], x[:, -1:]], dim=1
    )
    for settings, knows in (
        ({"positions": "none"}, False),
        ({"positions": "rope"}, True),
        ({"positions": "alibi"}, True),
        ({}, True),
    ):
        mixer = randomise(build_mixer(Attention, **settings))
        moved = relative_error(mixer(shuffled).y[:, -1], mixer(x).y[:, -1])
        assert (moved > 1e-6) if knows else (moved < 1e-12)


@pytest.mark.parametrize(
    ("heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (4, [2, 4, 6, 8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_are_the_published_ones(heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(heads).tolist() == pytest.approx([2.0**-e for e in exponents], rel=1e-6)


def test_rotation_keeps_scores_a_function_of_the_distance(
    generator: torch.Generator, relative_error: Error
) -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=generator)

    def score(query: int, key: int) -> Tensor:
        there, here = (angles(torch.tensor([[at]]), 8, torch.float64) for at in (query, key))
        return (rotate(q, *there) * rotate(k, *here)).sum()

    for distance in (0, 1, 7, 300):
        for start in (1, 50, 4000):
            assert relative_error(score(start + distance, start), score(distance, 0)) < 1e-9
    assert relative_error(score(0, 0), (q * k).sum()) < 1e-12
    assert relative_error(score(1, 0), score(0, 0)) > 1e-3
    assert relative_error(score(0, 1), score(1, 0)) > 1e-3


def test_rotation_angles() -> None:
    x = torch.tensor([1.0, 0.0, 0.0, 2.0], dtype=torch.float64).expand(1, 3, 1, 4)
    y = rotate(x, *angles(torch.tensor([[0, 1, 5]]), 4, torch.float64))[0, :, 0]
    for row, p in zip(y.tolist(), (0, 1, 5), strict=True):
        slow = p * 10_000**-0.5
        assert row == pytest.approx(
            [math.cos(p), -2 * math.sin(slow), math.sin(p), 2 * math.cos(slow)], abs=1e-12
        )


@torch.no_grad()
def test_decay_starts_with_a_median_half_life_of_about_ten_tokens() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decay = ScalarDecay(4, 4096)
    log_decay = decay(torch.zeros(1, 1, 4)).flatten()
    assert log_decay.shape == (4096,)
    assert 8 < (math.log(0.5) / log_decay).median() < 13
    assert (log_decay.exp() > 0).all()
    assert (log_decay.exp() <= 1).all()


@torch.no_grad()
@pytest.mark.parametrize("heads", [1, 2, 4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_decay_of_few_heads_covers_its_distribution(heads: int, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decay = ScalarDecay(4, heads)
    places_of_a = (decay.A_log.exp() - 1) / 15
    dt = torch.nn.functional.softplus(decay.dt_bias)
    places_of_dt = (dt.log() - math.log(1e-3)) / math.log(100)
    for places in (places_of_a, places_of_dt):
        assert (places.sort().values * heads).floor().tolist() == list(range(heads))


@torch.no_grad()
def test_decay_never_grows_and_is_wide_in_half_precision(x: Tensor, randomise: Randomise) -> None:
    decay = randomise(ScalarDecay(D, 3))
    assert (decay(100 * x.float()) <= 0).all()
    assert (decay(x.float()) < 0).any()
    assert decay.bfloat16()(x.bfloat16()).dtype == torch.float32


@torch.no_grad()
def test_write_strength_doubles_for_negative_eigenvalues(x: Tensor, randomise: Randomise) -> None:
    narrow = randomise(WriteStrength(D, HEADS, neg_eigval=False)).double()
    wide = WriteStrength(D, HEADS, neg_eigval=True).double()
    wide.load_state_dict(narrow.state_dict())
    assert torch.equal(wide(x), 2 * narrow(x))
    assert narrow(x).min() > 0
    assert narrow(x).max() < 1
    assert wide(x).max() > 1


@torch.no_grad()
def test_linear_attention_of_constant_keys_is_the_running_mean(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(LinearAttention))
    weight = mixer.project.linear.weight
    weight[D : 2 * D] = 0
    weight[2 * D :] = torch.eye(D)
    mixer.readout.linear.weight.copy_(torch.eye(D))
    mean = x.cumsum(dim=1) / torch.arange(1, T + 1)[:, None]
    torch.testing.assert_close(mixer(x).y, mean, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_unnormalised_linear_attention_of_constant_keys_is_the_normed_sum(
    x: Tensor, randomise: Randomise
) -> None:
    mixer = randomise(build_mixer(LinearAttention, normalise=False))
    weight = mixer.project.linear.weight
    weight[:D] = 0
    weight[D : 2 * D] = 0
    weight[2 * D :] = torch.eye(D)
    mixer.readout.linear.weight.copy_(torch.eye(D))
    mixer.readout.norm.weight.fill_(1)
    total = x.cumsum(dim=1).unflatten(-1, (HEADS, -1)) * (D // HEADS) ** 0.5
    expected = total / (total.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(mixer(x).y, expected.flatten(2), rtol=1e-9, atol=1e-9)
