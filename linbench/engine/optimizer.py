"""AdamW for a stack: each replica has its own learning rate, weight decay and clipping."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.engine.stack import Flat, Stack
from linbench.kernels.adamw import Moments, adamw
from linbench.models.base import Rule


class Rates(NamedTuple):
    """Learning rates and weight decays of a stack.

    peaks: peak learning rate of each replica. decays: weight decay of each replica. shares: factor of the
    peak at each step, the same for all replicas.
    """

    peaks: Sequence[float]
    decays: Sequence[float]
    shares: Sequence[float]


class AdamW:
    """AdamW with decoupled weight decay (arXiv 1711.05101), after clipping each replica's gradient norm.

    Only matrices decay, unless the rule of a parameter says otherwise. Everything stays on the device, also
    what depends on the number of the step, so that a step can be captured.
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
        """Make an optimizer of a stack's parameters that has taken no step.

        Args:
            rules: learning rate scale and decay by the name of a parameter.
            clip: largest norm of a replica's gradient; None for no clipping.
        """
        self.stack, self.rules, self.rates, self.betas, self.clip = stack, rules, rates, (beta1, beta2), clip
        self.moments = [
            Moments(torch.zeros_like(flat.weights), torch.zeros_like(flat.weights)) for flat in stack.flats
        ]
        device = stack.flats[0].weights.device
        self.peaks = torch.tensor(rates.peaks, dtype=torch.float64, device=device)
        self.decays = torch.tensor(rates.decays, dtype=torch.float64, device=device)
        # by step: the factor of the learning rate, and the corrections of both moments' bias
        schedule = [
            (share, 1 - beta1**step, 1 - beta2**step) for step, share in enumerate(rates.shares, start=1)
        ]
        self.schedule = torch.tensor(schedule, dtype=torch.float64, device=device)
        self.steps = torch.zeros(1, dtype=torch.int64, device=device)
        """Number of steps taken."""
        self.scales = [flat.spread([rules[name].lr_scale for name in flat.names]) for flat in stack.flats]
        self.decaying = [flat.spread(_decaying(flat, rules)) for flat in stack.flats]

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients of the stack."""
        now = self.schedule.index_select(0, self.steps)[0]
        norms = None if self.clip is None else self.norms()
        for flat, moments, scale, decaying in zip(
            self.stack.flats, self.moments, self.scales, self.decaying, strict=True
        ):
            adamw(
                flat.weights,
                flat.gradients,
                moments,
                now,
                rates=self.peaks,
                decays=self.decays,
                scale=scale,
                decaying=decaying,
                norms=norms,
                clip=self.clip or 0.0,
                betas=self.betas,
            )
        self.steps += 1

    def norms(self) -> Tensor:
        """Return the norm of each replica's gradient: [R]."""
        norms_of_flats: list[Tensor] = [
            torch.linalg.vector_norm(flat.gradients, dim=1) for flat in self.stack.flats
        ]
        if len(norms_of_flats) == 1:
            return norms_of_flats[0]
        in_one_dtype = torch.stack([x.to(norms_of_flats[0].dtype) for x in norms_of_flats])
        norms: Tensor = torch.linalg.vector_norm(in_one_dtype, dim=0)
        return norms

    def part(self, stack: Stack, replicas: Sequence[int]) -> "AdamW":
        """Return the optimizer of some replicas, with the moments and steps that they have.

        Args:
            stack: the stack of these replicas alone.
            replicas: their numbers in the present stack.
        """
        peaks = [self.rates.peaks[r] for r in replicas]
        decays = [self.rates.decays[r] for r in replicas]
        optimizer = AdamW(
            stack,
            self.rules,
            Rates(peaks, decays, self.rates.shares),
            beta1=self.betas[0],
            beta2=self.betas[1],
            clip=self.clip,
        )
        optimizer.steps = self.steps.clone()
        optimizer.moments = [Moments(*(x[list(replicas)] for x in moments)) for moments in self.moments]
        return optimizer


def _decaying(flat: Flat, rules: Mapping[str, Rule]) -> list[float]:
    """Return 1 for each parameter that decays, and 0 for each other."""
    return [_decays(shape, rules[name]) for name, shape in zip(flat.names, flat.shapes, strict=True)]


def _decays(shape: Sequence[int], rule: Rule) -> float:
    return float(len(shape) > 1 if rule.decay is None else rule.decay)
