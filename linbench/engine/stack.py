"""Models of one structure as one program: what differs between them is a first dimension of every tensor."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

_ALIGNED = 64
"""Each parameter begins at a multiple of so many numbers, where matrix products load fastest."""


class Flat:
    """Parameters of one dtype in one tensor, `weights` [R, n], a replica a row; and their gradients in
    another, `gradients` [R, n].

    What is done to all of them is done at once. Between parameters is room that stays zero.
    """

    def __init__(self, stacked: Mapping[str, Tensor]) -> None:
        """`stacked`: initial values by name, each [R, ...]."""
        self.names = list(stacked)
        self.replicas = len(next(iter(stacked.values())))
        self.shapes = [x.shape[1:] for x in stacked.values()]
        self.rooms = [-(-prod(shape) // _ALIGNED) * _ALIGNED for shape in self.shapes]
        self.weights = next(iter(stacked.values())).new_zeros(self.replicas, sum(self.rooms))
        self.gradients = torch.zeros_like(self.weights)
        self._fill(self.weights, [x.detach() for x in stacked.values()])
        self.parameters = {name: x.requires_grad_() for name, x in self.views(self.weights).items()}

    def gather(self, gradients: Sequence[Tensor | None]) -> None:
        """Take these, one for each parameter; None: zeros."""
        self._fill(self.gradients, gradients)

    def _fill(self, values: Tensor, given: Sequence[Tensor | None]) -> None:
        both = list(zip(self.views(values).values(), given, strict=True))
        torch._foreach_copy_([own for own, x in both if x is not None], [x for _, x in both if x is not None])
        for own in (own for own, x in both if x is None):
            own.zero_()

    def views(self, values: Tensor) -> dict[str, Tensor]:
        """Of values [R, n], one for each weight, those of every parameter by name: each [R, ...]."""
        parts = zip(self.names, self.shapes, torch.split(values, self.rooms, dim=1), strict=True)
        return {
            name: torch.unflatten(part[:, : prod(shape)], 1, shape) if shape else part[:, 0]
            for name, shape, part in parts
        }

    def spread(self, values: Sequence[float]) -> Tensor:
        """One for each parameter -> [n], one for each of its weights."""
        given = torch.tensor(values, dtype=self.weights.dtype, device=self.weights.device)
        return given.repeat_interleave(torch.tensor(self.rooms, device=self.weights.device))


class Stack:
    """R replicas of one structure. What goes in and comes out has R in front, and so have parameters and
    buffers.

    One replica is called as the module that it is, with its hooks; several through `torch.vmap`, which any
    module stands that computes with tensors alone.
    """

    def __init__(
        self, models: Sequence[nn.Module], parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
    ) -> None:
        """The models, a replica each, which are the stack's from now on; and by name what is trained and what
        is not: each [R, ...], copied."""
        self.models, self.replicas = list(models), len(models)
        self.buffers = {name: x.detach().clone() for name, x in buffers.items()}
        dtypes = dict.fromkeys(x.dtype for x in parameters.values())
        self.flats = [
            Flat({name: x for name, x in parameters.items() if x.dtype == dtype}) for dtype in dtypes
        ]
        self.parameters = {name: x for flat in self.flats for name, x in flat.parameters.items()}
        self._move_in()
        self._leaves = [
            self._own(flat) if self.replicas == 1 else list(flat.parameters.values()) for flat in self.flats
        ]

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> "Stack":
        """With the weights of these. Raises ValueError: they differ in structure."""
        each = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
        kinds = [
            {name: (x.shape, x.dtype, x.requires_grad) for name, x in tensors.items()} for tensors in each
        ]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError("models that differ in structure cannot be stacked")
        stacked = {name: torch.stack([tensors[name].detach() for tensors in each]) for name in kinds[0]}
        # in the order of the module: a set's order changes from process to process, and checkpoints hold
        # weights by their place
        trained = {name: x for name, x in stacked.items() if kinds[0][name][2]}
        return cls(models, trained, {name: x for name, x in stacked.items() if name not in trained})

    @property
    def model(self) -> nn.Module:
        """The one that is called: the only one, or the first with the tensors of all."""
        return self.models[0]

    def __call__(self, *args: Tensor) -> Any:
        """The models' outputs for args [R, ...]: [R, ...]."""
        if self.replicas > 1:
            return torch.vmap(self._one, randomness="different")(self.parameters, self.buffers, *args)
        return self.model(*(x.squeeze(0) for x in args)).unsqueeze(0)

    def differentiate(self, loss: Tensor) -> None:
        """Leave the gradients of `loss` [R] in the flats, each replica's of its own."""
        found = iter(
            torch.autograd.grad(loss.sum(), [x for leaves in self._leaves for x in leaves], allow_unused=True)
        )
        for flat in self.flats:
            flat.gather([next(found) for _ in flat.names])

    def _one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], *args: Tensor) -> Any:
        return functional_call(self.model, (parameters, buffers), args)

    def _move_in(self) -> None:
        """Let every model's own parameters and buffers lie where those of the stack do."""
        for r, model in enumerate(self.models):
            for name, own in [*model.named_parameters(), *model.named_buffers()]:
                own.data = (
                    self.parameters[name].detach()[r] if name in self.parameters else self.buffers[name][r]
                )

    def _own(self, flat: Flat) -> list[Tensor]:
        return [self.model.get_parameter(name) for name in flat.names]

    def part(self, replicas: Sequence[int]) -> "Stack":
        """Some of the replicas, as they are now, to go on apart; one that is alone already is apart. Their
        models go along, since a module that keeps what it computed cannot be copied; this stack needs them no
        more."""
        if self.replicas == 1:
            return self
        parameters, buffers = (
            {name: x[list(replicas)] for name, x in tensors.items()}
            for tensors in (self.parameters, self.buffers)
        )
        return Stack([self.models[r] for r in replicas], parameters, buffers)
