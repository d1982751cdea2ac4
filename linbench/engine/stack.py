"""Models of one structure as one program: their tensors are stacked along a new first dimension."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

_ALIGNED = 64
"""Each parameter begins at a multiple of this many numbers, so that matrix products load aligned memory."""


class Flat:
    """The parameters of one dtype in one tensor `weights` [R, n], and their gradients in `gradients` [R, n].

    A row is a replica. An optimizer works on all of them at once. Gaps between parameters stay zero.
    """

    def __init__(self, stacked: Mapping[str, Tensor]) -> None:
        """Copy initial values, given by name, each [R, ...]."""
        self.names = list(stacked)
        self.replicas = len(next(iter(stacked.values())))
        self.shapes = [x.shape[1:] for x in stacked.values()]
        self.widths = [-(-prod(shape) // _ALIGNED) * _ALIGNED for shape in self.shapes]
        self.weights = next(iter(stacked.values())).new_zeros(self.replicas, sum(self.widths))
        self.gradients = torch.zeros_like(self.weights)
        self._fill(self.weights, [x.detach() for x in stacked.values()])
        self.parameters = {name: x.requires_grad_() for name, x in self.views(self.weights).items()}

    def gather(self, gradients: Sequence[Tensor | None]) -> None:
        """Copy gradients, one for each parameter in order; None stands for zeros."""
        self._fill(self.gradients, gradients)

    def _fill(self, values: Tensor, new_values: Sequence[Tensor | None]) -> None:
        pairs = list(zip(self.views(values).values(), new_values, strict=True))
        targets = [target for target, x in pairs if x is not None]
        sources = [x for _, x in pairs if x is not None]
        torch._foreach_copy_(targets, sources)
        for target, x in pairs:
            if x is None:
                target.zero_()

    def views(self, values: Tensor) -> dict[str, Tensor]:
        """Return views of values [R, n] by the parameters' names, each [R, ...]."""
        parts = zip(self.names, self.shapes, torch.split(values, self.widths, dim=1), strict=True)
        return {
            name: torch.unflatten(part[:, : prod(shape)], 1, shape) if shape else part[:, 0]
            for name, shape, part in parts
        }

    def spread(self, values: Sequence[float]) -> Tensor:
        """Return values [n] for all weights, from one value for each parameter."""
        tensor = torch.tensor(values, dtype=self.weights.dtype, device=self.weights.device)
        return tensor.repeat_interleave(torch.tensor(self.widths, device=self.weights.device))


class Stack:
    """R replicas of one model. Inputs, outputs, parameters and buffers have R in front.

    A single replica is called as a module, with its hooks. Several are called through `torch.vmap`, which
    works for modules that compute with tensors alone.
    """

    def __init__(
        self, models: Sequence[nn.Module], parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
    ) -> None:
        """Take over models, one for each replica.

        Args:
            models: they belong to the stack from now on.
            parameters: trained tensors by name, each [R, ...]; copied.
            buffers: all other tensors by name, each [R, ...]; copied.
        """
        self.models, self.replicas = list(models), len(models)
        self.buffers = {name: x.detach().clone() for name, x in buffers.items()}
        dtypes = dict.fromkeys(x.dtype for x in parameters.values())
        self.flats = [
            Flat({name: x for name, x in parameters.items() if x.dtype == dtype}) for dtype in dtypes
        ]
        self.parameters = {name: x for flat in self.flats for name, x in flat.parameters.items()}
        self._move_in()
        self._leaves = [
            self._leaves_of_model(flat) if self.replicas == 1 else list(flat.parameters.values())
            for flat in self.flats
        ]

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> "Stack":
        """Return a stack of models with their weights. Raises ValueError: they differ in structure."""
        tensors_of_models = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
        kinds = [
            {name: (x.shape, x.dtype, x.requires_grad) for name, x in tensors.items()}
            for tensors in tensors_of_models
        ]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError("models that differ in structure cannot be stacked")
        stacked = {
            name: torch.stack([tensors[name].detach() for tensors in tensors_of_models]) for name in kinds[0]
        }
        # in the order of the module, not of a set, which changes from process to process: checkpoints hold
        # weights by their place
        trained = {name: x for name, x in stacked.items() if kinds[0][name][2]}
        return cls(models, trained, {name: x for name, x in stacked.items() if name not in trained})

    @property
    def model(self) -> nn.Module:
        """The model that is called: the only one, or the first one with the tensors of all."""
        return self.models[0]

    def __call__(self, *args: Tensor) -> Any:
        """Return the models' outputs [R, ...] for arguments [R, ...]."""
        if self.replicas > 1:
            return torch.vmap(self._call_one, randomness="different")(self.parameters, self.buffers, *args)
        return self.model(*(x.squeeze(0) for x in args)).unsqueeze(0)

    def differentiate(self, loss: Tensor) -> None:
        """Compute the gradients of losses [R], each by its replica's parameters; `flats` keep them."""
        leaves = [x for of_flat in self._leaves for x in of_flat]
        gradients = iter(torch.autograd.grad(loss.sum(), leaves, allow_unused=True))
        for flat in self.flats:
            flat.gather([next(gradients) for _ in flat.names])

    def _call_one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], *args: Tensor) -> Any:
        return functional_call(self.model, (parameters, buffers), args)

    def _move_in(self) -> None:
        """Let every model's own parameters and buffers share the memory of the stack's."""
        for r, model in enumerate(self.models):
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                if name in self.parameters:
                    tensor.data = self.parameters[name].detach()[r]
                else:
                    tensor.data = self.buffers[name][r]

    def _leaves_of_model(self, flat: Flat) -> list[Tensor]:
        return [self.model.get_parameter(name) for name in flat.names]

    def part(self, replicas: Sequence[int]) -> "Stack":
        """Return a stack of some replicas as they are now; this stack must not be used any more.

        A stack of one returns itself. Models are handed on, since a module that keeps what it computed cannot
        be copied.
        """
        if self.replicas == 1:
            return self
        rows = list(replicas)
        parameters = {name: x[rows] for name, x in self.parameters.items()}
        buffers = {name: x[rows] for name, x in self.buffers.items()}
        return Stack([self.models[r] for r in replicas], parameters, buffers)
