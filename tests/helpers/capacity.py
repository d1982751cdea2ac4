"""Results of recall at several numbers of pairs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linbench.results.comparison import Comparison, comparisons
from linbench.results.schema import Result

Make = Callable[..., Result]

CHANCE = 0.2
"""The chance level of every test."""


def recall_result(
    make: Make,
    label: str,
    recalls: Mapping[int, float],
    seed: int = 0,
    *,
    chances: Mapping[int, float] | None = None,
    **more: Any,
) -> Result:
    """Return a result with a test for each number of pairs.

    Args:
        make: the fixture `a_result`.
        label: of the model.
        recalls: by pairs the recall, which is accuracy scaled between chance and 1.
        seed: of the cell.
        chances: by pairs the chance level; default: `CHANCE` everywhere.
        more: other fields of the result.
    """
    levels = chances or dict.fromkeys(recalls, CHANCE)
    settings = [{"seq_len": 4 * pairs, "kv_pairs": pairs} for pairs in recalls]
    tests = [
        {
            "settings": own,
            "seq_len": own["seq_len"],
            "chance": levels[own["kv_pairs"]],
            "metrics": {"accuracy": levels[own["kv_pairs"]] + (1 - levels[own["kv_pairs"]]) * recall},
            "slices": {},
        }
        for own, recall in zip(settings, recalls.values(), strict=True)
    ]
    result = make(label, seed, tests=tests, **more)
    result["cell"]["task"]["test"] = [{"settings": own} for own in settings]
    return result


def compared(results: Sequence[Result]) -> Comparison:
    """Return the one comparison of some results."""
    (found,) = comparisons(results)
    return found
