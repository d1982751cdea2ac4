"""Fuzzy recall, built and drawn."""

from functools import partial
from typing import Any

from linbench.tasks.fuzzy_recall import FuzzyRecall
from tests.helpers.tasks import build_task
from tests.helpers.tasks import sample as draw

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


build = partial(build_task, FuzzyRecall)


sample = partial(draw, split="test")
