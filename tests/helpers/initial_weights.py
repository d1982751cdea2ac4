"""Weights of fresh models, in two numbers each.

`python -m tests.helpers.initial_weights > tests/golden/initial_weights.json` writes them anew, after a change
that means to change them.
"""

import json

import torch

from linbench.experiments.registry import SHIPPED, registry
from linbench.models.base import Mixer
from tests.helpers.cells import plan

MIXERS: dict[str, type[Mixer]] = {
    name: entry.cls for name, entry in registry("model").entries.items() if entry.source == SHIPPED
}

MORE = (
    "rfa[gated=true]",
    "gla[positions=selective]",
    "kda[safe_decay=true]",
    "kda[signed_decay=spread]",
    "h3[head_dim=4]",
    "mamba2[groups=null]",
    "mamba3[rank=2]",
    "attention[conv=4]",
)
"""Variants with parameters that their defaults do not have."""


def models() -> list[str]:
    """Return a name for each variant, form and kind of channel mixer that there is."""
    native = [f"{pattern} native {mixer}" for pattern in (*MIXERS, *MORE) for mixer in ("swiglu", "own")]
    return [*native, *(f"{name} controlled swiglu" for name in MIXERS if MIXERS[name].controlled)]


def fingerprint(model: str) -> list[float]:
    """Return the sum of all weights of a fresh model times cosines of their places, and that of squares.

    Processors round random numbers differently in their last digits, so a hash of all bits would not do.
    """
    pattern, form, channel_mixer = model.split()
    settings = {"model.channel_mixer": channel_mixer}
    cell = plan("mqar/quick", [pattern], form=form, settings=settings, device="cpu")[0]
    state = cell.model.build(cell.task, seed=3).state_dict()
    weights = torch.cat([state[name].flatten().double() for name in sorted(state)])
    places = torch.arange(len(weights), dtype=torch.float64).cos()
    return [round((weights @ each).item(), 6) for each in (places, weights)]


if __name__ == "__main__":
    lines = (f"{json.dumps(model)}: {json.dumps(fingerprint(model))}" for model in models())
    print("{\n" + ",\n".join(lines) + "\n}")
