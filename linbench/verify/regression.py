"""Update rules on linear regression in context, with nothing trained: what each step makes of a stream.

A stream tells the values of keys under a linear map that may drift. Each rule reads it once, one token after
the other, and is then asked for the values of fresh keys. So a rule's optimiser is all that differs: the sum
of linear attention, the gradient step of the delta rule, a step with momentum, a preconditioned one, an
orthogonal one, steps of conjugate gradients, and the exact solution (2501.12352).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.common.text import pluralize
from linbench.kernels.fast_weight import Network, Step, fast_weight
from linbench.kernels.least_squares import least_squares
from linbench.kernels.matrix_state import Add, Delta, matrix_state
from linbench.verify.update_rules import Row, Trials

__all__ = ["CONDITIONS", "DIM", "DRIFTS", "DRIFT_AT", "RULES", "Rule", "Streams", "draw", "regression"]

CONDITIONS = (1.0, 10.0, 100.0, 1000.0)
"""Condition numbers of the keys' covariance; their map does not drift."""

DRIFTS = (0.0, 0.001, 0.003, 0.01, 0.03)
"""Drifts: the share of the map's variance that every token draws anew."""

DRIFT_AT = 10.0
"""Condition number at which drifts are compared."""

NOISE = 0.1
"""Standard deviation of the noise of a value, whose own is one."""

DIM = 32
"""Dimensions of keys, unless others are asked for: with them the default rows take seconds."""

MOST_DIMENSIONS = 256
"""The most dimensions of keys: the memory that all maps of a drift need grows with their square."""

TOKENS_PER_DIMENSION, QUERIES = 4, 16
VALUE_DIMENSIONS = 4
"""Dimensions of a value: columns of the map, which are learned side by side."""

RATES = (1.5, 1.0, 0.7, 0.5, 0.3, 0.1)
KEEPS = (1.0, 0.99, 0.97, 0.95, 0.9)
RIDGES = (0.01, 0.1, 1.0, 10.0)
MOMENTA = (0.5, 0.9)
LENGTHS = tuple(2.0**i for i in range(-5, 2))
"""Lengths of a column of an orthogonal step."""

CHOOSING = 4
"""One of so many streams is for choosing constants."""

MINI_BATCH, NEWTON_SCHULZ = 4, 5
"""Tokens of an orthogonal step, and the iterations that make it orthogonal: of one token it has rank one."""


class Streams(NamedTuple):
    """Streams that rules read, and what they are asked.

    k: keys [B, T, K], of mean square length one. v: noisy values [B, T, V]. q: fresh keys [B, Q, K]. y: their
    values [B, Q, V] under the last map. axes: principal axes of the keys [B, K, K], in columns.
    """

    k: Tensor
    v: Tensor
    q: Tensor
    y: Tensor
    axes: Tensor

    def parted(self) -> tuple["Streams", "Streams"]:
        """Return a quarter of the streams, on which constants are chosen, and the others."""
        first = -(-len(self.k) // CHOOSING)
        return Streams(*(x[:first] for x in self)), Streams(*(x[first:] for x in self))


def draw(trials: Trials, *, condition: float, drift: float) -> Streams:
    """Draw streams of 4 tokens per dimension.

    A map [K, V] starts standard normal and walks at random: a token keeps sqrt(1 - drift) of it and adds
    sqrt(drift) of another. Keys are normal. Their variances along random axes fall geometrically.
    """
    dim, tokens = trials.dim, TOKENS_PER_DIMENSION * trials.dim

    def normals(name: str, *shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        return trials.stream(name).normals(size).view(trials.count, *shape).to(trials.dtype)

    place = torch.arange(dim, dtype=trials.dtype, device=trials.device)
    variances = condition ** (-place / (dim - 1))
    axes, corner = torch.linalg.qr(normals("axes", dim, dim))
    axes = axes * corner.diagonal(dim1=1, dim2=2).sign()[:, None]  # else their signs depend on the library
    x = normals("keys", tokens + QUERIES, dim) * (variances / variances.sum()).sqrt() @ axes.mT
    steps = normals("maps", tokens if drift else 1, dim, VALUE_DIMENSIONS)
    map_, maps = steps[:, 0], []
    for t in range(tokens):
        if drift and t:
            map_ = (1 - drift) ** 0.5 * map_ + drift**0.5 * steps[:, t]
        maps.append((x[:, t, None] @ map_)[:, 0])
    v = torch.stack(maps, dim=1) + NOISE * normals("noise", tokens, VALUE_DIMENSIONS)
    return Streams(x[:, :tokens], v, x[:, tokens:], x[:, tokens:] @ map_, axes)


class Rule(NamedTuple):
    """An update rule and the constants that it may have.

    read: returns what streams and constants [N] read [B, N, Q, V]. constants: the values of each that are
    tried, in all combinations. scaled: whether the reading is multiplied by the best factor.
    """

    read: Callable[[Streams, Mapping[str, Tensor]], Tensor]
    constants: Mapping[str, Sequence[float]]
    scaled: bool = False

    def grid(self, like: Tensor) -> dict[str, Tensor]:
        """Return all combinations of constants, each as [N]."""
        columns = zip(*product(*self.constants.values()), strict=True)
        return {name: like.new_tensor(column) for name, column in zip(self.constants, columns, strict=True)}


def _averaging(streams: Streams, at: Mapping[str, Tensor]) -> Tensor:
    return _read(streams, _sums(streams.k, streams.v, at["keep"]))


def _delta(streams: Streams, at: Mapping[str, Tensor]) -> Tensor:
    _, memory = matrix_state(
        *_tokens(streams.k, streams.v, len(at["rate"])),
        log_decay=_every_token(streams, at["keep"]).log(),
        update=Delta(_every_token(streams, at["rate"])),
    )
    return _read(streams, memory)


def _preconditioned(streams: Streams, at: Mapping[str, Tensor], *, along_axes: bool = False) -> Tensor:
    """Read a delta rule whose write key is divided, channel by channel, by the mean square of keys so far.

    The mean starts as that of keys alike in all channels, which counts as one token.
    """
    if along_axes:
        streams = streams._replace(k=streams.k @ streams.axes, q=streams.q @ streams.axes)
    k, dim = streams.k, streams.k.shape[2]
    seen = torch.arange(2, k.shape[1] + 2, dtype=k.dtype, device=k.device)[:, None]
    write = k * seen / (1 + dim * k.square().cumsum(dim=1))
    tokens = _tokens(write, streams.v, len(at["rate"]))
    _, memory = matrix_state(
        *tokens,
        log_decay=_every_token(streams, at["keep"]).log(),
        update=Delta(_every_token(streams, at["rate"]), erase_key=k[:, :, None]),
    )
    return _read(streams, memory)


def _momentum(streams: Streams, at: Mapping[str, Tensor]) -> Tensor:
    rates = _every_token(streams, at["rate"] * (1 - at["momentum"]))
    return _read(streams, _fast(streams, at, rates, Step(1, momentum=True, decay=True)))


def _orthogonal(streams: Streams, at: Mapping[str, Tensor]) -> Tensor:
    """Read a memory whose steps have columns of one length: values are measured in that length."""
    step = Step(MINI_BATCH, reads="before", momentum=True, decay=True, orthogonal=NEWTON_SCHULZ)
    length = at["length"][:, None]
    memory = _fast(streams, at, torch.ones_like(_every_token(streams, at["keep"])), step, unit=length)
    return _read(streams, length[:, None] * memory)


def _fast(
    streams: Streams, at: Mapping[str, Tensor], rates: Tensor, step: Step, unit: Tensor | float = 1.0
) -> Tensor:
    """Return the matrix [B, N, K, V] that a fast weight has become, with values measured in a unit."""
    keys, values = streams.k.shape[2], streams.v.shape[2]
    count = len(at["keep"])
    q, k, v = (x.expand(-1, -1, count, -1) for x in _tokens(streams.k, streams.v, count))
    # a memory that keeps a of itself per token keeps a^size of itself per step
    keep = _every_token(streams, at["keep"] ** step.size)
    _, state = fast_weight(
        q,
        k,
        v / unit,
        rates,
        [streams.k.new_zeros(count, keys, values)],
        network=Network(),
        step=step,
        log_momentum=_every_token(streams, at["momentum"]).log(),
        log_keep=keep.log(),
    )
    return state[..., : keys * values].reshape(len(q), count, keys, values)


def _conjugate_gradients(streams: Streams, at: Mapping[str, Tensor], *, steps: int) -> Tensor:
    queries, count = streams.q.shape[1], len(at["ridge"])
    q = streams.q[:, :, None].expand(-1, -1, count, -1)
    o, _ = least_squares(
        q,
        torch.zeros_like(q),
        streams.v.new_zeros(len(q), queries, count, streams.v.shape[2]),
        ridge=at["ridge"][:, None],
        steps=steps,
        state=_moments(streams, at["keep"]),
    )
    return o.transpose(1, 2)


def _exact(streams: Streams, at: Mapping[str, Tensor]) -> Tensor:
    gram, cross = _moments(streams, at["keep"])
    ridge = at["ridge"][:, None, None] * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return _read(streams, torch.linalg.solve(gram + ridge, cross))


def _moments(streams: Streams, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Return decayed sums of k k^T [B, N, K, K] and of k v^T [B, N, K, V]."""
    different, which = torch.unique(keep, return_inverse=True)
    sums = _sums(streams.k, torch.cat([streams.k, streams.v], dim=2), different)[:, which]
    gram, cross = sums.split_with_sizes([streams.k.shape[2], streams.v.shape[2]], dim=3)
    return gram.contiguous(), cross.contiguous()


def _sums(k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Return decayed sums of k v^T [B, N, K, V]."""
    log_decay = keep.log().expand(len(k), k.shape[1], -1)
    memory: Tensor
    _, memory = matrix_state(*_tokens(k, v, len(keep)), log_decay=log_decay, update=Add())
    return memory


def _tokens(k: Tensor, v: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v as kernels take them: a head for each combination of constants; nothing is read."""
    return torch.zeros_like(k)[:, :, None], k[:, :, None], v[:, :, None].expand(-1, -1, count, -1)


def _every_token(streams: Streams, constant: Tensor) -> Tensor:
    return constant.expand(*streams.k.shape[:2], -1)


def _read(streams: Streams, memory: Tensor) -> Tensor:
    return streams.q[:, None] @ memory


_STEP = {"rate": RATES, "keep": KEEPS}
_SOLVED = {"ridge": RIDGES, "keep": KEEPS}

RULES: dict[str, Rule] = {
    "averaging": Rule(_averaging, {"keep": KEEPS}, scaled=True),
    "one step": Rule(_delta, _STEP),
    "one step, momentum": Rule(_momentum, {"momentum": MOMENTA, **_STEP}),
    "one step, preconditioned": Rule(_preconditioned, _STEP),
    "one step, preconditioned along axes": Rule(partial(_preconditioned, along_axes=True), _STEP),
    "Newton-Schulz": Rule(_orthogonal, {"momentum": MOMENTA, "length": LENGTHS, "keep": KEEPS}),
    **{
        f"CG, {pluralize(steps, 'step')}": Rule(partial(_conjugate_gradients, steps=steps), _SOLVED)
        for steps in (1, 3, 10, 30)
    },
    "exact": Rule(_exact, _SOLVED),
}
"""Update rules from the plainest to the exact solution."""


_TRIALS = Trials(dim=DIM)


def regression(
    rules: Sequence[str] = tuple(RULES),
    *,
    conditions: Sequence[float] = CONDITIONS,
    drifts: Sequence[float] = DRIFTS,
    drift_at: float = DRIFT_AT,
    trials: Trials = _TRIALS,
) -> list[Row]:
    """Return the squared error of each rule's reading of fresh keys, over the squares of their values.

    Constants are the best on a quarter of the streams; the others are scored.

    Args:
        rules: names in `RULES`.
        conditions: condition numbers of the keys' covariance, without a drift.
        drifts: drifts, at the condition number `drift_at`.

    Raises UserError: there is one trial alone, or there are more dimensions than `MOST_DIMENSIONS`.
    """
    if trials.count < 2:
        raise UserError("regression needs at least 2 trials: one chooses constants, the other is scored.")
    if trials.dim > MOST_DIMENSIONS:
        raise UserError(f"regression takes up to {MOST_DIMENSIONS} dimensions, not {trials.dim}.")
    settings = [(condition, 0.0) for condition in conditions]
    settings += [(drift_at, drift) for drift in drifts]
    rows: list[Row] = []
    for condition, drift in dict.fromkeys(settings):
        choosing, scored = draw(trials, condition=condition, drift=drift).parted()
        for name in rules:
            where = {"rule": name, "dim": trials.dim, "condition": condition, "drift": drift}
            rows.append(where | _score(RULES[name], choosing, scored))
    return rows


def _score(rule: Rule, choosing: Streams, scored: Streams) -> dict[str, Any]:
    """Return the error on streams with the constants that are best on others, and these, each as a column."""
    grid = rule.grid(scored.k)
    read = rule.read(choosing, grid)
    factors = _factors(read, choosing.y) if rule.scaled else torch.ones_like(read[0, :, 0, 0])
    best = int(_errors(factors[:, None, None] * read, choosing.y).argmin())
    chosen = {name: values[best] for name, values in grid.items()}
    read = factors[best] * rule.read(scored, {name: value[None] for name, value in chosen.items()})
    return {
        "error": float(_errors(read, scored.y)),
        **{name: float(value) for name, value in chosen.items()},
    }


def _factors(read: Tensor, y: Tensor) -> Tensor:
    """Return the factor [N] that brings each reading [B, N, Q, V] nearest to y [B, Q, V]."""
    return (read * y[:, None]).sum(dim=(0, 2, 3)) / read.square().sum(dim=(0, 2, 3))


def _errors(read: Tensor, y: Tensor) -> Tensor:
    """Return the relative squared error [N]; infinite where a rule diverged."""
    left = (read - y[:, None]).square().sum(dim=(0, 2, 3)) / y.square().sum()
    return left.nan_to_num(nan=torch.inf, posinf=torch.inf)
