"""Models of one structure as one program: their tensors are stacked along a new first dimension."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from linbench.kernels.adamw import Layout


class Flat:
    """The parameters of one dtype in one tensor `weights` [n], and their gradients in `gradients` [n].

    Each parameter is [R, ...] as a whole, R replicas one after another. An optimizer works on all of them at
    once. Gaps between parameters stay zero.
    """

    def __init__(self, stacked: Mapping[str, Tensor]) -> None:
        """Copy initial values, given by name, each [R, ...]."""
        self.names, self.stacked_shapes = list(stacked), [x.shape for x in stacked.values()]
        first = next(iter(stacked.values()))
        self.layout = Layout.of(len(first), [prod(shape[1:]) for shape in self.stacked_shapes])
        self.weights, self.gradients = (first.new_zeros(self.layout.size) for _ in range(2))
        self._places = list(self.views(self.gradients).values())
        weights = self.views(self.weights)
        _copy([x.detach() for x in stacked.values()], list(weights.values()))
        self.parameters = {name: x.requires_grad_() for name, x in weights.items()}

    @property
    def shapes(self) -> list[torch.Size]:
        """The shapes of the parameters of one replica."""
        return [shape[1:] for shape in self.stacked_shapes]

    def gather(self, gradients: Sequence[Tensor | None]) -> None:
        """Copy gradients, one for each parameter in order; None stands for zeros."""
        _copy(gradients, self._places)

    def select(self, values: Tensor, replicas: Sequence[int], part: "Flat") -> Tensor:
        """Return the values [n] of some replicas in the layout of `part`, the flat of these alone."""
        selected = torch.zeros_like(part.weights)
        rows = [x[list(replicas)] for x in self.views(values).values()]
        _copy(rows, list(part.views(selected).values()))
        return selected

    def views(self, values: Tensor) -> dict[str, Tensor]:
        """Return views of values [n] by the parameters' names, each [R, ...]."""
        parts = zip(self.names, self.stacked_shapes, self.layout.split(values), strict=True)
        return {name: part.view(shape) for name, shape, part in parts}


def _copy(values: Sequence[Tensor | None], places: Sequence[Tensor]) -> None:
    """Copy values to their places, which are contiguous; None stands for zeros."""
    pairs = list(zip(values, places, strict=True))
    # on a GPU one launch copies all values that are contiguous, as their places are
    alike = [(x, place) for x, place in pairs if x is not None and x.is_contiguous()]
    if alike:
        torch._foreach_copy_([place for _, place in alike], [x for x, _ in alike])
    for x, place in pairs:
        if x is None:
            place.zero_()
        elif not x.is_contiguous():
            place.copy_(x)


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
        # in the order of the module, not of a set, which changes from process to process
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
