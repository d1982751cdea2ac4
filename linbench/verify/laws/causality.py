"""The law of causality."""

import itertools

import torch

from linbench.engine.layer_under_test import LAYER_POSITIONS, LayerUnderTest, difference
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH, describe_call

SPLITS = {LENGTH: (1, 5, 35, 63, 64, 65, LENGTH - 1), 300: (200,)}
"""The tokens from which on others are put, by the length of sequences.

The longer sequence holds several blocks of 128 tokens, and is split within the second.
"""


@law("causality", place=2)
@torch.no_grad()
def causality(subject: LayerUnderTest) -> Found:
    """Other tokens from t on leave every output before t as it was, in training, too.

    It holds bit for bit, or within rounding where a mixer declares that, and for an nn.Module, which cannot
    declare it.
    """
    exact = subject.cls.causality == "exact" and not subject.cls.is_plain_module
    limit, worst = 0.0 if exact else subject.limit(1e-5, 1e-5), 0.0
    for index, training, length in itertools.product(LAYER_POSITIONS, (False, True), SPLITS):
        x = subject.tokens(length, torch.float32)
        whole = subject.call(x, index=index, training=training)
        for t in SPLITS[length]:
            later = 3 * subject.tokens(length, torch.float32, seed=t)[:, t:] + 1
            y = subject.call(torch.cat([x[:, :t], later], dim=1), index=index, training=training)
            if not training and torch.equal(y[:, t:], whole[:, t:]):  # training may leave a whole layer out
                where = describe_call(index, training)
                return False, f"outputs from {t} on do not depend on the tokens there{where}"
            moved = difference(y[:, :t], whole[:, :t], whole)
            if moved > limit:
                where = describe_call(index, training)
                return False, f"outputs before {t} of {length} move by {moved:.1e}{where}"
            worst = max(moved, worst)
    return True, f"moves by {worst:.1e}" if worst else "identical bits"
