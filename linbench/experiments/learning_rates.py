"""The grid of learning rates and the settings of its search."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.experiments.protocol import suite_block


class SearchSettings(Settings):
    """Defaults stand in `experiments/protocols.yaml`."""

    lowest: int = Field(
        ge=-40, le=12, description="the grid's first rate, as a number of half decades: -8 is 1e-4"
    )
    rates: int = Field(ge=5, le=52, description="rates on the grid, half a decade apart")
    extensions: int = Field(ge=0, le=52, description="rates added at most where the best lies on the edge")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        min_length=1, max_length=64, description="tuning seeds; none of them is reported"
    )
    ties: Literal["loss", "upper"] = Field(
        "loss",
        description=(
            "of rates of one accuracy: loss, that of the lowest validation loss, then the lower of the"
            " middle; upper, the upper of the middle"
        ),
    )

    @model_validator(mode="after")
    def _distinct(self) -> "SearchSettings":
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("tuning seeds must differ")
        if self.lowest - self.extensions < -40 or self.lowest + self.rates - 1 + self.extensions > 12:
            raise ValueError("rates lie between 1e-20 and 1e6, those that extensions add among them")
        return self

    @property
    def grid(self) -> list[int]:
        """Half decades."""
        return list(range(self.lowest, self.lowest + self.rates))


def default_search() -> SearchSettings:
    """As it stands in the suite."""
    return SearchSettings.parse(suite_block("search"), where="search")


def learning_rate(half_decades: int) -> float:
    """10^(n/2) to three digits: 0.001, 0.00316, 0.01, ..."""
    return float(f"{10 ** (half_decades / 2):.3g}")


def refuse_rate(*given: Mapping[str, Any]) -> None:
    """What a user gives, by dotted names, beside a search. Raises UserError: a learning rate is among it."""
    for settings in given:
        if "protocol.lr" in settings:
            raise UserError(
                f"protocol.lr = {settings['protocol.lr']}: the learning rate is searched for; give one of the"
                " two."
            )
