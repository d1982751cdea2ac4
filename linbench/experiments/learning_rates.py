"""The grid of learning rates and the settings of the search on it.

Rates are numbered in quarter decades: 0 is 1, -1 is 0.562, -2 is 0.316. Those of the grid are the even ones.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from linbench.common.errors import UserError
from linbench.common.settings import ABSENT, Settings
from linbench.experiments.protocol import suite_block

HALF_DECADE = 2
"""The steps from a rate of the grid to the next, in quarter decades."""


class SearchSettings(Settings):
    """The settings of a search for learning rates. Defaults are in `experiments/protocols.yaml`."""

    lowest: int = Field(ge=-40, le=12, description="the grid's lowest rate, in half decades: -8 is 1e-4")
    rates: int = Field(ge=5, le=52, description="rates on the grid, half a decade apart")
    extensions: int = Field(
        ge=0, le=52, description="the most rates that are added if the best one is at the edge"
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        min_length=1, max_length=64, description="tuning seeds, which are never reported"
    )
    refine: bool = Field(
        True,
        description="whether the rates a quarter decade from the best of the grid are tried, too",
    )
    ties: Literal["loss", "upper"] = Field(
        "loss",
        description=(
            "which of several rates with equal accuracy is chosen; loss: that with the lowest validation"
            " loss, then the lower median; upper: the upper median"
        ),
    )

    halving: bool = Field(
        False,
        description=(
            "whether of rates on the lowest rung of a ladder the better half is tried on the next, and so on;"
            " without rungs there is nothing to halve"
        ),
        json_schema_extra={ABSENT: False},
    )

    @model_validator(mode="after")
    def _distinct(self) -> "SearchSettings":
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("tuning seeds must differ")
        if self.lowest - self.extensions < -40 or self.lowest + self.rates - 1 + self.extensions > 12:
            raise ValueError("rates must lie between 1e-20 and 1e6, also those that extensions add")
        return self

    @property
    def grid(self) -> list[int]:
        """The rates of the grid, numbered in quarter decades."""
        return [HALF_DECADE * n for n in range(self.lowest, self.lowest + self.rates)]


def default_search() -> SearchSettings:
    """Return the default search."""
    return SearchSettings.parse(suite_block("search"), where="search")


def learning_rate(quarter_decades: int) -> float:
    """Return 10^(n/4) to three digits: 0.001, 0.00178, 0.00316, 0.00562, 0.01, ..."""
    return float(f"{10 ** (quarter_decades / 4):.3g}")


def refuse_rate(*groups: Mapping[str, Any]) -> None:
    """Raise UserError if a learning rate is among settings that are given beside a search."""
    for settings in groups:
        if "protocol.lr" in settings:
            raise UserError(
                f"protocol.lr = {settings['protocol.lr']} is given, but the learning rate is also searched"
                " for; keep one of the two."
            )
