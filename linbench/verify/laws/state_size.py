"""The law of the state's size."""

import torch

from linbench.engine.layer_under_test import ROWS, LayerUnderTest, UndeclaredError, tensor_leaves
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH


@law("state size", place=7)
@torch.no_grad()
def state_size(subject: LayerUnderTest) -> Found:
    """The state holds as many floats as declared, at any length."""
    mixer, sizes = subject.build(), []
    for length in (1, 3, LENGTH):
        size = mixer.state_floats(length)
        if size is None:
            raise UndeclaredError("it declares no state size")
        at_end = _floats(subject.stream(mixer, subject.tokens(length), [])[1])
        fresh = _floats(subject.initial_state(mixer, ROWS, length))
        if not size.total == at_end == fresh:
            counts = f"{size.total} declared, {fresh} at the start, {at_end} at the end"
            return False, f"at {length} tokens {counts}"
        sizes.append(size.total)
    constant = sizes[0] == sizes[-1]
    growth = ", constant in length" if constant else f" at {LENGTH} tokens, {sizes[0]:,} at one"
    return True, f"{sizes[-1]:,} floats{growth}"


def _floats(state: object) -> int:
    """Return the floating-point numbers of a state, per row of the batch."""
    return sum(part.numel() for part in tensor_leaves(state) if part.is_floating_point()) // ROWS
