"""Update rules on linear regression: each is its recurrence, and streams are what they are said to be."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.kernels.fast_weight.mini_batch import orthogonalise
from linbench.kernels.least_squares import least_squares
from linbench.verify import regression as rules
from linbench.verify.regression import MINI_BATCH, NOISE, RULES, Streams, draw, regression
from linbench.verify.update_rules import Trials

DIM, KEEP, RATE, MOMENTUM = 4, 0.9, 0.7, 0.5
SMALL = draw(Trials(3, DIM), condition=10.0, drift=0.1)

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function from the memory after its decay, a key and a value to the memory after a token."""


def constants(**values: float) -> dict[str, Tensor]:
    """Return constants as rules take them: what is asked for, and a second combination that differs."""
    return {name: torch.tensor([value, 0.8 * value], dtype=torch.float64) for name, value in values.items()}


def looped(streams: Streams, step: Step) -> Tensor:
    """Return what a memory reads that decays and takes a step with every token: [B, Q, V]."""
    readings = []
    for k, v, q in zip(streams.k, streams.v, streams.q, strict=True):
        memory = torch.zeros(k.shape[1], v.shape[1], dtype=k.dtype)
        for key, value in zip(k, v, strict=True):
            memory = step(KEEP * memory, key, value)
        readings.append(q @ memory)
    return torch.stack(readings)


def correction(memory: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.outer(key, value - memory.T @ key)


def same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-10)


def test_averaging_is_a_decayed_sum() -> None:
    read = RULES["averaging"].read(SMALL, constants(keep=KEEP))
    assert same(read[:, 0], looped(SMALL, lambda memory, k, v: memory + torch.outer(k, v)))


def test_one_step_is_the_delta_rule() -> None:
    read = RULES["one step"].read(SMALL, constants(keep=KEEP, rate=RATE))
    assert same(read[:, 0], looped(SMALL, lambda memory, k, v: memory + RATE * correction(memory, k, v)))


def test_momentum_makes_a_part_of_the_last_change_again() -> None:
    read = RULES["one step, momentum"].read(SMALL, constants(keep=KEEP, rate=RATE, momentum=MOMENTUM))
    for row in range(3):
        memory, change = torch.zeros(2, DIM, rules.VALUE_DIMENSIONS, dtype=torch.float64)
        for k, v in zip(SMALL.k[row], SMALL.v[row], strict=True):
            change = MOMENTUM * change + RATE * (1 - MOMENTUM) * correction(memory, k, v)
            memory = KEEP * memory + change
        assert same(read[row, 0], SMALL.q[row] @ memory)


@pytest.mark.parametrize("along_axes", [False, True])
def test_a_preconditioned_step_divides_the_write_key_by_mean_squares(along_axes: bool) -> None:
    name = "one step, preconditioned" + " along axes" * along_axes
    read = RULES[name].read(SMALL, constants(keep=KEEP, rate=RATE))
    for row in range(3):
        axes = SMALL.axes[row] if along_axes else torch.eye(DIM, dtype=torch.float64)
        memory, squares = (
            torch.zeros(DIM, rules.VALUE_DIMENSIONS).double(),
            torch.full((DIM,), 1 / DIM).double(),
        )
        for t, (k, v) in enumerate(zip(SMALL.k[row] @ axes, SMALL.v[row], strict=True)):
            squares = squares + k.square()
            memory = KEEP * memory
            write = k / (DIM * squares / (t + 2))
            memory = memory + RATE * torch.outer(write, v - memory.T @ k)
        assert same(read[row, 0], SMALL.q[row] @ axes @ memory)


def test_a_newton_schulz_step_has_columns_of_one_length() -> None:
    length = 0.25
    read = RULES["Newton-Schulz"].read(SMALL, constants(keep=KEEP, length=length, momentum=MOMENTUM))
    for row in range(3):
        memory, change = torch.zeros(2, DIM, rules.VALUE_DIMENSIONS, dtype=torch.float64)
        for start in range(0, SMALL.k.shape[1], MINI_BATCH):
            k, v = SMALL.k[row, start : start + MINI_BATCH], SMALL.v[row, start : start + MINI_BATCH]
            change = MOMENTUM * change + k.T @ (v - k @ memory) / length
            memory = KEEP**MINI_BATCH * memory + length * orthogonalise(change, rules.NEWTON_SCHULZ)
        assert same(read[row, 0], SMALL.q[row] @ memory)


def test_exact_is_what_the_kernel_solves_exactly_and_what_conjugate_gradients_reach() -> None:
    at = constants(keep=KEEP, ridge=0.1)
    exact = RULES["exact"].read(SMALL, at)
    assert same(RULES["CG, 30 steps"].read(SMALL, at), exact)
    assert not same(RULES["CG, 1 step"].read(SMALL, at), exact)
    tokens, reads = SMALL.k.shape[1], SMALL.q.shape[1]
    log_decay = torch.tensor([math.log(KEEP)] * tokens + [0.0] * reads, dtype=torch.float64)
    read, _ = least_squares(
        torch.cat([torch.zeros_like(SMALL.k), SMALL.q], dim=1)[:, :, None],
        torch.cat([SMALL.k, torch.zeros_like(SMALL.q)], dim=1)[:, :, None],
        torch.cat([SMALL.v, torch.zeros_like(SMALL.y)], dim=1)[:, :, None],
        log_decay=log_decay[:, None],
        ridge=0.1,
        method="exact",
    )
    assert same(exact[:, 0], read[:, tokens:, 0])


def test_one_step_of_conjugate_gradients_is_a_sum_whose_scale_depends_on_the_query() -> None:
    at = constants(keep=KEEP, ridge=0.1)
    ratio = RULES["CG, 1 step"].read(SMALL, at) / RULES["averaging"].read(SMALL, at)
    assert same(ratio, ratio[..., :1].expand_as(ratio))
    assert not same(ratio, ratio[:, :, :1].expand_as(ratio))


def test_keys_have_the_condition_number_and_length_that_are_asked_for() -> None:
    streams = draw(Trials(400, 3), condition=100.0, drift=0.0)
    k = streams.k @ streams.axes
    variances = k.square().mean(dim=(0, 1))
    assert float(variances.sum()) == pytest.approx(1, rel=0.05)
    assert (variances / variances[0]).tolist() == pytest.approx([1, 0.1, 0.01], rel=0.1)
    eye = torch.eye(3, dtype=torch.float64)
    assert same(streams.axes @ streams.axes.mT, eye.expand(400, -1, -1))


def test_values_are_of_one_map_without_a_drift_and_of_the_last_one_with_it() -> None:
    still = draw(Trials(50, 4), condition=1.0, drift=0.0)
    found = torch.linalg.lstsq(still.q, still.y).solution
    assert float((still.v - still.k @ found).std()) == pytest.approx(NOISE, rel=0.05)
    moving = draw(Trials(50, 4), condition=1.0, drift=0.3)
    found = torch.linalg.lstsq(moving.q, moving.y).solution
    wrong = (moving.v - moving.k @ found).square().mean(dim=(0, 2))
    assert float(wrong[-1]) == pytest.approx(NOISE**2, rel=0.5)
    assert float(wrong[:4].mean()) == pytest.approx(2, rel=0.3), "nothing is left of the first map"


def test_constants_are_chosen_on_streams_that_are_not_scored() -> None:
    choosing, scored = draw(Trials(8, DIM), condition=1.0, drift=0.0).parted()
    assert (len(choosing.k), len(scored.k)) == (2, 6)
    rule = RULES["one step"]
    row = rules._score(rule, choosing, scored)
    grid = rule.grid(scored.k)
    each = rules._errors(rule.read(choosing, grid), choosing.y)
    best = int(each.argmin())
    assert {name: row[name] for name in grid} == {name: float(values[best]) for name, values in grid.items()}
    assert row["error"] == pytest.approx(float(rules._errors(rule.read(scored, grid), scored.y)[best]))


def test_averaging_is_scaled_as_well_as_can_be() -> None:
    read, y = RULES["averaging"].read(SMALL, constants(keep=KEEP)), SMALL.y
    factor = rules._factors(read, y)

    def error(change: float) -> Tensor:
        return rules._errors(change * factor[:, None, None] * read, y)

    assert (error(1.0) < error(1.01)).all()
    assert (error(1.0) < error(0.99)).all()


def test_a_rule_that_diverged_is_never_chosen() -> None:
    read = torch.tensor([math.nan, math.inf, 0.0])[None, :, None, None]
    assert rules._errors(read, torch.ones(1, 1, 1)).tolist() == [math.inf, math.inf, 1.0]


def test_better_optimisers_err_less_where_nothing_drifts() -> None:
    names = ["averaging", "one step", "exact"]
    rows = regression(names, conditions=[10.0], drifts=[], trials=Trials(12, 8))
    errors = [row["error"] for row in rows]
    assert [row["rule"] for row in rows] == names
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 3 * errors[-1]


def test_a_condition_that_is_a_setting_of_both_panels_is_run_once() -> None:
    rows = regression(["averaging"], conditions=[1.0, 10.0], drifts=[0.0, 0.1], trials=Trials(2, 2))
    assert [(row["condition"], row["drift"]) for row in rows] == [(1, 0), (10, 0), (10, 0.1)]


def test_one_stream_is_too_few() -> None:
    with pytest.raises(UserError, match="at least 2 trials"):
        regression(trials=Trials(1))


@pytest.mark.gpu
@pytest.mark.parametrize("name", RULES)
def test_a_gpu_errs_as_much(name: str) -> None:
    here, there = (
        regression([name], conditions=[10.0], drifts=[], trials=Trials(8, device=device, dtype=torch.float32))
        for device in ("cpu", "cuda")
    )
    assert there[0]["error"] == pytest.approx(here[0]["error"], rel=0.03)
