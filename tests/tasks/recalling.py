"""Fuzzy recall, built and drawn."""

from typing import Any

import torch

from linbench.tasks.base import Batch, Split
from linbench.tasks.fuzzy_recall import FuzzyRecall, FuzzyRecallSettings

SETTINGS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "noisy": {"vocab_size": 24, "noise_vocab_size": 6, "frac_noise": 0.4},
    "one query": {"multi_query": False, "seq_len": 40},
    "one query, noisy": {
        "multi_query": False,
        "vocab_size": 20,
        "noise_vocab_size": 4,
        "frac_noise": 0.6,
        "seq_len": 40,
    },
    "many tokens": {"vocab_size": 128, "seq_len": 64},
    "long keys": {"vocab_size": 14, "k_motif_size": 5, "v_motif_size": 2},
    "long values": {"vocab_size": 14, "k_motif_size": 1, "v_motif_size": 6},
    "no room to spare": {"seq_len": 13},
    "smallest": {"vocab_size": 5, "k_motif_size": 1, "v_motif_size": 1, "seq_len": 6},
}


def build(**values: Any) -> FuzzyRecall:
    return FuzzyRecall(FuzzyRecallSettings.parse(values, where="task"))


def sample(task: FuzzyRecall, count: int, *, split: Split = "test") -> Batch:
    return task.sample(torch.arange(count), seed=0, split=split)
