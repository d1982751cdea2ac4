"""Replicas in a stack are what they would be alone."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linbench.engine.batches import BatchFeed, Streams
from linbench.engine.optimizer import AdamW, Rates
from linbench.engine.optimizer import decaying as decaying_of
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.models.base import Rule
from linbench.tasks.base import Batch
from tests.helpers.cells import plan

SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("attention", "linear_attention", "deltanet", "gated_deltanet+attention")
]
MODELS = ["gated_deltanet", *SLOW]
RATES = [1e-3, 3e-3, 1e-2]


def group(model: str, seeds: Sequence[int] = (0, 1, 2), **settings: Any) -> list[Cell]:
    small = {
        "protocol.batch_size": 4,
        "model.d_model": 32,
        "task.seq_len": 32,
        "task.kv_pairs": 4,
        "task.vocab_size": 32,
    }
    return plan("mqar", [model], device="cpu", seeds=seeds, settings=small | settings)


def stacked(cells: Sequence[Cell], dtype: torch.dtype) -> Stack:
    return Stack.of([cell.model.build(cell.task, seed=cell.seed).to(dtype) for cell in cells])


def optimiser(
    stack: Stack,
    rates: Sequence[float],
    rules: dict[str, Rule] | None = None,
    decays: Sequence[float] | None = None,
) -> AdamW:
    rules = rules or dict.fromkeys(stack.parameters, Rule())
    return AdamW(
        stack,
        rules,
        Rates(rates, decays or [0.1] * stack.replicas, [1.0] * 100),
        beta1=0.9,
        beta2=0.98,
        clip=1.0,
    )


def feed(cells: Sequence[Cell], first: int = 0) -> BatchFeed:
    return BatchFeed(Streams(cells[0].task, cells), examples=None, first=first, last=100)


def batch_of(source: BatchFeed) -> Batch:
    source.refill()
    return source.batch()


def losses(
    cells: Sequence[Cell], rates: Sequence[float], steps: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    """[steps, R]."""
    stack = stacked(cells, dtype)
    adamw, source, curve = optimiser(stack, rates), feed(cells), []
    for _ in range(steps):
        batch = batch_of(source)
        loss = stack(batch.inputs, batch.positions, batch.targets)
        stack.differentiate(loss)
        adamw.step()
        curve.append(loss.detach())
    return torch.stack(curve)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_thirty_steps_in_a_stack_are_thirty_steps_alone(model: str) -> None:
    cells = group(model)
    together = losses(cells, RATES, 30)
    alone = torch.cat([losses([cell], [rate], 30) for cell, rate in zip(cells, RATES, strict=True)], dim=1)
    assert torch.allclose(together, alone, rtol=0, atol=1e-6)
    assert (together[0] - together[-1]).min() > 0.1, "nothing was learned, so nothing was compared"


@pytest.mark.parametrize("model", MODELS)
def test_gradients_in_float32_are_those_alone(model: str) -> None:
    cells = group(model)

    def gradients(these: Sequence[Cell]) -> dict[str, Tensor]:
        stack = stacked(these, torch.float32)
        for x in stack.parameters.values():  # what starts at zero would hide what lies behind it
            x.data.add_(
                0.05 * torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(x[0].numel()))
            )
        batch = batch_of(feed(these))
        stack.differentiate(stack(batch.inputs, batch.positions, batch.targets))
        return {name: x for flat in stack.flats for name, x in flat.views(flat.gradients).items()}

    together = gradients(cells)
    for r, cell in enumerate(cells):
        for name, alone in gradients([cell]).items():
            assert float((together[name][r] - alone[0]).norm()) <= 1e-5 * max(float(alone.norm()), 1e-3), name


def test_adamw_is_that_of_torch() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stack = Stack.of([model, model])
    rates = Rates([1e-2, 3e-2], [0.1, 0.3], [1.0, 0.5, 1.0, 0.2, 1.0])
    ours = AdamW(stack, dict.fromkeys(stack.parameters, Rule()), rates, beta1=0.9, beta2=0.98, clip=0.5)
    theirs = []
    for decay, rate in ((0.1, 1e-2), (0.3, 3e-2)):
        alone = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
        alone.load_state_dict(model.state_dict())
        matrices, others = (
            [p for p in alone.parameters() if (p.dim() > 1) is wanted] for wanted in (True, False)
        )
        adamw = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}],
            lr=rate,
            betas=(0.9, 0.98),
        )
        for share in rates.shares:
            for some in adamw.param_groups:
                some["lr"] = rate * share
            adamw.zero_grad()
            (100 * alone(x).square().mean()).backward()
            nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
            adamw.step()
        theirs.append(dict(alone.named_parameters()))
    for _ in range(5):
        stack.differentiate(100 * stack(torch.stack([x, x])).square().mean(dim=(1, 2)))
        ours.step()
    for r in range(2):
        assert all(
            torch.allclose(stack.parameters[name][r], p, rtol=0, atol=1e-12) for name, p in theirs[r].items()
        )


def test_rules_say_which_parameters_decay_and_how_fast_they_learn() -> None:
    stack = Stack.of([nn.Linear(2, 2)])
    before = {name: x.detach().clone() for name, x in stack.parameters.items()}
    rules = {"weight": Rule(decay=False, lr_scale=2.0), "bias": Rule(decay=True)}
    adamw = optimiser(stack, [0.1], rules, [0.5])
    stack.flats[0].gradients.fill_(0.01)
    adamw.step()
    moved = {name: (x.detach() - before[name]) for name, x in stack.parameters.items()}
    assert torch.allclose(moved["weight"], torch.tensor(-0.2), atol=1e-4)
    assert torch.allclose(moved["bias"], -0.05 * before["bias"] - 0.1, atol=1e-4)


def test_only_matrices_decay_unless_a_mixer_says_otherwise() -> None:
    cell = group("gated_deltanet", [0])[0]
    model = cell.model.build(cell.task, seed=0)
    stack = Stack.of([model])
    (flat,) = stack.flats
    pairs = zip(flat.names, decaying_of(flat, model.parameter_rules()), strict=True)
    decaying = {name for name, decay in pairs if decay}
    assert {"embedding.weight", "mixers.0.project.linear.weight", "channel_mixers.1.up.weight"} <= decaying
    assert not any(part in name for name in decaying for part in ("norm", "A_log", "dt_bias", "conv"))


@pytest.mark.slow
def test_a_part_goes_on_as_if_the_rest_were_still_there() -> None:
    cells = group("gated_deltanet")
    whole = losses(cells, RATES, 8)
    stack = stacked(cells, torch.float64)
    adamw, source = optimiser(stack, RATES), feed(cells)
    for step in range(8):
        if step == 4:
            kept = [2, 0]
            stack, cells = stack.part(kept), [cells[r] for r in kept]
            adamw, source = adamw.part(stack, kept), feed(cells, first=4)
        batch = batch_of(source)
        loss = stack(batch.inputs, batch.positions, batch.targets)
        stack.differentiate(loss)
        adamw.step()
    assert torch.allclose(loss, whole[-1, [2, 0]], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_a_replica_that_breaks_leaves_the_others_alone() -> None:
    cells = group("deltanet")
    sound, broken = losses(cells, [1e-3, 1e-3, 1e-3], 6), losses(cells, [1e-3, 1e30, 1e-3], 6)
    assert not broken[-1, 1].isfinite()
    assert torch.equal(broken[:, [0, 2]], sound[:, [0, 2]])


class Stateful(nn.Module):
    """Draws, counts in a buffer, and has a parameter that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.frozen = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)
        self.register_buffer("calls", torch.zeros(()))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.calls, Tensor)
        self.calls += 1
        y: Tensor = self.dropout(self.linear(x) * self.frozen)
        return y


@pytest.mark.parametrize("replicas", [1, 3])
def test_modules_with_buffers_frozen_weights_and_dropout_stack(replicas: int) -> None:
    stack = Stack.of([Stateful() for _ in range(replicas)])
    assert set(stack.parameters) == {"linear.weight", "linear.bias"}
    y = stack(torch.ones(replicas, 50, 4))
    assert y.shape == (replicas, 50, 4)
    assert stack.buffers["calls"].tolist() == [1.0] * replicas
    dropped = [tuple((row == 0).flatten().tolist()) for row in y]
    assert len(set(dropped)) == replicas, "replicas drop the same places"


def test_weights_lie_in_the_order_of_the_module() -> None:
    """The order is the same in every process, so that a checkpoint of one can go on in another."""
    (cell,) = group("gated_deltanet", [0])
    model = cell.model.build(cell.task, seed=0)
    assert [name for flat in Stack.of([model]).flats for name in flat.names] == [
        name for name, _ in model.named_parameters()
    ]


def test_models_that_differ_do_not_stack() -> None:
    with pytest.raises(ValueError, match="differ in structure"):
        Stack.of([nn.Linear(2, 2), nn.Linear(2, 3)])
