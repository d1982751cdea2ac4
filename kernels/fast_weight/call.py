"""The arguments of a fast weight in the form in which all backends take them."""

from typing import NamedTuple, Self

from torch import Tensor

from linbench.kernels.fast_weight.description import Maps, Memory, Network, Step

NORM_EPS = 1e-6
"""Added to the variance inside of the network's layer norm, as in the code of 2407.04620."""


class Call(NamedTuple):
    """Arguments of one call, checked, in at least float32.

    q, k: [B, T, H, K]. v: [B, T, H, V]. rates: [B, T, H, M], M being one or the number of maps. initial:
    weights [H, I, O] of each map. norm: weight and bias [H, V]. scales: [size]. log_momentum, log_keep:
    [B, T, H]. state: [B, H, N]. seen: [B], given with `state`.
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
    state: Tensor | None
    seen: Tensor | None

    def memory(self) -> Memory:
        """Return the memory before the first token of this call."""
        if self.state is None:
            return Memory.start(self.initial, self.step, len(self.q))
        return Memory.unpack(self.state, [(w.shape[-2], w.shape[-1]) for w in self.initial], self.step)

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
            state=one(self.state),
            seen=one(self.seen),
        )
