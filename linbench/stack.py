"""Models of one structure as one program: what differs between them is a first dimension of every tensor."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Flat:
    """Parameters of one dtype, each [R, ...], in one tensor: `weights` [n]; and their gradients in another, `gradients` [n].

    Parameter by parameter, and within each replica by replica, so that what is done to all of them is done at once.
    """

    def __init__(self, stacked: Mapping[str, Tensor]) -> None:
        """`stacked`: initial values by name, each [R, ...]."""
        self.names = list(stacked)
        self.replicas = len(next(iter(stacked.values())))
        self.weights = torch.cat([x.detach().flatten() for x in stacked.values()])
        self.gradients = torch.zeros_like(self.weights)
        sizes = [x.numel() for x in stacked.values()]
        self.repeats = torch.tensor([size // self.replicas for size in sizes for _ in range(self.replicas)], device=self.weights.device)
        self.parameters: dict[str, Tensor] = {}
        places = zip(stacked.items(), torch.split(self.weights, sizes), torch.split(self.gradients, sizes), strict=True)
        for (name, x), weights, gradients in places:
            self.parameters[name] = weights.view(x.shape).requires_grad_()
            self.parameters[name].grad = gradients.view(x.shape)

    def spread(self, values: Tensor) -> Tensor:
        """values [P, R], one for each parameter and replica -> [n], one for each weight."""
        return values.to(self.weights.dtype).flatten().repeat_interleave(self.repeats, output_size=self.weights.numel())

    def part(self, values: Tensor, replicas: Sequence[int]) -> Tensor:
        """Of values [n], one for each weight, those of some replicas: [n'], as a `Flat` of these has them."""
        sizes = [x.numel() for x in self.parameters.values()]
        return torch.cat([x.view(self.replicas, -1)[list(replicas)].flatten() for x in torch.split(values, sizes)])


class Stack:
    """R replicas of one structure. What goes in and comes out has R in front, and so have parameters and buffers.

    One replica is called as the module that it is, with its hooks; several through `torch.vmap`, which any module stands that computes with
    tensors alone.
    """

    def __init__(self, model: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """The structure, which one replica makes its own; and by name what is trained and what is not: each [R, ...], copied."""
        self.model = model
        self.replicas = len(next(iter(parameters.values())))
        self.buffers = {name: x.detach().clone() for name, x in buffers.items()}
        dtypes = dict.fromkeys(x.dtype for x in parameters.values())
        self.flats = [Flat({name: x for name, x in parameters.items() if x.dtype == dtype}) for dtype in dtypes]
        self.parameters = {name: x for flat in self.flats for name, x in flat.parameters.items()}
        if self.replicas == 1:
            self._move_in()

    @classmethod
    def of(cls, models: Sequence[nn.Module]) -> "Stack":
        """With the weights of these. Raises ValueError: they differ in structure."""
        each = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
        kinds = [{name: (x.shape, x.dtype, x.requires_grad) for name, x in tensors.items()} for tensors in each]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError("models that differ in structure cannot be stacked")
        stacked = {name: torch.stack([tensors[name].detach() for tensors in each]) for name in kinds[0]}
        trained = {name for name, (_, _, trained) in kinds[0].items() if trained}
        return cls(models[0], {name: stacked[name] for name in trained}, {name: x for name, x in stacked.items() if name not in trained})

    def __call__(self, *args: Tensor) -> Any:
        """The models' outputs for args [R, ...]: [R, ...]."""
        if self.replicas > 1:
            return torch.vmap(self._one, randomness="different")(self.parameters, self.buffers, *args)
        return self.model(*(x.squeeze(0) for x in args)).unsqueeze(0)

    def _one(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], *args: Tensor) -> Any:
        return functional_call(self.model, (parameters, buffers), args)

    def _move_in(self) -> None:
        """Let the module's own parameters and buffers lie where those of the stack do."""
        for name, own in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if name in self.parameters:
                stacked = self.parameters[name]
                assert stacked.grad is not None
                own.data, own.grad = stacked.detach()[0], stacked.grad[0]
            else:
                own.data = self.buffers[name][0]

    def part(self, replicas: Sequence[int]) -> "Stack":
        """Some of the replicas, as they are now, to go on apart."""
        parameters, buffers = ({name: x[list(replicas)] for name, x in tensors.items()} for tensors in (self.parameters, self.buffers))
        return Stack(deepcopy(self.model), parameters, buffers)
