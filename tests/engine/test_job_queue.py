"""The order in which groups are handed to workers."""

from dataclasses import replace
from pathlib import Path

import pytest

from linbench.engine.job_queue import SMALLEST_PART, GroupQueue, divide
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan, tiny_settings


def group(count: int, **settings: object) -> list[Cell]:
    return plan(
        "mqar",
        ["deltanet"],
        device="cpu",
        seeds=range(count),
        settings=tiny_settings() | {name.replace("__", "."): value for name, value in settings.items()},
    )


SHORT, LONG, MORE = group(2), group(2, protocol__tokens=10**6), group(3)
TUNING = [replace(cell, purpose="tuning") for cell in group(1)]


def in_order(queue: GroupQueue, running: int = 0) -> list[list[Cell]]:
    groups = []
    while waiting := queue.next(running + len(groups)):
        groups.append(list(waiting.cells))
    return groups


def test_one_device_keeps_the_order() -> None:
    queue = GroupQueue(1)
    queue.add([SHORT, LONG, TUNING])
    assert in_order(queue) == [SHORT, LONG, TUNING]


def test_several_devices_take_searches_and_then_the_most_work_first() -> None:
    queue = GroupQueue(2)
    queue.add([SHORT, TUNING])
    queue.add([LONG])
    assert in_order(queue) == [TUNING, LONG, SHORT]


def test_more_cells_are_more_work() -> None:
    queue = GroupQueue(2)
    queue.add([SHORT, MORE])
    assert in_order(queue) == [MORE, SHORT]


def test_a_layer_without_a_count_of_operations_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linbench.engine.job_queue.flops", lambda cell: None)
    queue = GroupQueue(2)
    queue.add([SHORT, LONG])
    assert in_order(queue) == [LONG, SHORT]


@pytest.mark.parametrize(
    ("devices", "running", "cells", "parts"),
    [
        (4, 0, 8 * SMALLEST_PART, 4),  # all four are idle
        (4, 3, 8 * SMALLEST_PART, 1),
        (4, 2, 8 * SMALLEST_PART, 2),
        (4, 0, 2 * SMALLEST_PART, 2),  # parts would be too small
        (4, 0, 1, 1),
        (4, 9, 8 * SMALLEST_PART, 1),  # more groups than devices
        (1, 0, 8 * SMALLEST_PART, 1),
    ],
)
def test_the_last_group_is_divided_among_idle_devices(
    devices: int, running: int, cells: int, parts: int
) -> None:
    queue = GroupQueue(devices)
    queue.add([group(cells)])
    waiting = queue.next(running)
    assert waiting is not None
    assert waiting.parts == parts


def test_groups_that_wait_need_devices_too() -> None:
    queue = GroupQueue(4)
    queue.add([group(8 * SMALLEST_PART), SHORT, SHORT])
    waiting = queue.next(0)
    assert waiting is not None
    assert waiting.parts == 2


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 9])
def test_parts_are_nearly_equal_and_hold_every_cell_once(parts: int) -> None:
    cells = group(7)
    divided = divide(cells, parts)
    assert [cell for part in divided for cell in part] == cells
    sizes = [len(part) for part in divided]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert len(divided) == min(parts, 7)


def test_nothing_is_divided_into_nothing() -> None:
    assert divide([], 3) == []


def test_a_layer_of_ones_own_is_not_built_to_find_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Module):\n"
        "    def __init__(self, dim):\n        raise SystemExit(3)\n"
    )
    mine = plan("mqar", ["./mine.py:Mine"], device="cpu", seeds=[0], settings=tiny_settings())
    queue = GroupQueue(2)
    queue.add([SHORT, mine])
    assert sorted(map(len, in_order(queue))) == [1, 2]
