"""Compilation of everything that is launched, before anything is timed."""

from pathlib import Path
from typing import NamedTuple

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.bench.compile import compile_ahead


class Case(NamedTuple):
    """`seen` is made by the first call for it."""

    name: str
    failure: str
    seen: Path
    device: str = "cpu"

    def __str__(self) -> str:
        return self.name


def fails_at_first(case: Case) -> str:
    if case.failure and not case.seen.exists():
        case.seen.touch()
        raise RuntimeError(case.failure)
    return f"{case.name} compiled"


@pytest.mark.slow
def test_what_has_no_memory_beside_the_others_is_compiled_once_more_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    failures = {
        "fits": "",
        "crowded": "CUDA out of memory. Tried much",
        "handleless": "CUBLAS_STATUS_ALLOC_FAILED",
        "broken": "no such luck",
    }
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    told: list[str] = []
    found = compile_ahead(
        fails_at_first,
        [Case(name, why, tmp_path / name) for name, why in failures.items()],
        seconds=60.0,
        tell=told.append,
    )
    assert found == {0: "fits compiled", 1: "crowded compiled", 2: "handleless compiled", 3: None}
    assert sorted(line.split(" ", 2)[2] for line in told) == snapshot
