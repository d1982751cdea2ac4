"""The law of a batch's neighbours."""

import itertools
from functools import partial

import torch

from linbench.engine.layer_under_test import LAYER_POSITIONS, LayerUnderTest, difference
from linbench.verify.laws import Found, law
from linbench.verify.laws._measuring import LENGTH, describe_call, within


@law("batch neighbours", place=6)
@torch.no_grad()
def batch_neighbours(subject: LayerUnderTest) -> Found:
    """A row of a batch does not depend on the others, in training, too, nor on its place among them.

    It holds to 1e-12 in float64.
    """
    x, errors = subject.tokens(LENGTH, rows=3), {}
    changed = torch.cat([x[:1], 5 * x[1:] + 1])
    for index, training in itertools.product(LAYER_POSITIONS, (False, True)):
        called = partial(subject.call, index=index, training=training)
        whole = called(x)
        moves = [difference(called(changed)[:1], whole[:1])]
        if not training:  # in training each row may be given random numbers of its own
            moves.append(difference(called(x.flip(0)).flip(0), whole))
            moves += [difference(called(x[row : row + 1]), whole[row : row + 1]) for row in range(3)]
        errors[describe_call(index, training)] = max(moves)
    return within(subject.limit(1e-12, 1e-5), errors, "moves")
