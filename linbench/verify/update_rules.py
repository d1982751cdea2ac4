"""Recall of update rules with nothing trained: random keys and values are written, and read by these keys.

It shows what the arithmetic of a memory gives before a network learns to use it, in seconds, and it holds the
kernels to figures that were found without them. Keys and values are unit vectors; a value is recalled if no
other of its sequence has a larger product with the reading. Functions return plain rows, each figure a mean
over all trials.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from linbench.common.errors import UserError
from linbench.common.numbers import number_between
from linbench.kernels.matrix_state import Add, Delta, Update, matrix_state
from linbench.tasks.blocks.similar_vectors import around
from linbench.tasks.random import Stream

__all__ = [
    "DECAYS",
    "RULES",
    "DeltaRule",
    "LeastSquares",
    "Rule",
    "Sum",
    "Trials",
    "blend",
    "capacity",
    "frequency",
    "named",
    "nearest",
    "overwriting",
    "reflections",
    "retention",
]

Row = dict[str, Any]


@dataclass(frozen=True)
class Sum:
    """The rule S <- decay S + k v^T, read as S^T q.

    normalised: read over z . q, where z <- decay z + k. Linear attention 2006.16236, RetNet 2307.08621.
    """

    decay: float = 1.0
    normalised: bool = False

    def __call__(self, k: Tensor, v: Tensor, q: Tensor) -> Tensor:
        """Return what q [B, Q, K] reads after k [B, N, K] and v [B, N, V] were written: [B, Q, V]."""
        if not self.normalised:
            return _through_kernel(k, v, q, self.decay, Add())
        read = _through_kernel(k, torch.cat([v, torch.ones_like(v[..., :1])], dim=-1), q, self.decay, Add())
        return read[..., :-1] / read[..., -1:]

    def __str__(self) -> str:
        return ("normalised sum" if self.normalised else "sum") + _decaying(self.decay)


@dataclass(frozen=True)
class DeltaRule:
    """The rule S <- decay S, then S <- S + beta k (v - S^T k)^T: least mean squares in one pass.

    DeltaNet 2102.11174, Gated DeltaNet 2412.06464.
    """

    beta: float = 1.0
    decay: float = 1.0

    def __call__(self, k: Tensor, v: Tensor, q: Tensor) -> Tensor:
        """Return readings, as `Sum`."""
        beta = k.new_full((1, k.shape[1] + q.shape[1], 1), self.beta)
        return _through_kernel(k, v, q, self.decay, Delta(beta))

    def __str__(self) -> str:
        return f"delta, beta {self.beta:g}" + _decaying(self.decay)


@dataclass(frozen=True)
class LeastSquares:
    """The rule S = (H + penalty I)^-1 G, where H <- decay H + k k^T and G <- decay G + k v^T.

    It is recursive least squares, as in MesaNet 2506.05233.
    """

    penalty: float = 0.01
    decay: float = 1.0

    def __call__(self, k: Tensor, v: Tensor, q: Tensor) -> Tensor:
        """Return readings, as `Sum`, by a loop over the writes."""
        pairs = torch.cat([k, v], dim=2)
        moments = k.new_zeros(len(k), k.shape[2], pairs.shape[2])
        for t in range(k.shape[1]):
            moments = self.decay * moments + k[:, t, :, None] * pairs[:, t, None, :]
        gram, cross = moments.split_with_sizes([k.shape[2], v.shape[2]], dim=2)
        penalty = self.penalty * torch.eye(k.shape[2], dtype=k.dtype, device=k.device)
        memory: Tensor = torch.linalg.solve(gram + penalty, cross)
        return q @ memory

    def __str__(self) -> str:
        return f"least squares, penalty {self.penalty:g}" + _decaying(self.decay)


Rule = Sum | DeltaRule | LeastSquares

RULES: tuple[Rule, ...] = (
    Sum(),
    Sum(decay=0.98),
    DeltaRule(),
    DeltaRule(beta=0.5),
    DeltaRule(decay=0.98),
    LeastSquares(),
    LeastSquares(decay=0.98),
)
"""Rules that are compared unless others are named."""

DECAYS: tuple[Rule, ...] = tuple(Sum(decay) for decay in (1.0, 0.99, 0.98, 0.96, 0.95, 0.94, 0.9, 0.8))
"""Sums that forget, from not at all to within a few writes."""


def named(text: str) -> Rule:
    """Return the rule with a name such as `delta, beta 0.5, decay 0.98`.

    Raises UserError: there is no rule with that name.
    """
    kind, *settings = text.split(", ")
    kinds: dict[str, Callable[..., Rule]] = {
        "sum": Sum,
        "normalised sum": partial(Sum, normalised=True),
        "delta": DeltaRule,
        "least squares": LeastSquares,
    }
    try:
        pairs = [setting.split(" ") for setting in settings]
        return kinds[kind](**{name: _share(value) for name, value in pairs})
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"'{text}' is no update rule; they are called {'; '.join(map(str, RULES))}; normalised sum; or so"
            " with other numbers."
        ) from None


def _share(text: str) -> float:
    """Return a number from 0 to 2, the range of all settings of rules. Raises ValueError: it is none."""
    value = number_between(text, 0, 2)
    if value is None:
        raise ValueError(text)
    return value


@dataclass(frozen=True)
class Trials:
    """Random sequences: how many, in how many dimensions, and where and in which dtype they are computed."""

    count: int = 32
    dim: int = 64
    seed: int = 0
    device: str = "cpu"
    dtype: torch.dtype = torch.float64

    def stream(self, draw: str) -> Stream:
        """Return a random stream for each trial."""
        index = torch.arange(self.count, device=self.device)
        return Stream.of(index, seed=self.seed, split="untrained").child(draw)

    def directions(self, draw: str, count: int) -> Tensor:
        """Draw [trials, count, dim] uniformly on the sphere."""
        numbers = self.stream(draw).normals(count * self.dim).view(self.count, count, self.dim)
        return normalize(numbers.to(self.dtype), dim=-1)


def capacity(
    rules: Sequence[Rule] = RULES,
    *,
    pairs: Sequence[int] = (16, 32, 48, 64, 96, 128, 256),
    correlations: Sequence[float] = (0.0, 0.3, 0.6),
    trials: Trials = Trials(),
) -> list[Row]:
    """Return how many keys written once are recalled, and the squared error over the squares of the values.

    A key is sqrt(c) common + sqrt(1 - c) own, the first a direction that the sequence's keys share, the
    second one at right angles to it.

    Args:
        pairs: numbers of keys.
        correlations: c, the mean cosine of keys to each other.
    """
    rows: list[Row] = []
    for correlation in correlations:
        for count in pairs:
            k, v = _correlated_keys(trials, count, correlation), trials.directions("values", count)
            for rule in rules:
                read = rule(k, v, k)
                error = float((read - v).square().sum() / v.square().sum())
                accuracy = frequency(nearest(read, v) == torch.arange(count, device=trials.device))
                rows.append(
                    {
                        "rule": str(rule),
                        "dim": trials.dim,
                        "correlation": correlation,
                        "pairs": count,
                        "accuracy": accuracy,
                        "error": error,
                    }
                )
    return rows


def _correlated_keys(trials: Trials, count: int, correlation: float) -> Tensor:
    common, own = trials.directions("common", 1), trials.directions("keys", count)
    return around(common, own, correlation) if correlation else own


def overwriting(
    rules: Sequence[Rule] = RULES,
    *,
    writes: Sequence[int] = (1, 2, 3, 5, 9, 17),
    keys: int = 8,
    trials: Trials = Trials(),
) -> list[Row]:
    """Return how often the last value of a key is recalled, and how often an earlier one.

    Every key is written so many times, all in random order, each time with another value.

    Args:
        writes: writes of every key.
        keys: number of keys.
    """
    rows: list[Row] = []
    own = torch.arange(keys, device=trials.device)
    for count in writes:
        q, v = trials.directions("keys", keys), trials.directions("values", keys * count)
        which = trials.stream("order").shuffle(keys * count) % keys
        k = q.gather(1, which[:, :, None].expand(-1, -1, trials.dim))
        time = torch.arange(1, keys * count + 1, device=trials.device)
        last = ((which[:, None] == own[:, None]) * time).argmax(dim=2)
        for rule in rules:
            recalled = nearest(rule(k, v, q), v)
            stale = (which.gather(1, recalled) == own) & (recalled != last)
            rows.append(
                {
                    "rule": str(rule),
                    "dim": trials.dim,
                    "keys": keys,
                    "writes": count,
                    "accuracy": frequency(recalled == last),
                    "stale": frequency(stale),
                }
            )
    return rows


def retention(rules: Sequence[Rule] = DECAYS, *, pairs: int = 32, trials: Trials = Trials()) -> list[Row]:
    """Return what forgetting costs and gains, and the lesser of the two.

    It costs recall of the oldest quarter of keys written once, and gains recall of the last value of 8 keys
    written five times.
    """
    k, v = trials.directions("keys", pairs), trials.directions("values", pairs)
    oldest = torch.arange(pairs // 4, device=trials.device)
    rows: list[Row] = []
    for rule, overwritten in zip(rules, overwriting(rules, writes=(5,), trials=trials), strict=True):
        retained = frequency(nearest(rule(k, v, k[:, : pairs // 4]), v) == oldest)
        scores = {"retained": retained, "overwritten": overwritten["accuracy"]}
        rows.append(
            {"rule": str(rule), "dim": trials.dim, "pairs": pairs, **scores, "least": min(scores.values())}
        )
    return rows


def blend(
    rules: Sequence[Rule] = (Sum(normalised=True), *RULES),
    *,
    values: Sequence[float] = (5.0, 10.0),
    trials: Trials = Trials(),
) -> list[Row]:
    """Return the reading after numbers are written to one key, one after the other.

    The weight in it of the last is that on old 0, of the one before on old 1, and so on. Of 5 and 10 a sum
    makes 15, a mean 7.5, and a rule that overwrites 10.
    """
    v = torch.eye(len(values), max(len(values), trials.dim), dtype=trials.dtype, device=trials.device)[None]
    k = torch.zeros_like(v)
    k[..., 0] = 1
    rows: list[Row] = []
    for rule in rules:
        weights = rule(k, v, k[:, :1])[0, 0, : len(values)].tolist()
        recalled = sum(weight * value for weight, value in zip(weights, values, strict=True))
        rows.append(
            {
                "rule": str(rule),
                "recalled": recalled,
                **{f"weight_on_old_{j}": weight for j, weight in enumerate(reversed(weights))},
            }
        )
    return rows


def reflections(
    *, betas: Sequence[float] = (0.5, 1.0, 2.0), tokens: int = 64, trials: Trials = Trials()
) -> list[Row]:
    """Compare PaTH's scores (2505.16381) with the weights by which a delta rule reads values.

    The scores are those before the softmax, with unit keys for directions. Returns, as largest differences:

        scores: PaTH's scores, times the beta of the value, less the delta rule's weights.
        reflection: a factor I - beta k k^T less its own inverse. It is zero where the factor is a reflection:
            with beta 2, or with keys of norm sqrt(2) and no beta.
    """
    q, k = trials.directions("queries", tokens), trials.directions("keys", tokens)
    every = torch.eye(tokens, dtype=k.dtype, device=k.device).expand(trials.count, -1, -1)
    rows: list[Row] = []
    for beta in betas:
        weights, _ = matrix_state(
            q[:, :, None],
            k[:, :, None],
            every[:, :, None],
            update=Delta(k.new_full((1, tokens, 1), beta)),
            scale=1.0,
        )
        one = torch.eye(trials.dim, dtype=k.dtype, device=k.device)
        factors = one - beta * k[:, :, :, None] * k[:, :, None, :]
        differences = {
            "scores": beta * _accumulated(q, k, beta) - weights[:, :, 0],
            "reflection": factors @ factors - one,
        }
        rows.append(
            {
                "rule": str(DeltaRule(beta)),
                "dim": trials.dim,
                "tokens": tokens,
                **{name: float(x.abs().max()) for name, x in differences.items()},
            }
        )
    return rows


def _accumulated(q: Tensor, k: Tensor, beta: float) -> Tensor:
    """Return scores [B, N, N] of every query with each key, changed by all directions after the key.

    q_i^T H_i ... H_{j+1} k_j, with H_t = I - beta k_t k_t^T.
    """
    keys, scores = torch.zeros_like(k), []
    for t in range(k.shape[1]):
        keys = keys - beta * (keys @ k[:, t, :, None]) * k[:, t, None, :]
        keys[:, t] = k[:, t]
        scores.append(keys @ q[:, t, :, None])
    return torch.cat(scores, dim=2).mT


def _through_kernel(k: Tensor, v: Tensor, q: Tensor, decay: float, update: Update) -> Tensor:
    """Read after writing. Reads stand after the writes as tokens that write nothing and let nothing decay."""
    writes, reads = k.shape[1], q.shape[1]
    queries, keys = torch.cat([torch.zeros_like(k), q], dim=1), torch.cat([k, torch.zeros_like(q)], dim=1)
    values = torch.cat([v, v.new_zeros(len(v), reads, v.shape[2])], dim=1)
    log_decay = None
    if decay != 1:
        log_decay = torch.cat([k.new_full((1, writes, 1), math.log(decay)), k.new_zeros(1, reads, 1)], dim=1)
    read, _ = matrix_state(
        queries[:, :, None],
        keys[:, :, None],
        values[:, :, None],
        log_decay=log_decay,
        update=update,
        scale=1.0,
    )
    return read[:, writes:, 0]


def nearest(read: Tensor, v: Tensor) -> Tensor:
    """Return the number [B, Q] of the value [B, N, V] with the largest product with each read [B, Q, V]."""
    return (read @ v.mT).argmax(dim=-1)


def frequency(happens: Tensor) -> float:
    """Return in what share of cases something happens."""
    return float(happens.double().mean())


def _decaying(decay: float) -> str:
    return "" if decay == 1 else f", decay {decay:g}"
