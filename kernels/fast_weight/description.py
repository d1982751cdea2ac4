"""The description of a fast weight: its small network, the step that changes it, and its state."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

Maps = tuple[Tensor, ...]
"""One tensor [B, H, I, O] for each map of the network."""


class Network(NamedTuple):
    """A network f from keys [K] to values [V], the memory of a head, and what it is asked to do.

    Args:
        kind: "linear" is x W; "mlp" gelu(x W_1) W_2, with gelu by tanh; "gated" (silu(x W_1) * x W_2) W_3.
        bias: whether every map has a bias. It is the last row of its matrix, whose input is one.
        residual: whether x is added to f(x), after the norm if there is one.
        loss: of a token: "squares" |f(k) - v|^2 / 2, or "product" -f(k) . v.
    """

    kind: Literal["linear", "mlp", "gated"] = "linear"
    bias: bool = False
    residual: bool = False
    loss: Literal["squares", "product"] = "squares"

    def shapes(self, key_dim: int, hidden: int, value_dim: int) -> tuple[tuple[int, int], ...]:
        """Return rows and columns of every map's matrix, with its bias."""
        extra = int(self.bias)
        into, out = (key_dim + extra, hidden), (hidden + extra, value_dim)
        return {"linear": ((key_dim + extra, value_dim),), "mlp": (into, out), "gated": (into, into, out)}[
            self.kind
        ]

    def token_floats(self, shapes: Sequence[tuple[int, int]]) -> int:
        """Return how many floats a token's key, value and rate are, for maps of these shapes."""
        return shapes[0][0] - self.bias + shapes[-1][1] + 1


class Step(NamedTuple):
    """The step by which a mini-batch of tokens changes the memory.

    Gradients are those at the weights that a mini-batch begins with. Mini-batches stand at fixed positions:
    the first has tokens 0 to size - 1.

    Args:
        size: tokens of a mini-batch.
        reads: which weights a token is read with: "own" has its own and all earlier gradients in it; "before"
            is those that its mini-batch begins with.
        momentum: whether a part of the last change is made again.
        decay: whether weights are multiplied by what is kept of them.
        orthogonal: steps of Newton-Schulz that make the change of every matrix orthogonal; 0 is none. It is
            the change of every token with reads = "own", that of the mini-batch with "before".
        keeps_norms: whether each column keeps the length that it has in the initial weights. Only with
            reads = "before".
        window: tokens whose gradients a token's change sums, itself and those just before it. Only with
            reads = "own" if there are several.
        whole: whether a state is always one between two mini-batches. Tokens of an unfinished one change
            nothing that is returned, and are given again with those that follow. Only without a window.
    """

    size: int
    reads: Literal["own", "before"] = "own"
    momentum: bool = False
    decay: bool = False
    orthogonal: int = 0
    keeps_norms: bool = False
    window: int = 1
    whole: bool = False

    @property
    def gathers(self) -> bool:
        """True if there are unfinished mini-batches, whose changes are kept beside the weights."""
        return self.size > 1 and not self.whole

    @property
    def averaged(self) -> int:
        """Number of gates that are averaged over a mini-batch."""
        return self.momentum + self.decay if self.reads == "before" else 0

    def floats(self, network: Network, shapes: Sequence[tuple[int, int]]) -> int:
        """Return how many floats a head carries from token to token, for maps of these shapes."""
        copies = (1 + self.gathers + self.momentum) * sum(rows * columns for rows, columns in shapes)
        return copies + self.gathers * self.averaged + (self.window - 1) * network.token_floats(shapes)


class Memory(NamedTuple):
    """The memory of heads from token to token.

    weights: those that the mini-batch begins with. gathered: what the tokens of an unfinished mini-batch
    change. momentum: the last change, empty without momentum. gates: sums of momentum and of what is kept
    [B, H, N] over an unfinished mini-batch, if they are averaged. window: key, value and rate of each of the
    last tokens [B, H, window - 1, K + V + 1], with a rate of zero for those before the first.
    """

    weights: Maps
    gathered: Maps
    momentum: Maps
    gates: Tensor | None
    window: Tensor

    @classmethod
    def start(cls, weights: Sequence[Tensor], network: Network, step: Step, batch: int) -> Self:
        """Return the memory before the first token, for weights [H, I, O] of its maps."""
        spread = tuple(w.expand(batch, *w.shape) for w in weights)
        token = network.token_floats([(w.shape[-2], w.shape[-1]) for w in weights])
        window = weights[0].new_zeros(batch, len(weights[0]), step.window - 1, token)
        return cls(spread, (), (), None, window)._with_zeros(step)

    @classmethod
    def unpack(cls, state: Tensor, shapes: Sequence[tuple[int, int]], network: Network, step: Step) -> Self:
        """Return the memory that `pack` has packed as [B, H, N]."""
        copies, count = 1 + step.gathers + step.momentum, len(shapes)
        sizes = [rows * columns for rows, columns in shapes] * copies
        tokens = step.window - 1, network.token_floats(shapes)
        *parts, gates, window = torch.split(
            state, [*sizes, step.gathers * step.averaged, tokens[0] * tokens[1]], dim=-1
        )
        maps = tuple(
            part.view(*part.shape[:-1], *shape) for part, shape in zip(parts, [*shapes] * copies, strict=True)
        )
        memory = cls(
            maps[:count],
            maps[count : 2 * count] if step.gathers else (),
            maps[-count:] if step.momentum else (),
            gates if gates.numel() else None,
            window.view(*window.shape[:-1], *tokens),
        )
        return memory._with_zeros(step)

    def _with_zeros(self, step: Step) -> Self:
        """Fill in zeros for what is not there but belongs to a step."""
        zeros = tuple(torch.zeros_like(w) for w in self.weights)
        gates = self.gates
        if gates is None and step.averaged:
            gates = self.weights[0].new_zeros(*self.weights[0].shape[:2], step.averaged)
        momentum = self.momentum or (zeros if step.momentum else ())
        return self._replace(gathered=self.gathered or zeros, momentum=momentum, gates=gates)

    def pack(self, step: Step) -> Tensor:
        """Return all of it as one tensor [B, H, N]; what is zero between two mini-batches of one, is not."""
        gathered = self.gathered if step.gathers else ()
        parts = [part.flatten(-2) for part in (*self.weights, *gathered, *self.momentum)]
        if self.gates is not None and step.gathers:
            parts.append(self.gates)
        return torch.cat([*parts, self.window.flatten(-2)], dim=-1)
