"""Settings that the tasks of Physics of Language Models, part 4.1, have in common."""

from typing import Any

__all__ = ["WARM_UP", "published"]

WARM_UP = 1000
"""Steps of the published warm-up."""


def published(*, steps: int, batch_size: int, seq_len: int, lr: float = 1e-3) -> dict[str, Any]:
    """Return the model and the protocol of a preset with the published budget, arXiv:2512.17351.

    The model is the largest of four: 12 layers of width 768. Rates are the middle of those that were tried.
    The published cosine ends at a tenth of the rate, ours at 0, and epsilon is 1e-6 there.
    """
    return {
        "model": {"layers": 12, "heads": 12, "d_model": 768},
        "protocol": {
            "tokens": steps * batch_size * seq_len,
            "batch_size": batch_size,
            "lr": lr,
            "warmup": WARM_UP / steps,
            "weight_decay": 0.03,
            "precision": "bf16",
        },
    }
