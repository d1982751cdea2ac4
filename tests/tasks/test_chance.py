"""Chance is what a blind guess attains: no less, and hardly more."""

from typing import Any

import pytest
import torch

from linbench.tasks.base import Batch, Prediction, Task
from tests.helpers.guessers import GUESSERS, Guesser, by_place
from tests.helpers.presets import FIRST_OF_EACH_PATH, SHIPPED_TASKS, rows_are_long

EXAMPLES, TOKENS = 10_000, 1 << 17

OTHERS: dict[str, list[dict[str, Any]]] = {
    "associative_recall": [{"seq_len": 4}, {"seq_len": 60, "vocab_size": 9, "unused": 1}],
    "brevo": [
        {"nodes": 5, "query": "quarter"},
        {"nodes": 6, "letters": 2, "longest": 4, "seq_len": 256},
    ],
    "capacity": [
        {"keys": 8, "values": 4},
        {"keys": 8, "values": 4, "loss": "squared"},
        {"keys": 5, "writes": "replaced", "values": 3},
        {"keys": 5, "writes": "replaced", "loss": "squared"},
    ],
    "capo": [{"order": "fixed", "people": 20}, {"people": 60, "divisor": 100, "biographies": 2}],
    "copy": [
        {"variant": "suffix", "letters": 5, "min_length": 8, "max_length": 12},
        {"variant": "prefix", "min_length": 6, "max_length": 6},
    ],
    "depo": [{"letters": 3, "longest": 3, "seq_len": 256}],
    "forgetting_mqar": [{"kv_pairs": 4, "updates": 1, "power_a": 1.0}],
    "fuzzy_recall": [
        {"multi_query": False},
        {"vocab_size": 9, "k_motif_size": 1, "v_motif_size": 2, "seq_len": 40},
        {"vocab_size": 22, "noise_vocab_size": 4, "frac_noise": 0.4},
    ],
    "in_context_recall": [{"multi_query": False, "seq_len": 16}, {"vocab_size": 5, "seq_len": 12}],
    "memorization": [{"vocab_size": 6}],
    "mqar": [
        {"power_a": 1.0},
        {"kv_pairs": 1},
        {"kv_pairs": 16},
        {"kv_pairs": 3, "power_a": 2.0},
        {"parts": 2, "shared": 1, "seq_len": 60},
    ],
    "needle": [
        {"needles": 3, "queries": 2, "values_per_key": 2, "seq_len": 128},
        {"haystack": "needles", "keys": 8, "seq_len": 160},
        {"haystack": "needles", "keys": 8, "needles": 2, "values_per_key": 2, "seq_len": 200},
        {"haystack": "needles", "key": "uuid", "values_per_key": 2, "seq_len": 256},
    ],
    "noise_recall": [
        {"facts": 1, "noise": 8},
        {"facts": 1, "noise": 24, "kind": "decoys", "values": 4, "keys": 8},
        {"facts": 3, "noise": 30, "kind": "decoys", "values": 4, "keys": 8, "asked": 2},
        {"facts": 3, "noise": 30, "kind": "decoys", "values": 4, "keys": 8, "depth": 0.0},
        {"facts": 2, "noise": 30, "kind": "decoys", "decoy_pool": "words", "words": 8},
        {"facts": 2, "noise": 0, "kind": "decoys"},
    ],
    "noisy_recall": [
        {"frac_noise": 0.9, "seq_len": 12},
        {"multi_query": False, "seq_len": 12, "frac_noise": 0.9},
    ],
    "phonebook": [
        {"entries": 3, "demonstrations": 2, "digits": 3},
        {"entries": 40, "demonstrations": 0, "digits": 3},
    ],
    "stack": [
        {"stacks": 2, "depth": 1, "elements": 4},
        {"stacks": 3, "depth": 2, "elements": 2, "seq_len": 60},
        {"stacks": 6, "depth": 3, "elements": 4, "seq_len": 96, "covered": True},
    ],
    "stack_manipulation": [{"length": 2, "shortest": 1}],
    "stacked_mqar": [{"kv_pairs": 1}],
    "variable_chain": [
        {"negations": True, "values": 2, "chains": chains, "hops": 2, "seq_len": 40} for chains in (1, 3)
    ],
    "variable_overwrite": [
        {"midstream": 6},
        {"midstream": 6, "schedule": "blockwise", "noise": 0.5, "noise_kind": "decoy", "seq_len": 96},
        {"midstream": 6, "schedule": "sequential"},
        {"values": 8, "variables": 4, "overwrites": (3,), "seq_len": 64},
        {"values": 6, "variables": 4, "overwrites": (3,), "midstream": 8, "seq_len": 96},
        {"parts": 2, "shared": 1, "cluster": 2, "midstream": 6, "seq_len": 96},
    ],
    "versioned_overwrite": [
        {"ask": "version"},
        {"ask": "version", "retracted": 1, "writes": 3, "seq_len": 64},
    ],
}

PUBLISHED = {"modular_arithmetic": 1 / 5}
"""Levels by which published scores are scaled."""

PRESETS = [
    pytest.param(
        name,
        preset.task,
        id=f"{name}-{which}",
        marks=[
            pytest.mark.slow,
            *(
                [pytest.mark.nightly]
                if (name, which) not in FIRST_OF_EACH_PATH or rows_are_long(name, which)
                else []
            ),
        ],
    )
    for name, cls in SHIPPED_TASKS.items()
    for which, preset in cls.presets.items()
]
SETTINGS = PRESETS + [
    pytest.param(name, values, id=f"{name}-{i}", marks=pytest.mark.slow if i else ())
    for name, others in OTHERS.items()
    for i, values in enumerate(others)
]


def examples(task: Task) -> tuple[Batch, Batch]:
    """Some to learn from, and others."""
    count = max(
        100, min(EXAMPLES, TOKENS // task.seq_len, 16 * TOKENS // (task.answers * (task.io.d_out or 1)))
    )
    # of which there are more languages, or no law is computed
    split = "train" if task.name in ("formal_language", "lano") else "test"
    # a guess is only as good as what it was learnt from
    indices = torch.arange(5 * count).split((count, 4 * count))
    guessed, learnt = (task.sample(which, seed=1, split=split) for which in indices)  # type: ignore[arg-type]
    return learnt, guessed


def measured(task: Task, guesser: Guesser) -> tuple[float, float]:
    """Its accuracy, and the standard error over examples."""
    learnt, batch = examples(task)
    mean = task.means(batch, Prediction(guesser(task, learnt, batch), torch.zeros(batch.positions.shape)))[
        "accuracy"
    ]
    right = mean.value.double().masked_fill(~batch.is_answer, 0).sum(dim=1)
    due = (batch.is_answer.double() if mean.weight is None else mean.weight.double()).sum(dim=1)
    accuracy = right.sum() / due.sum()
    return float(accuracy), float((right - accuracy * due).square().sum().sqrt() / due.sum())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), SETTINGS)
def test_chance_is_what_a_blind_guess_attains(name: str, values: dict[str, Any]) -> None:
    cls = SHIPPED_TASKS[name]
    task: Task = cls(cls.Settings.parse(values, where="task"))
    chance = task.chance()
    found, error = measured(task, GUESSERS[name])
    if found == 1:  # there is nothing to ask for: the guess must be blind to the sequence
        found, error = measured(task, by_place())
    if name in PUBLISHED:
        assert chance == PUBLISHED[name] <= found + 4 * error
    else:
        assert found - 4 * error - 1e-9 <= chance <= 1.05 * found + 4 * error + 1e-3
