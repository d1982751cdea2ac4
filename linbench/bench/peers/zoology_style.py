"""A training step as recall benchmarks are usually written (zoology, 2312.04927).

It is eager, computes logits over the whole vocabulary at every position, takes batches from the host, and
reads the loss twice a step. Its layers are flash-linear-attention's; softmax attention is torch's own.
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.bench.peer import Peer
from linbench.bench.peers import fla
from linbench.bench.peers.sdpa import Softmax
from linbench.experiments.cell import Cell
from linbench.tasks.base import IGNORE

BATCHES = 16
"""Batches that are made before the first step and then used in turn."""


def train_step(cell: Cell, compiling: bool) -> Callable[[], None]:
    """Return a function that takes one step on the cell's task, with a model of its width, layers and heads.

    Raises KeyError: there is no such layer.
    """
    (name,) = {layer.entry.name for layer in cell.model.layers}
    fla.prepare(compiling)
    settings: Any = cell.model.layers[0].settings
    width, heads = cell.model.backbone.d_model, settings.heads
    mixers = [_LAYERS[name](width, heads, index) for index in range(len(cell.model.layers))]
    model = _Model(mixers, cell.task.settings.vocab_size, width).to(cell.device)
    protocol = cell.protocol
    optimizer = torch.optim.AdamW(model.parameters(), lr=protocol.lr, weight_decay=protocol.weight_decay)
    batches = cycle([_batch(cell, number) for number in range(BATCHES)])
    bf16 = protocol.precision == "bf16"
    shown: dict[str, float] = {}

    def step() -> None:
        inputs, targets = (x.to(cell.device) for x in next(batches))
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
            logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        shown["progress bar"] = loss.item()
        shown["logger"] = loss.item()

    return step


class _Model(nn.Module):
    """Embedding, layers with a layer norm before each, and a tied head at every position.

    It has the parameters of linbench's model.
    """

    def __init__(self, mixers: list[nn.Module], vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.mixers = nn.ModuleList(mixers)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(len(mixers) + 1))

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.embedding(inputs)
        for mixer, norm in zip(self.mixers, self.norms, strict=False):
            y = mixer(norm(x))
            x = x + (y[0] if isinstance(y, tuple) else y)
        return F.linear(self.norms[-1](x), self.embedding.weight)


def _fla(name: str, **settings: Any) -> Callable[[int, int, int], nn.Module]:
    return lambda width, heads, index: fla.build(
        name,
        hidden_size=width,
        num_heads=heads,
        head_dim=width // heads,
        expand_v=1,
        layer_idx=index,
        **settings,
    )


_LAYERS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "attention": lambda width, heads, index: Softmax(width, heads),
    "linear_attention": _fla("LinearAttention", feature_map="elu"),
    "deltanet": _fla("DeltaNet"),
    "gated_deltanet": _fla("GatedDeltaNet"),
}


def _batch(cell: Cell, number: int) -> tuple[Tensor, Tensor]:
    """Draw a batch on the host: inputs, and a target or `IGNORE` at every position, both [B, T]."""
    size = cell.protocol.batch_size
    index = torch.arange(number * size, (number + 1) * size)
    drawn = cell.task.sample(index, seed=cell.seed, split="train")
    targets = torch.full_like(drawn.inputs, IGNORE).scatter(1, drawn.positions, drawn.targets)
    return drawn.inputs, targets


PEER = Peer(
    name="zoology-style",
    package="fla",
    distribution="flash-linear-attention",
    runs_on=("cuda",),
    note=(
        "zoology-style: a step as recall benchmarks usually take it, with layers of flash-linear-attention"
        " 0.6 (softmax: torch's) and the same widths, heads and layers: eager, autocast, logits at every"
        " position, batches made beforehand on the host, two looks at the loss. fla's guard against scalar"
        " gates on Hopper is lifted, for timing only."
    ),
    train_step=train_step,
)
