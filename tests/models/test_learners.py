"""Declarations of variants as online learners."""

import pytest

from linbench.experiments.registry import SHIPPED, Entry, registry
from linbench.models.learner import Learner

VARIANTS = [entry for entry in registry("model").entries.values() if entry.source == SHIPPED]


@pytest.mark.parametrize("entry", VARIANTS, ids=lambda entry: entry.name)
def test_every_variant_declares_itself(entry: Entry) -> None:
    """A declaration that is only inherited may be wrong: a parent's rule is what a variant changes."""
    declared = vars(entry.cls).get("learner")
    if not isinstance(declared, Learner):
        pytest.fail(
            f"{entry.name} declares no learner: beside its name, write learner = Learner(loss=...,"
            " memory=..., optimiser=..., retention=...), or learner = Parent.learner where nothing differs"
            " (docs/which-optimiser.md)"
        )
    for name, words in declared._asdict().items():
        assert words.strip() == words != "", name
        assert not set(words) & set("|`_*\n"), name


def test_a_loss_that_is_none_has_no_optimiser_and_the_other_way_round() -> None:
    declared = [entry.cls.learner for entry in VARIANTS]
    for learner in declared:
        assert learner.loss.startswith("none: ") == learner.optimiser.startswith("none: "), learner
