from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks import regression
from linbench.tasks.base import Batch, Prediction
from linbench.tasks.blocks.estimators import averaging, least_mean_squares, ridge
from linbench.tasks.regression import Regression
from tests.helpers.tasks import assert_refused, build_task, sample

ALPHA = 1e-3
N = 4000
Probability = Callable[..., float]


build = partial(build_task, Regression)


def scores(task: Regression, batch: Batch, answers: Tensor) -> dict[str, Tensor]:
    found = task.score(batch, Prediction(answers.view_as(batch.targets), torch.zeros(batch.positions.shape)))
    return {name: value / weight for name, (value, weight) in found.items()}


def normal(chi_squared: Probability, x: Tensor) -> bool:
    """Return whether x is N(0, 1): counts in 20 intervals of equal probability are alike."""
    share = (0.5 * (1 + torch.erf(x.double().flatten() / 2**0.5)) * 20).long().clamp(max=19)
    return chi_squared(share.bincount(minlength=20), torch.full((20,), x.numel() / 20)) > ALPHA


def test_a_token_asks_and_the_next_one_tells() -> None:
    task = build(dimension=3, points=4)
    batch = sample(task, 5)
    asks, tells = batch.inputs[:, ::2], batch.inputs[:, 1::2]
    assert task.io == IO(None, None, d_in=5, d_out=1)
    assert torch.equal(asks[:, :, :3], tells[:, :, :3])
    assert torch.equal(asks[:, :, 3:], torch.tensor([0.0, 1.0]).expand(5, 4, 2))
    assert torch.equal(tells[:, :, 3], batch.targets[:, :, 0])
    assert not tells[:, :, 4].any()
    assert batch.positions.tolist() == 5 * [[0, 2, 4, 6]]
    assert batch.slices["place"].tolist() == 5 * [[0, 1, 2, 3]]


def test_published_tokens_hold_a_point_or_its_value() -> None:
    task = build(dimension=3, points=4, tokens="published")
    batch, paired = sample(task, 5), sample(build(dimension=3, points=4), 5)
    assert task.io == IO(None, None, d_in=3, d_out=1)
    assert torch.equal(batch.inputs[:, ::2], paired.inputs[:, ::2, :3])
    assert torch.equal(batch.inputs[:, 1::2, :1], batch.targets)
    assert not batch.inputs[:, 1::2, 1:].any()
    assert torch.equal(batch.targets, paired.targets)
    assert torch.equal(task.solve(batch), build(dimension=3, points=4).solve(paired))
    one = build(dimension=1, points=3, tokens="published")
    assert sample(one, 2).inputs.shape == (2, 6, 1)


def test_points_weights_and_noise_are_standard_normal(chi_squared: Probability) -> None:
    task = build(dimension=4, points=6)
    told = task.observations(sample(task, N))
    assert normal(chi_squared, told.x[:, 2, 1])
    weights = torch.linalg.solve(told.x[:, :4], 2 * told.y[:, :4, None])[:, :, 0]  # y = w . x / 2
    assert normal(chi_squared, weights[:, 0])
    assert normal(chi_squared, weights[:, 3])
    assert torch.allclose((told.x[:, 5] * weights).sum(dim=1) / 2, told.y[:, 5], atol=1e-2)
    noisy = build(dimension=4, points=6, noise=0.5)
    noise = noisy.observations(sample(noisy, N)).y - told.y
    assert normal(chi_squared, noise[:, 1] * 2 / 0.5)
    assert abs(float((noise[:, 1] * noise[:, 2]).mean())) < 4 * 0.25**2 / N**0.5


def test_a_condition_stretches_points_along_axes_turned_at_random() -> None:
    task = build(dimension=4, points=4000, condition=100.0)
    x = task.observations(sample(task, 60)).x
    covariance = x.mT @ x / 4000
    variances, axes = torch.linalg.eigh(covariance)
    expected = 100.0 ** (torch.arange(4) / 3 - 1)
    expected = 4 * expected / expected.sum()
    assert torch.allclose(variances.mean(dim=0), expected.double(), rtol=0.03)
    # a direction of unit length has squares of mean 1 / d, and of variance 2 (d - 1) / (d^2 (d + 2))
    first = axes[:, :, -1].square()
    assert (first.mean(dim=0) - 1 / 4).abs().max() < 4 * (6 / (16 * 6) / 60) ** 0.5


def test_axes_are_turned_uniformly(chi_squared: Probability) -> None:
    """Nearly all variance lies on one axis, or all but one.

    Then a point's direction is that axis, or two points are at right angles to the axis of least variance.
    Each coordinate of a random direction in three dimensions is uniform in [-1, 1].
    """
    task = build(dimension=3, points=2, condition=1e8)
    x = task.observations(sample(task, N)).x
    for axis in (x[:, 0], torch.linalg.cross(x[:, 0], x[:, 1])):
        for coordinate in (axis / axis.norm(dim=1, keepdim=True)).unbind(1):
            counts = ((coordinate + 1) * 10).long().clamp(max=19).bincount(minlength=20)
            assert chi_squared(counts, torch.full((20,), N / 20)) > ALPHA


def test_drift_changes_the_function_in_the_middle() -> None:
    still, task = build(dimension=2, points=7), build(dimension=2, points=7, drift=True)
    a, b = still.observations(sample(still, 50)), task.observations(sample(task, 50))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y[:, :3], b.y[:, :3])
    weights = torch.linalg.solve(b.x[:, 3:5], b.y[:, 3:5])
    assert torch.allclose((b.x[:, 6] * weights).sum(dim=1), b.y[:, 6], atol=1e-2)
    assert (a.y[:, 3:] != b.y[:, 3:]).all()


def test_without_noise_the_solver_is_exact_from_as_many_points_as_dimensions() -> None:
    task = build(dimension=5, points=9)
    batch = sample(task, 400)
    mse = scores(task, batch, task.solve(batch))["mse/place"]
    assert (mse[6:] < 1e-6).all()
    left = 1 - torch.arange(5) / 5  # the share of w that the points before do not show
    assert torch.allclose(mse[:5], left.double(), atol=0.17)
    assert task.optimum() == pytest.approx(1 - 3 / 9)  # 1 - (d + 1) / (2 N)


@pytest.mark.parametrize(
    ("which", "expected"), [("quick", 1 - 4.5 / 32), ("garg-20-41", 1 - 10.5 / 41), ("drift", 1 - 9 / 32)]
)
def test_without_noise_the_optimum_is_exact(which: str, expected: float) -> None:
    task = build(**Regression.presets[which].task)
    assert task.optimum() == pytest.approx(expected, abs=1e-12)
    assert task.optimum_places == 4


@pytest.mark.parametrize(
    "values",
    [
        {"points": 3, "drift": True},
        {"dimension": 1, "points": 2},
        {"dimension": 6, "points": 5},
        {"dimension": 3, "points": 21, "drift": True},
    ],
)
def test_the_exact_optimum_is_that_of_simulated_points(values: dict[str, Any]) -> None:
    """A hair of noise, with which there is no closed form, changes it by next to nothing."""
    exact, simulated = build(**values), build(**values, noise=1e-4)
    assert simulated.optimum() == pytest.approx(exact.optimum(), abs=2e-3)
    assert simulated.optimum() != exact.optimum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [{"noise": 1.0}, {"condition": 100.0}, {"dimension": 2, "points": 3, "noise": 0.5, "drift": True}],
)
def test_an_estimated_optimum_is_as_good_as_its_places(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second estimate from eight times as many sequences agrees in all of them."""
    task = build(**values)
    first, places = task.optimum(), task.optimum_places
    assert 1 <= places < 4
    monkeypatch.setattr(regression, "SEQUENCES", 8 * regression.SEQUENCES)
    regression._optimum.cache_clear()
    try:
        assert abs(task.optimum() - first) < 10.0**-places
        assert task.optimum() != first
    finally:
        regression._optimum.cache_clear()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"noise": 1.0},
        {"condition": 100.0},
        {"drift": True},
        {"noise": 0.25, "condition": 10.0, "drift": True},
        {"dimension": 1, "noise": 1.0},
    ],
)
def test_no_estimator_beats_the_solver(values: dict[str, Any]) -> None:
    task = build(**{"dimension": 4, "points": 12, **values})
    batch = sample(task, 1500)
    told, best = task.observations(batch), scores(task, batch, task.solve(batch))
    assert float(best["accuracy"]) == pytest.approx(task.optimum(), abs=0.02)
    others = [
        averaging(told),
        least_mean_squares(told),
        least_mean_squares(told, beta=0.5),
        ridge(told, penalty=0.1),
        ridge(told, penalty=3.0),
    ]
    for answers in others:
        found = scores(task, batch, answers)
        assert found["accuracy"] < best["accuracy"] + 1e-9
        assert found["mse"] > best["mse"] - 1e-9


def test_zero_explains_nothing_and_errs_by_one() -> None:
    task = build()
    batch = sample(task, 1000)
    found = scores(task, batch, torch.zeros_like(batch.targets))
    assert float(found["accuracy"]) == task.chance() == 0
    assert float(found["mse"]) == pytest.approx(1, abs=0.05)


def errors(**values: Any) -> dict[str, Tensor]:
    """Mean squared errors of all baselines by place, without their settings in their names."""
    task = build(**values)
    batch = sample(task, 300)
    return {
        name.partition(", penalty")[0]: scores(task, batch, found.answers)["mse/place"]
        for name, found in task.baselines(batch).items()
    }


def test_unequal_variances_part_one_pass_from_least_squares() -> None:
    last = {name: float(mse[-1]) for name, mse in errors(condition=100.0).items()}
    one_pass, half_pass = last["least mean squares, beta 1"], last["least mean squares, beta 0.5"]
    assert last["averaging"] > 10 * one_pass > 1000 * last["least squares"]
    assert last["3 nearest points"] > half_pass


def test_what_never_forgets_loses_its_lead_when_the_function_drifts() -> None:
    """Least squares errs no more than one pass until the function changes, and more at the end."""
    of = errors(drift=True)
    one_pass, least_squares = of["least mean squares, beta 1"], of["least squares"]
    assert (least_squares[1:16] < one_pass[1:16] + 1e-6).all()
    assert float(least_squares[-1]) > 2 * float(one_pass[-1])
    assert (of["averaging"][16:] > least_squares[16:]).all()


def test_least_squares_knows_how_strong_the_noise_is() -> None:
    task = build(noise=0.5)
    batch = sample(task, 20)
    assert torch.equal(task.baselines(batch)["least squares, penalty 0.25"].answers, task.solve(batch))


def test_more_points_are_told_where_sequences_are_longer() -> None:
    task = build(points=5)
    assert task.longer(3) == {"points": 15}
    assert (task.seq_len, task.answers, task.slice_sizes()) == (10, 5, {"place": 5})


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"points": 2, "drift": True}, "drift 2 points 3"),
        ({"dimension": 1, "condition": 10.0}, "points dimension condition 1 10"),
        ({"condition": 0.5}, "condition 0.5 1"),
        ({"noise": -1}, "noise 1 0"),
        ({"points": 1}, "points 1 2"),
        ({"tokens": "both"}, "tokens"),
        ({"sigma": 1}, "condition dimension drift noise points tokens"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Regression, values, facts)


def test_explain_shows_points_and_values() -> None:
    task = build(points=6, drift=True)
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    for place in (0, 1, 5):
        assert (
            f"at position {2 * place} stands the point ({float(batch.inputs[1, 2 * place, 0]):.2f}, " in text
        )
        assert f"the answer there is {float(batch.targets[1, place, 0]):.3f} " in text
    (changed,) = (sentence for sentence in text.split(". ") if "another function" in sentence)
    assert "From point 3 on" in changed
    assert "another function" not in build().explain(sample(build(), 1), 0)
