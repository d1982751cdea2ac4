"""Decision 11: its table and its sentences follow from the stored scores."""

import pandas as pd
import pytest

from tests.results.schedules import CURVES, PAGE, RUNGS, TABLES, load_scores, shown, table


@pytest.mark.parametrize("name", list(TABLES))
def test_the_tables_are_made_of_the_stored_scores(name: str) -> None:
    assert shown(name) == TABLES[name]()


def test_every_run_was_finished_and_no_cell_is_missing() -> None:
    scores = load_scores()
    assert set(scores["status"]) == {"ok"}
    assert len(scores) == len(set(scores["id"])) == 6 * 3 * 8 * 2 * 2 * 2
    assert set(scores["seed"]) == set(range(8))


def test_no_variant_is_worse_with_wsd_or_bf16_beyond_noise() -> None:
    rows = [line.split(" | ") for line in table().splitlines()[2:]]
    for *_, of_wsd, of_bf16 in rows:
        for interval in (of_wsd, of_bf16):
            high = interval.partition(", ")[2].partition("]")[0]
            assert float(high) >= 0
    better = [row for row in rows if float(row[-2].partition("[")[2].partition(",")[0]) > 0]
    text = PAGE.read_text(encoding="utf-8")
    assert f"better beyond noise in {len(better)} of {len(rows)}" in " ".join(text.split())


def test_most_of_what_was_flat_at_chance_learned_later() -> None:
    rungs, curves = pd.read_csv(RUNGS), pd.read_csv(CURVES)
    flat = rungs[(rungs["training"] == "one length") & (rungs["ended"] == "flat")]
    assert flat["accuracy"].max() < 0.05
    ends = curves.groupby(["model", "seed"])["test_accuracy"].first()
    learned = [ends[model, seed] >= 0.9 for model, seed in zip(flat["model"], flat["seed"], strict=True)]
    words = {4: "four", 6: "six"}
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"the {words[len(learned)]} seeds" in text
    assert f"{words[sum(learned)]} learned later" in text
