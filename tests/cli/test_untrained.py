import json
from collections.abc import Callable
from typing import Any

import pytest


def test_what_is_read_where_two_values_were_written(linbench: Callable[..., Any]) -> None:
    read = {row["rule"]: row["recalled"] for row in json.loads(linbench("untrained", "blend", "--json").out)}
    assert read["sum"] == pytest.approx(15)
    assert read["normalised sum"] == pytest.approx(7.5)
    assert read["delta, beta 1"] == pytest.approx(10)
    assert read["delta, beta 0.5"] == pytest.approx(6.25)


@pytest.mark.parametrize("what", ["overwriting", "retention", "blend"])
def test_a_line_for_every_row(linbench: Callable[..., Any], what: str) -> None:
    words = ("untrained", what, "--trials", "2", "--dim", "16")
    lines, rows = linbench(*words).out.splitlines(), json.loads(linbench(*words, "--json").out)
    assert len(lines) == len(rows) + 1
    assert lines[0].split() == list(rows[0])
    assert lines[1].startswith(rows[0]["rule"])


def test_nothing_else_can_be_asked(linbench: Callable[..., Any]) -> None:
    assert linbench("untrained", "forgetting").code == 2
