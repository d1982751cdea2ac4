"""Steps that are captured do what steps as called do."""

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.engine import cuda_graph as capture
from linbench.engine.cuda_graph import CudaGraph
from linbench.engine.measure import measure
from linbench.engine.stack import Stack
from linbench.engine.step import Step, Training
from linbench.experiments.cell import Cell
from linbench.experiments.plan_models import has_heads
from tests.helpers.cells import plan

MODELS = ["attention", "linear_attention", "deltanet", "gated_deltanet", "base_conv+attention"]
OTHERS = (
    "fox", "performer", "rfa", "mamba", "mamba2", "gla", "mlstm", "dfw", "rwkv4", "rwkv6", "comba",
    "gated_deltaproduct", "kda", "rwkv7", "s4d", "h3", "lstm", "stick_breaking", "cope", "path_fox",
    "deltaformer", "delta_positions", "mesanet", "longhorn", "ttt_linear", "ttt_mlp", "lact", "titans",
    "momentum_deltanet", "precond_kda", "atlas", "titans_mag", "gated_deltanet2", "titans_mac", "rebased",
    "gsa", "abc", "s4", "hyena", "mamba3", "attention_mamba", "attention_mamba2", "rosa",
    "mom", "log_linear_gdn", "raven", "moba", "nsa",
)  # fmt: skip
"""At least one for each kind of state, update and gate."""
RATES = [1e-3, 3e-3, 1e-2]
SETTINGS = {
    "protocol.batch_size": 8, "task.seq_len": 32, "task.kv_pairs": 4, "task.vocab_size": 64,
    "model.d_model": 64, "model.heads": 2,
    "protocol.tokens": 100 * 8 * 32, "protocol.validation_examples": 8, "protocol.test_examples": 8,
}  # fmt: skip

WAITS = """
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x) * (2.0 if x.sum().item() > 1e9 else 1.0)
"""


def group(model: str, device: str = "cuda:0", **settings: Any) -> list[Cell]:
    more = {name.replace("__", "."): value for name, value in settings.items()}
    around = {name: value for name, value in SETTINGS.items() if name != "model.heads" or has_heads(model)}
    return [
        plan("mqar", [model], device=device, seeds=[seed], settings=around | more | {"protocol.lr": rate})[0]
        for seed, rate in enumerate(RATES)
    ]


def begun(cells: Sequence[Cell], dtype: torch.dtype = torch.float32) -> Training:
    models = [cell.model.build(cell.task, seed=cell.seed).to(cell.device, dtype) for cell in cells]
    rules = models[0].parameter_rules()
    return Training.start(Stack.of(models), cells, rules)


def curve(cells: Sequence[Cell], steps: int = 30, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Step]:
    """Losses [steps, R], and the step."""
    training = begun(cells, dtype)
    step, found = Step(training, 0, 0), []
    for _ in range(steps):
        training.losses.zero_()
        step()
        found.append(training.losses.clone())
    return torch.stack(found), step


def test_on_a_cpu_a_function_is_called_as_it_is() -> None:
    calls: list[int] = []
    once_more = CudaGraph(lambda: calls.append(len(calls)), "cpu")
    for _ in range(5):
        once_more()
    assert calls == [0, 1, 2, 3, 4]
    assert (once_more.graph, once_more.note) == (None, None)


def test_what_is_known_not_to_be_captured_is_called_as_it_is() -> None:
    calls: list[int] = []
    once_more = CudaGraph(lambda: calls.append(len(calls)), "cuda:0", note="it counts")
    for _ in range(5):
        once_more()
    assert calls == [0, 1, 2, 3, 4]
    assert (once_more.graph, once_more.note) == (None, "it counts")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", [*MODELS, *OTHERS])
def test_captured_steps_are_steps_as_called(
    model: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = group(model, protocol__precision=precision)
    captured, step = curve(cells)
    assert step.run.graph is not None, step.run.note
    assert step.training.note is None
    monkeypatch.setattr(capture, "WARMUP", 10**9)
    called, other = curve(cells)
    assert other.run.graph is None
    assert torch.equal(captured, called)
    assert (captured[0] - captured[-1]).min() > 1.0, "nothing was learned, so nothing was compared"


@pytest.mark.gpu
@pytest.mark.parametrize("model", MODELS)
def test_thirty_captured_steps_in_a_stack_are_thirty_alone(model: str) -> None:
    cells = group(model)
    together, _ = curve(cells, dtype=torch.float64)
    alone = torch.cat([curve([cell], dtype=torch.float64)[0] for cell in cells], dim=1)
    assert torch.allclose(together, alone, rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("model", MODELS)
def test_gradients_in_float32_are_those_alone_on_a_gpu(model: str) -> None:
    cells = group(model)

    def gradients(these: Sequence[Cell]) -> dict[str, Tensor]:
        training = begun(these)
        for x in training.stack.parameters.values():  # what starts at zero would hide what lies behind it
            x.data.add_(
                0.05
                * torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(x[0].numel())).to(x.device)
            )
        step = Step(training, 0, 0)
        step.feed.refill()
        batch = step.feed.batch()
        training.stack.differentiate(training.stack(batch.inputs, batch.positions, batch.targets))
        return {name: x for flat in training.stack.flats for name, x in flat.views(flat.gradients).items()}

    together = gradients(cells)
    for r, cell in enumerate(cells):
        lone = gradients([cell])
        whole = torch.cat([x.flatten() for x in lone.values()]).norm()
        for name, alone in lone.items():
            # a decay's gradient is a sum of terms that nearly cancel: its own norm says little of how exact
            # they are
            assert (together[name][r] - alone[0]).norm() <= 1e-5 * torch.maximum(
                alone.norm(), 1e-2 * whole
            ), name


@pytest.mark.gpu
def test_what_waits_for_the_device_is_called_as_it_is_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(WAITS)
    settings = {name: value for name, value in SETTINGS.items() if name != "model.heads"}
    cells = plan("mqar", ["./mine.py:Mine"], device="cuda:0", settings=settings)
    (result,) = measure(cells, lambda report: None)
    assert result["status"] == "ok"
    assert result["stack"]["note"].split(": ")[:2] == ["could not be captured", "mine.py line 10"]
    assert torch.rand(3, device="cuda:0").max() < 1, "random numbers are drawn as before"


@pytest.mark.gpu
def test_compiling_ahead_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = group("gated_deltanet", model__embedding_dropout=0.1)
    ahead, _ = curve(cells, steps=5)
    monkeypatch.setattr("linbench.engine.step.compile_ahead", lambda function, device: None)
    as_called, _ = curve(cells, steps=5)
    assert torch.equal(ahead, as_called)


def waits(x: Tensor) -> None:
    x.sum().item()


def finds_no_memory(x: Tensor) -> None:
    raise torch.OutOfMemoryError("much was asked for")


@pytest.mark.gpu
@pytest.mark.parametrize("breaks", [waits, finds_no_memory])
def test_a_capture_that_is_given_up_leaves_its_stream_and_keeps_no_memory(
    breaks: Callable[[Tensor], None],
) -> None:
    def function() -> None:
        x = torch.zeros(1 << 24, device="cuda")
        if captured.calls >= capture.WARMUP:
            breaks(x)

    captured, stream = CudaGraph(function, "cuda"), torch.cuda.current_stream()
    for _ in range(capture.WARMUP):
        captured()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    with suppress(torch.OutOfMemoryError):
        captured()
    assert captured.graph is None
    assert torch.cuda.current_stream() == stream
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


@pytest.mark.gpu
def test_nothing_is_collected_in_a_capture() -> None:
    """The driver breaks it off where an older graph is destroyed meanwhile."""
    x, seen, thresholds = torch.ones(4, device="cuda:0"), list[bool](), gc.get_threshold()

    def work() -> None:
        [[] for _ in range(1000)]
        x.add_(1.0)

    def watch(phase: str, _: dict[str, int]) -> None:
        seen.append(torch.cuda.is_current_stream_capturing())

    done = CudaGraph(work, "cuda:0")
    gc.callbacks.append(watch)
    try:
        gc.set_threshold(1)
        for _ in range(capture.WARMUP + 1):
            done()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(watch)
    assert done.graph is not None, done.note
    assert gc.isenabled()
    assert seen
    assert not any(seen)
