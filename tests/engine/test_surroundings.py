"""Settings of the process: they decide no number, and are as before afterwards."""

import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import nn

from linbench.engine.measure import measure
from linbench.engine.surroundings import _SETTINGS, Surroundings, find_torch_change
from linbench.results.environment import environment
from linbench.results.schema import Result
from tests.helpers.cells import build_cells, measured, tiny_settings

TINY = tiny_settings()
DRAWING = """
import random
import numpy as np
import torch
from torch import nn
class Drawing(nn.Module):
    '''Draws with all three generators, in its constructor and in every call.'''
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        self.scale = nn.Parameter(torch.tensor(drawn, dtype=torch.float32))
    def forward(self, x):
        drawn = random.random() + float(np.random.rand()) + float(torch.rand(()))
        return self.linear(x) * self.scale.sum() * (1 + (0.1 * drawn if self.training else 0.0))
"""


def found(*models: str, seeds: tuple[int, ...] = (0, 1)) -> list[Result]:
    cells = build_cells(*models, seeds=seeds, settings=TINY)
    return [result for cell in cells for result in measure([cell], lambda report: None)]


@contextmanager
def undone(change: Callable[[], object], back: Callable[[], object]) -> Iterator[None]:
    change()
    try:
        yield
    finally:
        back()


def _errors() -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("error")
    return stack


def _seed_all() -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)


SET: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64": lambda: undone(
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)
    ),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "deterministic": lambda: undone(
        lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)
    ),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: undone(
        lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)
    ),
    "device within": lambda: torch.device("meta"),
    "matmul": lambda: undone(
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "denormals": lambda: undone(
        lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)
    ),
    "numpy": lambda: np.errstate(all="raise"),
    "warnings": _errors,
    "seeds": lambda: undone(_seed_all, lambda: None),
}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_numbers_are_those_of_a_process_that_has_set_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drawing.py").write_text(DRAWING)
    models = ("deltanet", "./drawing.py:Drawing")
    plain = measured(found(*models))
    assert [one["status"] for one in plain] == ["ok"] * 4
    assert plain[2]["curve"] != plain[3]["curve"], "seeds differ"
    for name, change in SET.items():
        with change():
            before = {setting: each.read() for setting, each in _SETTINGS.items()}
            again = measured(found(*models, seeds=(1,)))
            assert {setting: each.read() for setting, each in _SETTINGS.items()} == before, name
        assert again == plain[1::2], name


def test_what_a_group_changes_is_its_own_until_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {name: setting.read() for name, setting in _SETTINGS.items()}
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    def group() -> Iterator[list[Any]]:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        os.chdir("/")
        os.environ["LEFT"] = "behind"
        np.seterr(all="raise")
        torch.set_default_device("meta")
        for _ in range(2):
            yield [
                torch.ones(1).dtype,
                torch.is_grad_enabled(),
                str(Path.cwd()),
                os.environ.get("LEFT"),
                random.random(),
            ]

    seen = []
    for found in Surroundings(3).within(group()):
        seen.append(found)
        assert {name: setting.read() for name, setting in _SETTINGS.items()} == before
        assert torch.get_default_device().type == "cpu"
    assert [each[:4] for each in seen] == [[torch.float64, False, "/", "behind"]] * 2
    assert seen[0][4] != seen[1][4], "the group's generators go on"
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states
    assert next(Surroundings(3).within(group()))[4] == seen[0][4]


def test_a_process_whose_torch_was_changed_is_told_from_others(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    assert find_torch_change() is None

    def forward(self: Any, x: Any) -> Any:
        return x

    forward.__module__ = "torch.nn.modules.linear"
    for owner, name in (
        (nn.Linear, "forward"),
        (nn.Linear, "__init__"),
        (nn.functional, "softplus"),
        (torch, "exp"),
        (torch.Tensor, "cumsum"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, forward)
            assert str(find_torch_change()).endswith(f".{name}")
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    assert find_torch_change() == snapshot
    handle.remove()
    assert find_torch_change() is None


def test_what_cannot_be_set_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "variables" not in environment("cpu")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert environment("cpu")["variables"] == {"NVIDIA_TF32_OVERRIDE": "1"}
