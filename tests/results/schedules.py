"""The tables of decision 11, from the stored scores beside it.

`python -m tests.pages.blocks` writes them into docs/decisions/0011-ladders.md. The scores were measured
by `linbench sweep docs/decisions/0011-schedules.yaml --workers 4` and `linbench sweep
docs/decisions/0011-mixture.yaml`, and kept as columns of `linbench.load(folder)`, those of ladders with the
number of their rung and how they ended. The curves of long runs are the field
`curve` of results of `linbench run`, whose command the page has.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from scipy import stats

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
SCORES, RUNGS = FOLDER / "0011-schedules.csv.xz", FOLDER / "0011-mixture.csv.xz"
CURVES = FOLDER / "0011-plateaus.csv.xz"
MOST_RUNGS = 3
"""Rungs that the table of ladders shows: of higher ones the campaign ran too few."""


def load_scores() -> pd.DataFrame:
    """Return a row for each of the runs."""
    return pd.read_csv(SCORES)


class Gain(NamedTuple):
    """A mean gain of one setting over another, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return it as the table shows it."""
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def gain(scores: pd.DataFrame, setting: str, usual: str, other: str) -> Gain:
    """Return the gain of `other` over `usual`, paired by seed.

    A seed's gain is the mean over learning rates and whatever else differs.
    """
    pairs = scores.pivot_table(
        index=["seed", "protocol.lr", "protocol.precision", "protocol.schedule"],
        values="accuracy",
    ).unstack(setting)["accuracy"]
    of_seeds = (pairs[other] - pairs[usual]).groupby("seed").mean()
    low, high = stats.ttest_1samp(of_seeds, 0).confidence_interval()
    return Gain(float(of_seeds.mean()), float(low), float(high))


def gains(setting: str, usual: str, other: str) -> list[Gain]:
    """Return the gain for each task and variant, in the order of the table."""
    return [gain(own, setting, usual, other) for _, own in load_scores().groupby(["task", "model"])]


def table() -> str:
    """Return the table in Markdown: for each task and variant what wsd and bf16 gain."""
    lines = [
        "| task | variant | cosine, fp32 | wsd, fp32 | wsd, bf16 | wsd less cosine | bf16 less fp32 |",
        "|---|---|---|---|---|---|---|",
    ]
    for (task, model), own in load_scores().groupby(["task", "model"]):
        means = own.groupby(["protocol.schedule", "protocol.precision"])["accuracy"].mean()
        columns = [
            *(f"{means[at]:.3f}" for at in (("cosine", "fp32"), ("wsd", "fp32"), ("wsd", "bf16"))),
            str(gain(own, "protocol.schedule", "cosine", "wsd")),
            str(gain(own, "protocol.precision", "fp32", "bf16")),
        ]
        lines.append(f"| {task} | {model} | {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def ladder_table() -> str:
    """Return the table in Markdown: mean accuracy at each rung, an ended ladder counted as it ended."""
    lines = [
        "| trained on | variant | 1x | 2x | 4x | at the optimum | flat | not ended |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (training, model), own in pd.read_csv(RUNGS).groupby(["training", "model"]):
        by_rung = own.pivot_table(index="seed", columns="rung", values="accuracy")
        ended = own.dropna(subset="ended").set_index("seed")["ended"]
        reached = by_rung.reindex(columns=range(1, MOST_RUNGS + 1))
        reached.loc[ended.index] = reached.loc[ended.index].ffill(axis=1)
        means = [
            "–" if reached[rung].isna().any() else f"{reached[rung].mean():.3f}"
            for rung in range(1, MOST_RUNGS + 1)
        ]
        counts = [int((ended == how).sum()) for how in ("optimum", "flat")]
        left = len(by_rung) - len(ended)
        lines.append(f"| {training} | {model} | {' | '.join(means)} | {counts[0]} | {counts[1]} | {left} |")
    return "\n".join(lines) + "\n"


BASE_TOKENS = 12_288_000
"""Tokens of the lowest rung of the long runs."""


def plateau_table() -> str:
    """Return the table in Markdown: seeds of a long training that have reached .9 by each budget."""
    budgets = [2**doublings for doublings in range(6)]
    lines = [
        f"| variant | {' | '.join(f'{times}x' for times in budgets)} | at the end |",
        f"|---|{'---|' * (len(budgets) + 1)}",
    ]
    for model, own in pd.read_csv(CURVES).groupby("model"):
        reached = [
            int((own[own["tokens"] <= times * BASE_TOKENS].groupby("seed")["accuracy"].max() >= 0.9).sum())
            for times in budgets
        ]
        tested = own.groupby("seed")["test_accuracy"].first()
        ends = f"{int((tested >= 0.9).sum())} of {len(tested)}, the others {', '.join(_low(tested))}"
        lines.append(f"| {model} | {' | '.join(map(str, reached))} | {ends.removesuffix(', the others ')} |")
    return "\n".join(lines) + "\n"


def _low(tested: "pd.Series[float]") -> list[str]:
    return [f"{value:.3f}" for value in sorted(tested) if value < 0.9]


TABLES = {"schedules": table, "ladders": ladder_table, "plateaus": plateau_table}
"""The functions that make the tables, by the names of their places in the page."""
