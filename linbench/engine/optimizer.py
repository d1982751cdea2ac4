"""AdamW for a stack: each replica has its own learning rate, weight decay and clipping."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.engine.stack import Stack
from linbench.kernels.adamw import Moments, adamw
from linbench.models.base import Rule


class Rates(NamedTuple):
    """Of each replica: the peak learning rate and the weight decay. Of each step: the share of the peak."""

    peaks: Sequence[float]
    decays: Sequence[float]
    shares: Sequence[float]


class AdamW:
    """Decoupled weight decay (1711.05101) after clipping the norm of each replica's gradient.

    Matrices decay and nothing else does, unless a rule says otherwise of a parameter. Everything stays on the
    device, what depends on the number of the step too, so that a step can be captured.
    """

    def __init__(
        self,
        stack: Stack,
        rules: Mapping[str, Rule],
        rates: Rates,
        *,
        beta1: float,
        beta2: float,
        clip: float | None,
    ) -> None:
        """`rules`: by parameter. `clip`: the largest norm; None: any."""
        self.stack, self.rules, self.rates, self.betas, self.clip = stack, rules, rates, (beta1, beta2), clip
        self.moments = [
            Moments(torch.zeros_like(flat.weights), torch.zeros_like(flat.weights)) for flat in stack.flats
        ]
        device = stack.flats[0].weights.device
        self.peaks, self.decays = (
            torch.tensor(values, dtype=torch.float64, device=device) for values in (rates.peaks, rates.decays)
        )
        shares = [
            (share, 1 - beta1**step, 1 - beta2**step) for step, share in enumerate(rates.shares, start=1)
        ]
        self.schedule = torch.tensor(shares, dtype=torch.float64, device=device)
        self.steps = torch.zeros(1, dtype=torch.int64, device=device)
        """Taken so far."""
        self.scales = [flat.spread([rules[name].lr_scale for name in flat.names]) for flat in stack.flats]
        self.decaying = [
            flat.spread(
                [_decays(shape, rules[name]) for name, shape in zip(flat.names, flat.shapes, strict=True)]
            )
            for flat in stack.flats
        ]

    @torch.no_grad()
    def step(self) -> None:
        """One step with the gradients that there are."""
        now = self.schedule.index_select(0, self.steps)[0]
        norms = None if self.clip is None else self.norms()
        for flat, moments, scale, decaying in zip(
            self.stack.flats, self.moments, self.scales, self.decaying, strict=True
        ):
            adamw(
                flat.weights, flat.gradients, moments, now,
                rates=self.peaks, decays=self.decays, scale=scale, decaying=decaying, norms=norms, clip=self.clip or 0.0, betas=self.betas,
            )  # fmt: skip
        self.steps += 1

    def norms(self) -> Tensor:
        """[R]: the norm of each replica's gradient."""
        each = [torch.linalg.vector_norm(flat.gradients, dim=1) for flat in self.stack.flats]
        norms: Tensor = (
            each[0]
            if len(each) == 1
            else torch.linalg.vector_norm(torch.stack([x.to(each[0].dtype) for x in each]), dim=0)
        )
        return norms

    def part(self, stack: Stack, replicas: Sequence[int]) -> "AdamW":
        """For `stack`, a part of its own, with what these replicas have come to."""
        peaks, decays = ([values[r] for r in replicas] for values in (self.rates.peaks, self.rates.decays))
        kept = AdamW(
            stack,
            self.rules,
            Rates(peaks, decays, self.rates.shares),
            beta1=self.betas[0],
            beta2=self.betas[1],
            clip=self.clip,
        )
        kept.steps = self.steps.clone()
        kept.moments = [Moments(*(x[list(replicas)] for x in moments)) for moments in self.moments]
        return kept


def _decays(shape: Sequence[int], rule: Rule) -> float:
    """Whether a parameter of that shape does: 1 or 0."""
    return float(len(shape) > 1 if rule.decay is None else rule.decay)
