"""Quick checks of the kernels in Triton's interpreter, and mutations of the kernels' source that these must
catch.

As a program: run the checks given by name, and end with 1 and the errors at the first that fails.
"""

import sys
from typing import NamedTuple

import pytest
import torch

from linbench.kernels.matrix_state.published import INSTANCES, random_inputs
from tests.helpers.interpreter import hurry, mend
from tests.helpers.matrix_state import (
    EXTREMES,
    LIMITS,
    excesses,
    force,
    forgetful,
    near_parallel,
    reference,
    resetting,
    results,
)


class Mutant(NamedTuple):
    """A fault: in kernels/matrix_state/triton/`file`, `old` becomes `new`, and `check` must fail."""

    file: str
    old: str
    new: str
    check: str


MUTANTS = {
    "a write does not decay until the chunk ends": Mutant(
        "decay", "x * tl.exp2(sums_after(g, x.shape[0], DT))[:, None]", "x", "scalar_decay fused"
    ),
    "a write decays by its own token's decay, too": Mutant(
        "decay", "sum_dot(j > i, g, DT)", "sum_dot(j >= i, g, DT)", "gla fused"
    ),
    "the state does not decay over a chunk": Mutant(
        "decay", "state * tl.exp2(decay)", "state", "gated_deltanet split"
    ),
    "tokens past the end decay": Mutant(
        "decay", "mask=t < T // STEPS, other=0.0", "mask=t < T // STEPS, other=-1.0", "scalar_decay split"
    ),
    "a token does not see its own write": Mutant(
        "decay", "(i > j) if STRICT else (i >= j)", "i > j", "linear_attention fused"
    ),
    "a token erases with its own write": Mutant(
        "decay", "(i > j) if STRICT else (i >= j)", "i >= j", "deltanet split"
    ),
    "a mask is not transposed": Mutant(
        "decay", "        i, j = j, i", "        pass", "linear_attention fused"
    ),
    "a level of pairs reaches into the next": Mutant(
        "decay", ">> level) == 1", ">> level) <= 1", "kda fused"
    ),
    "pairs are taken both ways": Mutant(
        "scores", "pairs(level, t) & later_half(level, t)", "pairs(level, t)", "gla split"
    ),
    "what is read by later tokens gets nothing from them": Mutant(
        "scores", "tl.where(later, of_written, of_written + more)", "of_written", "kda split"
    ),
    "a bonus does not count for the gradient of keys": Mutant(
        "chunk", "own_n * u * q", "own_n * q", "rwkv6 split"
    ),
    "a token's own write counts for its decay": Mutant(
        "chunk", "dkey += own_n * u * q", "written += k * own_n * u * q", "rwkv6 fused"
    ),
    "values are not scaled by beta": Mutant("split", "x * beta_n[None, :]", "x", "gated_deltanet split"),
    "reading before the decay is ignored": Mutant(
        "decay", "    if BEFORE:\n        summed", "    if not BEFORE:\n        summed", "rwkv6 fused"
    ),
    "the inverse leaves out its last level": Mutant(
        "scores", "range(FIRST, END)", "range(FIRST, END - 1)", "deltanet fused"
    ),
    "the inverse leaves out what is between blocks of 16": Mutant(
        "scores", "4, LEVELS, EXTENDED, DT)", "4, LEVELS - 1, EXTENDED, DT)", "kda fused forgetful"
    ),
    "the inverse has the wrong sign": Mutant("scores", "x -= exact_dot", "x += exact_dot", "deltanet fused"),
    "a gradient is summed over the tokens before instead of after": Mutant(
        "decay", "reverse=True", "reverse=False", "scalar_decay fused"
    ),
    "long sums lose what rounding leaves": Mutant(
        "decay", "sums += lost", "sums += 0 * lost", "scalar_decay fused forgetful"
    ),
    "a reset takes the digits of sums": Mutant(
        "decay", "tl.where(g < -128.0, -128.0, g)", "g", "scalar_decay split resetting"
    ),
    "beta is left out": Mutant("chunk", "beta[:, None] * a_p", "a_p", "gated_deltanet fused"),
    "low rank is inverted with the wrong sign": Mutant("chunk", "else -a_p", "else a_p", "rwkv7 split"),
    "value heads are given the wrong key head": Mutant(
        "chunk", "head // (H // HK)", "head % HK", "gated_deltanet split groups"
    ),
    "gradients of the erase key are not scaled by beta": Mutant(
        "chunk", "dp_n = beta[:, None] * dp_n", "dp_n = dp_n", "comba split"
    ),
    "what the state keeps does not count for the decay": Mutant(
        "chunk", "dg_n = kept +", "dg_n = 0 * kept +", "kda split"
    ),
    "what the state keeps does not count for a scalar decay": Mutant(
        "decay", "i == C - 1, kept, 0.0", "i == C - 1, 0.0, 0.0", "gated_deltanet fused"
    ),
    "parts of a scalar decay's gradient are left out": Mutant(
        "decay", "at += stride_p", "at += 0", "gated_deltanet split wide"
    ),
    "the scores are not transposed": Mutant(
        "tiles", "i[None, :] * C + i[:, None]", "i[:, None] * C + i[None, :]", "gated_deltanet split"
    ),
    "joined gradients walk back without a chunk's own outputs": Mutant(
        "split_backward", "dwrite = extended_dot(a_t", "dwrite = extended_dot(0 * a_t", "rwkv7 joined"
    ),
    "joined gradients leave the values' part of beta's out": Mutant(
        "split_gradients", "dbeta_n += tl.sum(", "dbeta_n -= tl.sum(", "kda joined"
    ),
    "joined gradients take one key's scores for the other's": Mutant(
        "split_gradients", "dl_kt, g_n, 1.0", "da_kt, g_n, 1.0", "rwkv7 joined"
    ),
    "the scale is left out on the way back": Mutant(
        "fused", "do_n, g_n, g_t, scale", "do_n, g_n, g_t, 1.0", "rwkv7 fused"
    ),
    "rows of the state do not decay": Mutant(
        "split", "row_decay(g_n, 0)", "row_decay(0 * g_n, 0)", "kda split"
    ),
    "the values' part of beta's gradient is left out": Mutant(
        "split_backward", "dbeta_n += tl.sum(", "dbeta_n -= tl.sum(", "deltanet split"
    ),
    "gradients of scores are mixed up": Mutant(
        "chunk", "(chunk * COUNT + which)", "(chunk * COUNT)", "deltanet split"
    ),
    "the state does not erase": Mutant(
        "split", "- dot(w, state, DT)", "- 0 * dot(w, state, DT)", "gated_deltanet split"
    ),
    "writes lose their low half": Mutant("tiles", "dot(a, low, DT, onto)", "onto", "deltanet split parallel"),
    "products of the inverse lose a low half": Mutant(
        "tiles", "dot(high, low_b, DT, onto)", "onto", "deltanet fused parallel"
    ),
    "values get nothing from later chunks": Mutant(
        "split_backward", "dz += later_readings(", "dz += 0 * later_readings(", "gla split"
    ),
    "rows of the state decay a chunk late": Mutant("split", "tl.minimum(1, N - 1)", "0", "kda split"),
    "the states of chunks are kept in reverse": Mutant(
        "split", "store_rows(states + (bh * N + n)", "store_rows(states + (bh * N + N - 1 - n)", "gla split"
    ),
}


SIZES = {
    "plain": {"batch": 2, "heads": 1, "length": 18},
    "groups": {"batch": 1, "heads": 4, "key_heads": 2, "length": 1},
    "forgetful": {"batch": 1, "heads": 1, "length": 33},
    "resetting": {"batch": 1, "heads": 1, "length": 33},
    "wide": {"batch": 1, "heads": 1, "length": 3, "key_dim": 24},
    "parallel": {"batch": 1, "heads": 1, "length": 65, "dtype": torch.bfloat16},
}


def check(name: str) -> dict[str, float]:
    """Return the errors beyond their limits of a check "instance schedule [one of `SIZES`]"."""
    instance, schedule, kind = (*name.split(), "plain")[:3]
    inputs = random_inputs(INSTANCES[instance], **{"key_dim": 16, "value_dim": 24} | SIZES[kind], state=True)
    if kind == "forgetful":
        inputs = forgetful(inputs, EXTREMES[1])
    if kind == "resetting":
        inputs, _ = resetting(inputs, -1e30)
    if kind == "parallel":
        inputs = near_parallel(inputs)
    with pytest.MonkeyPatch.context() as monkeypatch:
        mend(monkeypatch)
        hurry(monkeypatch)
        force(
            monkeypatch,
            schedule,
            chunk=32 if kind in ("forgetful", "parallel") else 16,
            key_block=16,
            value_block=16,
            pass_values=16,
        )
        return excesses(
            results(INSTANCES[instance], inputs, "triton"),
            reference(INSTANCES[instance], inputs),
            LIMITS[inputs["v"].dtype],
        )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if beyond := check(name):
            print(name, beyond)
            sys.exit(1)
