"""Training one model by the protocol: fresh examples every step, loss at the labelled positions, AdamW."""

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from linbench.cell import Cell
from linbench.common.keys import stable_key
from linbench.evaluate import evaluate
from linbench.models.backbone import Backbone
from linbench.protocol import Protocol
from linbench.tasks.base import IGNORE, Batch

DRAWN_AT_ONCE = 512
"""Examples drawn in one go where batches are smaller."""

READS = 200
"""How often in a run the loss is read from the device, at most: each reading waits for it."""


class Report(NamedTuple):
    """How a run is getting on. `accuracy` is the last one on the validation split; `loss` the mean since the last report."""

    step: int
    steps: int
    loss: float
    accuracy: float | None
    tokens_per_second: float


class Diverged(Exception):  # noqa: N818 - a finding, not an error
    """The loss is no longer a number."""


def train(cell: Cell, model: Backbone, curve: list[dict[str, float]], on_report: Callable[[Report], None]) -> None:
    """Train `model` in place and append a point to `curve` at every evaluation: step, tokens, loss (training, mean since the
    last point), accuracy and nll (validation).

    Raises Diverged: the loss became infinite or NaN.
    """
    protocol, task, steps = cell.protocol, cell.task, cell.steps
    torch.manual_seed(stable_key("training", cell.seed))  # for modules that draw, such as a user's dropout
    optimiser = make_optimiser(model, protocol)
    evaluate_at = {round(steps * (i + 1) / protocol.evaluations) for i in range(protocol.evaluations)}
    read_every = max(1, steps // READS)
    loss_sum, losses = torch.zeros((), device=cell.device), 0
    since_point: list[tuple[float, int]] = []
    accuracy, began, training_seconds = None, time.perf_counter(), 0.0
    batches = fresh_batches(cell)
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = protocol.lr * group["lr_scale"] * rate(step, steps, protocol)
        batch = next(batches)
        logits = model(batch.inputs, batch.positions).float()
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), protocol.clip)
        optimiser.step()
        loss_sum, losses = loss_sum + loss.detach(), losses + 1

        if step % read_every == 0 or step in evaluate_at:
            mean = loss_sum.item() / losses
            if not math.isfinite(mean):
                raise Diverged(f"the loss was {mean} by step {step} of {steps}")
            since_point.append((loss_sum.item(), losses))
            loss_sum, losses = torch.zeros_like(loss_sum), 0
            training_seconds += time.perf_counter() - began
            if step in evaluate_at:
                metrics, _ = evaluate(model, task, seed=cell.seed, split="validation", examples=protocol.validation_examples, device=cell.device)
                accuracy = metrics["accuracy"]
                if not math.isfinite(metrics["nll"]):
                    raise Diverged(f"the validation loss was {metrics['nll']} at step {step} of {steps}")
                total = sum(value for value, _ in since_point) / sum(count for _, count in since_point)
                tokens = step * protocol.batch_size * task.seq_len
                curve.append({"step": step, "tokens": tokens, "loss": total, "accuracy": accuracy, "nll": metrics["nll"]})
                since_point = []
            on_report(Report(step, steps, mean, accuracy, step * protocol.batch_size * task.seq_len / training_seconds))
            began = time.perf_counter()


def fresh_batches(cell: Cell) -> Iterator[Batch]:
    """Examples 0, 1, 2, ... of the training stream, a batch at a time; several are drawn at once, since a draw costs much the same for all."""
    size, first = cell.protocol.batch_size, 0
    at_once = max(1, DRAWN_AT_ONCE // size)
    while True:
        drawn = cell.task.sample(torch.arange(first, first + at_once * size, device=cell.device), seed=cell.seed, split="train")
        for start in range(0, at_once * size, size):
            rows = slice(start, start + size)
            yield Batch(drawn.inputs[rows], drawn.positions[rows], drawn.targets[rows], {name: values[rows] for name, values in drawn.slices.items()})
        first += at_once * size


def rate(step: int, steps: int, protocol: Protocol) -> float:
    """The share of the peak learning rate at `step` (from 1): a linear warm-up, then the schedule."""
    warmup = max(1, round(protocol.warmup * steps))
    if step <= warmup:
        return step / warmup
    return 1.0 if protocol.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def make_optimiser(model: Backbone, protocol: Protocol) -> torch.optim.AdamW:
    """AdamW with one group per rule: matrices decay and nothing else does, unless a mixer says otherwise of a parameter."""
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    rules = model.parameter_rules()
    for name, parameter in model.named_parameters():
        rule = rules[name]
        decays = parameter.dim() >= 2 if rule.decay is None else rule.decay
        groups.setdefault((decays, rule.lr_scale), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": protocol.weight_decay if decays else 0.0, "lr_scale": lr_scale}
            for (decays, lr_scale), parameters in groups.items()
        ],
        lr=protocol.lr,
        betas=(protocol.beta1, protocol.beta2),
        fused=True,
    )
