"""AdamW for a stack: each replica has its own learning rate, weight decay and clipping."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.engine.stack import Flat, Stack
from linbench.kernels.adamw import Moments, Now, update
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
        self.updates = [
            update(
                flat.weights,
                flat.layout,
                scales=[rules[name].lr_scale for name in flat.names],
                decaying=decaying(flat, rules),
            )
            for flat in stack.flats
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with the gradients of the stack."""
        now = Now(
            self.schedule.index_select(0, self.steps)[0],
            self.peaks,
            self.decays,
            None if self.clip is None else self.norms(),
            self.clip or 0.0,
            self.betas,
        )
        for own, flat, moments in zip(self.updates, self.stack.flats, self.moments, strict=True):
            own.step(flat.weights, flat.gradients, moments, now)
        self.steps += 1

    def norms(self) -> Tensor:
        """Return the norm of each replica's gradient: [R]."""
        norms_of_flats = [
            own.norms(flat.gradients) for own, flat in zip(self.updates, self.stack.flats, strict=True)
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
        optimizer.moments = [
            Moments(*(before.select(x, replicas, after) for x in moments))
            for before, after, moments in zip(self.stack.flats, stack.flats, self.moments, strict=True)
        ]
        return optimizer


def decaying(flat: Flat, rules: Mapping[str, Rule]) -> list[float]:
    """Return 1 for each parameter of a flat that decays, and 0 for each other."""
    return [_decays(shape, rules[name]) for name, shape in zip(flat.names, flat.shapes, strict=True)]


def _decays(shape: Sequence[int], rule: Rule) -> float:
    return float(len(shape) > 1 if rule.decay is None else rule.decay)
