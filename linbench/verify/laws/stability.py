"""The law of stability."""

import torch

from linbench.engine.layer_under_test import LayerUnderTest, UndeclaredError, tensor_leaves
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import root_mean_square

TRAINED = 64
"""The length that stability is judged from."""

LEAST, MOST = 1 / 8, 4
"""Bounds of the outputs' size at ten times that length, relative to their size within it.

Of independent tokens a sum grows by 3.6 from where it is looked at first, the square root of about 13 times
as many tokens, and a mean shrinks as much.
"""


@law("ten times as long", place=8)
@torch.no_grad()
def stability(subject: LayerUnderTest) -> Found:
    """Ten times as long as trained with, outputs are at most four times as large, and at least an eighth."""
    mixer = subject.build(torch.float32)
    x = subject.tokens(10 * TRAINED, torch.float32)
    try:
        y, state = subject.stream(mixer, x, [])
    except UndeclaredError:
        y, state = mixer(x).y, None
    half = TRAINED // 2
    first, last = root_mean_square(y[:, half:TRAINED]), root_mean_square(y[:, -half:])
    if not (y.isfinite().all() and first > 0):
        return False, "outputs are not finite, or all zero"
    measured = f"root mean square {first:.2g} up to token {TRAINED}, {last:.2g} up to {10 * TRAINED}"
    parts = [part for part in tensor_leaves(state) if part.is_floating_point()]
    state_size = max(map(root_mean_square, parts), default=0.0)
    return LEAST <= last / first <= MOST, measured + (f", state {state_size:.2g}" if state_size else "")
