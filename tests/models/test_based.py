"""Based and ReBased: their weights as formulas of scores, and what follows from them."""

import math

import pytest
import torch
from torch import Tensor

from linbench.models.based import Based, Taylor
from linbench.models.blocks.feature_maps import FeatureMap, squares
from linbench.models.rebased import Quadratic, ReBased
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T, HEAD = 37, D // HEADS
DIMS = (1, 2, 5, 16)


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def pair(dim: int, generator: torch.Generator) -> Tensor:
    return torch.randn(2, 9, dim, dtype=torch.float64, generator=generator)


def inner(phi: FeatureMap, q: Tensor, k: Tensor) -> Tensor:
    of_q, of_k = phi(q[:, None], k[:, None])
    assert of_q.shape == of_k.shape == (len(q), 1, phi.width)
    return (of_q * of_k).sum(dim=-1)[:, 0]


@pytest.mark.parametrize("dim", DIMS)
def test_squares_make_the_square_of_the_inner_product(dim: int, generator: torch.Generator) -> None:
    q, k = pair(dim, generator)
    assert squares(q).shape == (9, dim * (dim + 1) // 2)
    torch.testing.assert_close((squares(q) * squares(k)).sum(dim=-1), (q * k).sum(dim=-1).square())


@pytest.mark.parametrize("dim", DIMS)
def test_the_taylor_maps_inner_product_is_the_series_of_the_score(
    dim: int, generator: torch.Generator
) -> None:
    q, k = pair(dim, generator)
    s = (q * k).sum(dim=-1) / math.sqrt(dim)
    torch.testing.assert_close(inner(Taylor(dim), q, k), 1 + s + s.square() / 2)


@torch.no_grad()
@pytest.mark.parametrize("dim", DIMS)
def test_rebaseds_inner_product_is_the_square_of_the_normed_score(
    dim: int, generator: torch.Generator, randomise: Randomise
) -> None:
    phi = randomise(Quadratic(dim).double())
    q, k = given = pair(dim, generator)
    centred = given - given.mean(dim=-1, keepdim=True)
    normed = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    of_q, of_k = phi.gamma * normed + phi.shift
    torch.testing.assert_close(inner(phi, q, k), (of_q * of_k).sum(dim=-1).square() / dim)


@torch.no_grad()
@pytest.mark.parametrize("cls", [Based, ReBased])
def test_layers_are_the_weighted_means_of_their_values(
    cls: type[Based], x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build_mixer(cls, feature_dim=5))
    q, k, v = (
        part.unflatten(-1, (HEADS, -1))
        for part in (x @ mixer.project.linear.weight.T).split([HEADS * 5, HEADS * 5, D], dim=-1)
    )
    if cls is Based:
        s = torch.einsum("bihf,bjhf->bhij", q, k) / 5**0.5
        weights = 1 + s + s.square() / 2
    else:
        phi = mixer.project.feature_map
        q, k = (torch.nn.functional.layer_norm(part, (5,)) * phi.gamma + phi.shift for part in (q, k))
        weights = torch.einsum("bihf,bjhf->bhij", q, k).square() / 5
    weights = weights.tril()
    weights = weights / (weights.sum(dim=-1, keepdim=True) + (1e-6 if cls is Based else 1e-5))
    o = torch.einsum("bhij,bjhv->bihv", weights, v).flatten(2)
    assert relative_error(mixer(x).y, o @ mixer.readout.linear.weight.T) < 1e-10


@torch.no_grad()
def test_based_without_scores_is_the_running_mean(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build_mixer(Based))
    mixer.project.linear.weight[: HEADS * 16].zero_()
    v = x @ mixer.project.linear.weight[-D:].T
    mean = v.cumsum(dim=1) / torch.arange(1, T + 1)[:, None]
    assert relative_error(mixer(x).y, mean @ mixer.readout.linear.weight.T) < 1e-5  # the 1e-6 beside 1


@torch.no_grad()
def test_rebased_does_not_know_the_sign_of_gamma(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build_mixer(ReBased))
    shift = mixer.project.feature_map.shift
    moved = mixer(x).y
    shift.zero_()
    expected = mixer(x).y
    assert relative_error(moved, expected) > 1e-3
    mixer.project.feature_map.gamma.neg_()
    assert relative_error(mixer(x).y, expected) < 1e-12


@pytest.mark.parametrize("cls", [Based, ReBased])
def test_keys_are_small_in_either_form_and_however_wide_values_are(cls: type[Based]) -> None:
    rows = cls(cls.Settings(), build_mixer(cls).layer).memory_shape[1]
    assert rows == (153 if cls is Based else 136)
    for settings in (cls.controlled, {"expand_k": 0.5}, {"expand_v": 2.0}):
        mixer = build_mixer(cls, **(settings or {}))
        assert mixer.memory_shape[1] == rows
        assert mixer.project.widths[:2] == [HEADS * 16] * 2
