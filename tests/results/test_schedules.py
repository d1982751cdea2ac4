"""Decision 11: what it says in words follows from the stored scores."""

import pandas as pd

from tests.results.schedules import CURVES, FOLDER, RUNGS, gains, load_scores

PAGE = FOLDER / "0011-ladders.md"


def test_every_run_was_finished_and_no_cell_is_missing() -> None:
    scores = load_scores()
    assert set(scores["status"]) == {"ok"}
    assert len(scores) == len(set(scores["id"])) == 6 * 3 * 8 * 2 * 2 * 2
    assert set(scores["seed"]) == set(range(8))


def test_no_variant_is_worse_with_wsd_or_bf16_beyond_noise() -> None:
    for gained in (
        gains("protocol.schedule", "cosine", "wsd"),
        gains("protocol.precision", "fp32", "bf16"),
    ):
        assert all(one.high >= 0 for one in gained)


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
