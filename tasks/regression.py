"""In-context linear regression."""

from functools import cache
from math import floor, log10
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction, Preset, Split, Task
from linbench.tasks.blocks.estimators import (
    Observations,
    averaging,
    least_mean_squares,
    nearest,
    ridge,
    running_moments,
)
from linbench.tasks.blocks.rotations import rotate
from linbench.tasks.random import Stream

ROUNDING = 1e-9
"""Smallest noise variance that the exact solver assumes: targets are rounded to float32."""

SEQUENCES = 4096
"""Number of sequences whose points the optimum is averaged over, where it has no closed form."""


class RegressionSettings(Settings):
    """Settings: one linear function per sequence, or two with drift."""

    dimension: int = Field(8, ge=1, description="of the points")
    points: int = Field(32, ge=2, description="points, each asked about before its value is told")
    noise: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description=(
            "standard deviation of the noise that is added to w . x, whose own standard deviation is"
            " sqrt(dimension)"
        ),
    )
    condition: float = Field(
        1.0,
        ge=1,
        description=(
            "largest over smallest variance of a point along its principal axes, which are drawn anew"
            " for every sequence"
        ),
    )
    drift: bool = Field(False, description="whether another function is drawn after half of the points")
    tokens: Literal["pair", "published"] = Field(
        "pair",
        description=(
            "pair: a token (x, 0, 1) asks, the next one (x, y, 0) tells; published: a token x, then a token"
            " (y, 0, ..., 0)"
        ),
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.dimension == 1 and self.condition != 1:
            raise ValueError(
                f"points of one dimension have one axis, so condition must be 1, not {self.condition:g}"
            )
        if self.drift and self.points == 2:
            raise ValueError(
                "with drift each of 2 points would be of another function, of which nothing was told, so"
                " points must be at least 3"
            )
        return self


class Regression(Task):
    """After some points and their values, what is the value of the linear function at this point?

    Every point is asked about first, then told with its value. A layer must fit a function to what it reads,
    through noise and with unequal variances; with drift it must also forget an old function. It does not tell
    whether a layer recalls anything exactly.

    Layout: points x and a weight vector w are standard normal, and the value is y = (w . x + noise) /
    sqrt(dimension), so that its variance is 1 without noise and the mean squared error is the published one
    over the dimension: guessing 0 has 1. "accuracy" is the share of the squares that is explained, by
    `place`, the number of points told before. Update rules of memories are estimators here: a sum averages,
    the delta rule is least mean squares in one pass, least squares is what MesaNet keeps; `linbench untrained
    regression` has the errors of these baselines.

    Chance: 0, by always naming zero, the mean of all values.

    Garg et al. 2022, arXiv:2208.01066; condition and drift are linbench's own. Dimension and points do not
    grow along training as in the published curriculum, and a token holds a point with its value unless
    `tokens` is published.
    """

    name = "regression"
    skill = "learn"
    Settings = RegressionSettings
    presets: ClassVar[dict[str, Preset]] = {
        "quick": Preset(
            "32 points of 8 dimensions, no noise: for a laptop", protocol={"tokens": 2_048_000, "lr": 3e-3}
        ),
        "noisy": Preset(
            "noise as strong as one of 8 dimensions: to fit every point is too much", task={"noise": 1.0}
        ),
        "ill-conditioned": Preset(
            "variances of the 8 axes from 1 to 100, which part one pass of least mean squares from least"
            " squares",
            task={"condition": 100.0},
        ),
        "drift": Preset(
            "another function from the middle on: what was fitted before is in the way", task={"drift": True}
        ),
        "garg-20-41": Preset(
            "as published, but for the curriculum: 41 points of 20 dimensions, their values in tokens of"
            " their own",
            task={"dimension": 20, "points": 41, "tokens": "published"},
            model={"layers": 12, "d_model": 256},
            protocol={"tokens": 500_000 * 64 * 82, "batch_size": 64, "lr": 1e-4},
        ),
    }

    settings: RegressionSettings

    @property
    def io(self) -> IO:
        """Vectors in, one number out."""
        return IO(None, None, d_in=self.settings.dimension + 2 * (self.settings.tokens == "pair"), d_out=1)

    @property
    def seq_len(self) -> int:
        """Two tokens for each point."""
        return 2 * self.settings.points

    @property
    def answers(self) -> int:
        """One per point."""
        return self.settings.points

    def chance(self) -> float:
        """Return 0: always naming zero, the mean of all values, explains none of their squares."""
        return 0.0

    def optimum(self) -> float:
        """Return the expected accuracy of the posterior mean, whose error depends on the points alone.

        Without noise n points determine n of `dimension` directions of w, which is a share of n / dimension
        of the next value's square where all variances are equal. Otherwise it is an average over the points
        of separate sequences.
        """
        return _optimum(self.settings).value

    @property
    def optimum_places(self) -> int:
        """The number of decimal places that four standard errors leave."""
        error = _optimum(self.settings).standard_error
        return (
            super().optimum_places
            if error == 0
            else max(1, min(super().optimum_places, floor(-log10(4 * error))))
        )

    def longer(self, times: int) -> dict[str, Any]:
        """Return settings with more points."""
        return {"points": times * self.settings.points}

    def slice_sizes(self) -> dict[str, int]:
        """Return the slices.

        place: number of points told before.
        """
        return {"place": self.settings.points}

    def sample(self, index: Tensor, *, seed: int | Tensor, split: Split) -> Batch:
        """Return examples, computed in float64 and rounded once, so that devices agree."""
        s = self.settings
        stream = Stream.of(index, seed=seed, split=split)
        x = self.draw_points(stream)
        w = stream.child("weights").normals(2 * s.dimension).double().view(-1, 2, 1, s.dimension)
        half = s.points // 2 if s.drift else s.points
        y = torch.cat([(x[:, :half] * w[:, 0]).sum(dim=2), (x[:, half:] * w[:, 1]).sum(dim=2)], dim=1)
        y = (y + s.noise * stream.child("noise").normals(s.points)) / s.dimension**0.5

        value, zero = y[:, :, None], torch.zeros_like(y)[:, :, None]
        if s.tokens == "pair":
            asks, tells = torch.cat([x, zero, zero + 1], dim=2), torch.cat([x, value, zero], dim=2)
        else:
            asks, tells = x, torch.cat([value, zero.expand(-1, -1, s.dimension - 1)], dim=2)
        place = torch.arange(s.points, device=index.device).expand(len(index), -1)
        return Batch(
            torch.stack([asks, tells], dim=2).flatten(1, 2).float(),
            2 * place,
            value.float(),
            {"place": place},
        )

    def draw_points(self, stream: Stream) -> Tensor:
        """Return points [B, points, dimension] of mean variance 1, in float64.

        Where variances differ, the axes are rotated at random.
        """
        s = self.settings
        x = stream.child("points").normals(s.points * s.dimension).double().view(-1, s.points, s.dimension)
        if s.condition == 1:
            return x
        x = x * self.variances(x.device).sqrt()
        axes = (
            stream.child("axes")
            .normals(s.dimension * s.dimension)
            .double()
            .view(-1, s.dimension, s.dimension)
        )
        return rotate(x, axes)

    def variances(self, device: torch.device) -> Tensor:
        """Return the variances [dimension] along the axes before they are rotated; 1 on average."""
        s = self.settings
        falling = s.condition ** (
            -torch.arange(s.dimension, dtype=torch.float64, device=device) / max(s.dimension - 1, 1)
        )
        return falling * s.dimension / falling.sum()

    def observations(self, batch: Batch) -> Observations:
        """Return the points and values that the tokens tell."""
        s = self.settings
        asks, tells = batch.inputs[:, ::2].double(), batch.inputs[:, 1::2].double()
        return Observations(asks[:, :, : s.dimension], tells[:, :, s.dimension if s.tokens == "pair" else 0])

    def solve(self, batch: Batch) -> Tensor:
        """Return the posterior mean: ridge regression with the noise's variance as penalty.

        It uses what was told since the function last changed.
        """
        s = self.settings
        return ridge(self.observations(batch), penalty=self.penalty, anew=s.points // 2 if s.drift else None)[
            :, :, None
        ].float()

    @property
    def penalty(self) -> float:
        """Variance of the noise, at least that of rounding."""
        return max(self.settings.noise**2, ROUNDING)

    def baselines(self, batch: Batch) -> dict[str, Prediction]:
        """Return update rules of memories as estimators, and the nearest points; none knows of a drift."""
        told = self.observations(batch)
        found = {
            "averaging": averaging(told),
            **{
                f"least mean squares, beta {beta:g}": least_mean_squares(told, beta=beta)
                for beta in (1.0, 0.5)
            },
            f"least squares, penalty {self.penalty:g}": ridge(told, penalty=self.penalty),
            "3 nearest points": nearest(told, count=3),
        }
        return {
            name: Prediction(answers[:, :, None].float(), torch.zeros_like(answers))
            for name, answers in found.items()
        }

    def explain(self, batch: Batch, row: int) -> str:
        """Return the first points and the last."""
        s, (x, y) = self.settings, self.observations(batch)
        shown = [n for n in range(s.points) if n < 2 or n == s.points - 1]
        points = "; ".join(
            f"at position {2 * n} stands the point"
            f" ({', '.join(f'{v:.2f}' for v in x[row, n, :6].tolist())}{', ...' * (s.dimension > 6)}), the"
            f" answer there is {float(y[row, n]):.3f} and stands in the next token"
            for n in shown
        )
        change = f" From point {s.points // 2} on it is another function." * s.drift
        return (
            f"A linear function of {s.dimension} numbers is told at {s.points} points, of which a few are:"
            f" {points}.{change}"
        )


class _Optimum(NamedTuple):
    """standard_error: 0 where the value is exact."""

    value: float
    standard_error: float


@cache
def _optimum(settings: RegressionSettings) -> _Optimum:
    points, dimension = settings.points, settings.dimension
    if settings.noise == 0 and settings.condition == 1:
        half = points // 2 if settings.drift else 0
        told = sum(min(n, dimension) for since in (half, points - half) for n in range(since))
        return _Optimum(told / (points * dimension), 0.0)
    task = Regression(settings)
    penalty, variances = task.penalty, task.variances(torch.device("cpu"))
    normals = (
        Stream.of(torch.arange(SEQUENCES), seed=0, split="optimum")
        .child("points")
        .normals(points * dimension)
    )
    # how axes are turned changes no error
    x = normals.double().view(-1, points, dimension) * variances.sqrt()
    left = torch.zeros_like(x[:, 0, 0])
    for _, gram, _ in running_moments(
        Observations(x, torch.zeros_like(x[:, :, 0])), points // 2 if settings.drift else None
    ):
        factor = torch.linalg.cholesky(gram + penalty * torch.eye(dimension, dtype=torch.float64))
        # of w's posterior, at the next point
        left += penalty * (torch.cholesky_inverse(factor).diagonal(dim1=1, dim2=2) * variances).sum(dim=1)
    explained = (1 - left / (points * dimension)) / (1 + settings.noise**2 / dimension)
    return _Optimum(float(explained.mean()), float(explained.std()) / SEQUENCES**0.5)
