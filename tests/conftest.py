"""Fixtures that tests of several rooms share."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from linbench.cli import answer
from linbench.common.memory import collect_rarely
from linbench.experiments.registry import registry
from linbench.results.schema import Result
from tests.helpers.cases import spread_evenly

collect_rarely()  # 23,000 tests are many objects


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-digests",
        action="store_true",
        help="note the digests of tasks that are new or of another version",
    )
    parser.addoption(
        "--cases",
        type=int,
        metavar="N",
        help="run at most N of each test's cases, spread evenly from the first to the last",
    )


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a GPU are not collected where there is none, nor more cases than were asked for."""
    left: set[pytest.Item] = set()
    if not torch.cuda.is_available():
        left |= {item for item in items if item.get_closest_marker("gpu")}
    most = config.getoption("--cases")
    if most is not None:
        left |= {*items} - spread_evenly(items, most)
    config.hook.pytest_deselected(items=[*left])
    items[:] = [item for item in items if item not in left]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20)


@pytest.fixture
def relative_error() -> Callable[[Tensor, Tensor], float]:
    """Largest difference over largest expected value; infinite where anything is NaN or what is expected is
    all zero."""

    def measure(given: Tensor, expected: Tensor) -> float:
        assert given.shape == expected.shape
        given, expected = given.detach().double(), expected.detach().double()
        largest = expected.abs().max()
        if not given.isfinite().all() or not expected.isfinite().all() or largest == 0:
            return float("inf")
        return float((given - expected).abs().max() / largest)

    return measure


@pytest.fixture
def randomise(generator: torch.Generator) -> Callable[[nn.Module], nn.Module]:
    """Replace every parameter by noise, since output projections start at zero; what parameterises the decay
    keeps its own start."""

    def fill(module: nn.Module) -> nn.Module:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name.rsplit(".", 1)[-1] not in {"A_log", "dt_bias"}:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        return module

    return fill


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Memory that nothing was written to holds NaN."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    assert torch.zeros(1).new_empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture
def replayed() -> Callable[..., Any]:
    """Return a function that captures another as a CUDA graph and returns what its replay gives.

    Before the replay the inputs are overwritten with other numbers.
    """

    def replay(function: Callable[[], Any], inputs: Iterable[Tensor], others: Iterable[Tensor]) -> Any:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = function()
        with torch.no_grad():
            for given, other in zip(inputs, others, strict=True):
                given.copy_(other)
        graph.replay()
        return captured

    return replay


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread, as workers do: the number of threads that share a sum decides its last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def chi_squared() -> Callable[..., float]:
    """The probability of counts at least this far from what is expected; `degrees` are one fewer than there
    are cells unless given."""

    def probability(counts: Tensor, expected: Tensor, *, degrees: int | None = None) -> float:
        counts, expected = counts.double().flatten(), expected.double().flatten()
        assert counts.shape == expected.shape
        assert expected.min() >= 5
        assert float(counts.sum()) == pytest.approx(float(expected.sum()))
        statistic = ((counts - expected).square() / expected).sum()
        return float(
            torch.special.gammaincc(
                torch.tensor((degrees or len(counts) - 1) / 2, dtype=torch.float64), statistic / 2
            )
        )

    return probability


class Ended(NamedTuple):
    """The end of a command: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def linbench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., Ended]]:
    """Run a command line in this process, in an empty folder. Plugins are scanned anew each time."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        registry.cache_clear()
        monkeypatch.setattr(sys, "argv", ["linbench", *map(str, words)])
        capsys.readouterr()
        code = answer()
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    yield run
    registry.cache_clear()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run draws nothing, which takes four times as long as training with `tiny` settings."""
    monkeypatch.setattr("linbench.report.figures.drawings_after_run", lambda comparisons: [])


@pytest.fixture
def unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are trained without a probe, which would call them once more in a process of its own: for tests
    that count calls or processes."""
    monkeypatch.setattr("linbench.engine.probe.Marks.probe", lambda marks, cells: None)


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Settings with which a run takes well under a second."""
    knobs = (
        "task.seq_len=16 task.kv_pairs=2 task.vocab_size=16 model.d_model=16 protocol.batch_size=4 "
        "protocol.tokens=640 protocol.evaluations=5 protocol.validation_examples=8 protocol.test_examples=16"
    )
    return ["--device", "cpu", *(word for knob in knobs.split() for word in ("--set", knob))]


@pytest.fixture(scope="session")
def a_result() -> Callable[..., Result]:
    """A stored result as one would be, with what a test cares about changed."""

    def make(label: str = "deltanet", seed: int = 0, score: float = 0.5, **more: Any) -> Result:
        layer = {
            "mixer": label,
            "version": 1,
            "settings": {"heads": more.pop("heads", 2), **more.pop("surroundings", {"conv": 4})},
            "kernel": {},
            "source": None,
        }
        task = {
            "name": "mqar",
            "version": 1,
            "settings": {"kv_pairs": more.pop("kv_pairs", 8)},
            "source": None,
        }
        protocol = {
            "lr": more.pop("lr", 0.01),
            "tokens": 100,
            "batch_size": 4,
            "precision": "fp32",
            "test_examples": 64,
        }
        around = {"d_model": more.pop("d_model", 64), **more.pop("around", {})}
        model = {
            "form": more.pop("form", "native"),
            "backbone": {"version": 1, "settings": around, "kernel": {}},
            "layers": [layer],
        }
        state = {
            "recurrent": more.pop("recurrent", 100),
            "cache": more.pop("cache", 0),
            "convolution": more.pop("convolution", 0),
            "shift": 0,
        }
        return {
            "id": f"{label}{seed}{score}{sorted(more.items())}{layer}{task}{protocol}{model}",
            "label": label,
            "preset": "quick",
            "purpose": "report",
            "search": None,
            "status": "ok",
            "reason": None,
            "marks": [],
            "chance": 0.125,
            "scoring": 1,
            "metrics": {"accuracy": score, "nll": 1.0},
            "slices": {},
            "curve": [],
            "seconds": 1.0,
            "stack": {"size": 1, "note": None},
            "model": {
                "parameters": more.pop("parameters", 1000),
                "state": {**state, "total": sum(state.values())},
                "flops_per_token": 10,
            },
            "environment": {"commit": None, "dirty": None, "packages": {}},
            "cell": {
                "schema": 2,
                "task": task,
                "model": model,
                "protocol": {"version": 1, "settings": protocol},
                "seed": seed,
                "device": more.pop("device", "cpu"),
            },
            **more,
        }

    return make
