"""AdamW for a stack: each replica has its own learning rate, weight decay and clipping."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from linbench.models.base import Rule
from linbench.stack import Stack

EPSILON = 1e-8


class AdamW:
    """Decoupled weight decay (1711.05101) after clipping the norm of each replica's gradient.

    Matrices decay and nothing else does, unless a rule says otherwise of a parameter. Everything stays on the device, so that a step can
    be captured.
    """

    def __init__(self, stack: Stack, rules: Mapping[str, Rule], *, weight_decay: Sequence[float], beta1: float, beta2: float, clip: float | None) -> None:
        """`rules`: by parameter. `weight_decay`: one for each replica. `clip`: the largest norm; None: any."""
        self.stack, self.rules, self.beta1, self.beta2, self.clip = stack, rules, beta1, beta2, clip
        self.weight_decay = list(weight_decay)
        self.moments = [(torch.zeros_like(flat.weights), torch.zeros_like(flat.weights)) for flat in stack.flats]

        def numbers(values: Any) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=stack.flats[0].weights.device)

        self.steps = numbers(0.0)
        self.scales = [numbers([[rules[name].lr_scale] for name in flat.names]) for flat in stack.flats]
        self.decays = [numbers([[float(_decays(flat.parameters[name], rules[name]))] for name in flat.names]) * numbers(weight_decay) for flat in stack.flats]

    @torch.no_grad()
    def step(self, rate: Tensor) -> None:
        """One step at learning rates `rate` [R], with the gradients that there are; these are zero afterwards."""
        self.steps += 1
        if self.clip is not None:
            shrink = (self.clip / (self.norms() + 1e-6)).clamp(max=1.0)
            for flat in self.stack.flats:
                flat.gradients.mul_(flat.spread(shrink.expand(len(flat.names), -1)))
        mean_bias, square_bias = 1 - self.beta1**self.steps, 1 - self.beta2**self.steps
        for flat, (mean, square), scale, decay in zip(self.stack.flats, self.moments, self.scales, self.decays, strict=True):
            rates = scale * rate
            mean.lerp_(flat.gradients, 1 - self.beta1)
            square.mul_(self.beta2).addcmul_(flat.gradients, flat.gradients, value=1 - self.beta2)
            flat.weights.mul_(flat.spread(1 - rates * decay))
            flat.weights.addcdiv_(mean * flat.spread(-rates / mean_bias), (square / square_bias.to(square.dtype)).sqrt_().add_(EPSILON))
            flat.gradients.zero_()

    def norms(self) -> Tensor:
        """[R]: the norm of each replica's gradient."""
        each = [torch.linalg.vector_norm(x.grad.flatten(1), dim=1).double() for x in self.stack.parameters.values() if x.grad is not None]
        norms: Tensor = torch.linalg.vector_norm(torch.stack(each), dim=0)
        return norms

    def part(self, stack: Stack, replicas: Sequence[int]) -> "AdamW":
        """For `stack`, a part of its own, with what these replicas have come to."""
        kept = AdamW(stack, self.rules, weight_decay=[self.weight_decay[r] for r in replicas], beta1=self.beta1, beta2=self.beta2, clip=self.clip)
        kept.steps = self.steps.clone()
        kept.moments = [(flat.part(mean, replicas), flat.part(square, replicas)) for flat, (mean, square) in zip(self.stack.flats, self.moments, strict=True)]
        return kept


def _decays(parameter: Tensor, rule: Rule) -> bool:
    """Whether a parameter [R, ...] does."""
    return parameter.dim() > 2 if rule.decay is None else rule.decay
