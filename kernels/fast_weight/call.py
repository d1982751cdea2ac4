"""The arguments of a fast weight in the form in which all backends take them."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from linbench.kernels.fast_weight.description import Maps, Memory, Network, Step

NORM_EPS = 1e-6
"""Added to the variance inside of the network's layer norm, as in the code of 2407.04620."""


class Call(NamedTuple):
    """Arguments of one call, checked, in at least float32.

    q, k: [B, T, H, K]. v: [B, T, H, V]. rates: [B, T, H, M], M being one or the number of maps. initial:
    weights [H, I, O] of each map. norm: weight and bias [H, V]. scales: [size]. log_momentum, log_keep,
    step_sizes: [B, T, H]. state: [B, H, N]. seen: [B], given with `state`.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    rates: Tensor
    initial: Maps
    network: Network
    step: Step
    norm: tuple[Tensor, Tensor] | None
    scales: Tensor | None
    log_momentum: Tensor | None
    log_keep: Tensor | None
    step_sizes: Tensor | None
    state: Tensor | None
    seen: Tensor | None

    def memory(self) -> Memory:
        """Return the memory before the first token of this call."""
        if self.state is None:
            return Memory.start(self.initial, self.network, self.step, len(self.q))
        shapes = [(w.shape[-2], w.shape[-1]) for w in self.initial]
        return Memory.unpack(self.state, shapes, self.network, self.step)

    def learned(self, memory: Memory) -> Maps:
        """Return what changes sum: keys, values and rates [B, H, window - 1 + T, ...], the window's first."""
        given = tuple(x.transpose(1, 2) for x in (self.k, self.v, self.rates))
        if self.step.window == 1:
            return given
        before = torch.split(memory.window, [x.shape[-1] for x in given], dim=-1)
        return tuple(torch.cat(pair, dim=2) for pair in zip(before, given, strict=True))

    def remembered(self, learned: Maps, memory: Memory) -> Memory:
        """Return the memory with the window after the last token, of what `learned` returned."""
        if self.step.window == 1:
            return memory
        return memory._replace(window=torch.cat(learned, dim=-1)[:, :, self.q.shape[1] :])

    def row(self, b: int) -> Self:
        """Return the call of one row of the batch."""

        def one(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[b : b + 1]

        q, k, v, rates = (x[b : b + 1] for x in (self.q, self.k, self.v, self.rates))
        return self._replace(
            q=q,
            k=k,
            v=v,
            rates=rates,
            log_momentum=one(self.log_momentum),
            log_keep=one(self.log_keep),
            step_sizes=one(self.step_sizes),
            state=one(self.state),
            seen=one(self.seen),
        )
