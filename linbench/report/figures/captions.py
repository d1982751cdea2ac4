"""What stands below figures of comparisons: what is drawn, and what a reader might take it for that it is
not."""

from linbench.common.text import counted
from linbench.report.figures import FIGURES, OVER_ALL
from linbench.report.figures.curves import slice_words
from linbench.report.tables.comparison import setting
from linbench.results.comparison import Comparison, laws_said
from linbench.results.slices import slices

OF_TESTS = ("lengths", *OVER_ALL)
"""Figures in which a number is of a whole test."""

OF_DIVERGED = ("distance", "overwrites", "slices", *OF_TESTS)
"""Figures that do not say in any case what a run that diverged counts as, and draw it."""


def words(comparison: Comparison, name: str, *, settings: bool = True) -> str:
    """What a figure shows: its caption, without the hash; without the `settings` what is drawn alone."""
    parts = [
        FIGURES[name].__doc__ or "",
        over_answers(comparison) if name in OF_TESTS else "",
        of_diverged(comparison) if name in OF_DIVERGED else "",
        laws_said(comparison.rows),
        setting(comparison) if settings else "",
    ]
    return " ".join(" ".join(parts).split())


def over_answers(comparison: Comparison) -> str:
    """Of what answers an accuracy is the mean, by the slices that they have; nothing where these do not tell
    them apart."""
    found = next((one for result in comparison.results if (one := slices(result))), {})
    of_accuracy = {
        name: zip(one["at"], one["accuracy"]["weight"], strict=True)
        for name, one in found.items()
        if "accuracy" in one
    }
    ranges = {name: [at for at, weight in each if weight > 0] for name, each in of_accuracy.items()}
    said = [
        f"{slice_words(comparison.task, name)}, from {at[0]:,} to {at[-1]:,}"
        for name, at in ranges.items()
        if len(at) > 1
    ]
    if not said:
        return ""
    return (
        f"An accuracy is the mean over all answers of a test alike ({'; '.join(said)}): right at some and at"
        " chance at others stands in between."
    )


def of_diverged(comparison: Comparison) -> str:
    """What runs that diverged count as, if any did."""
    count = sum(result["status"] == "diverged" for result in comparison.results)
    return (
        f"{counted(count, 'run')} diverged, which counts as chance in accuracy and nowhere else."
        if count
        else ""
    )
