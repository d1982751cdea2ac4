"""Every system that surveys of sequence layers name has a row that runs."""

from pathlib import Path
from typing import Any

import pytest

from linbench.common.yaml_files import read_mapping
from linbench.experiments.pattern import parse_pattern
from tests.helpers.cells import plan
from tests.pages.blocks import shown

GROUPS: Any = read_mapping(Path(__file__).with_name("survey_systems.yaml"), "list of systems", ["a group"])
SYSTEMS = {name: spec for group in GROUPS.values() for name, spec in group.items()}


def parts(spec: Any) -> tuple[str, dict[str, Any]]:
    return (spec, {}) if isinstance(spec, str) else (spec["model"], spec["set"])


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_is_built_with_a_declared_state(system: str) -> None:
    model, settings = parts(SYSTEMS[system])
    cell = plan("mqar/quick", [model], device="cpu", settings=settings)[0]
    sketch = cell.model.sketch(cell.task)
    assert sketch.parameter_count() > 0
    assert sketch.state_size(cell.task.seq_len) is not None


def test_the_readme_has_a_row_for_each() -> None:
    rows = {line.split("`")[1] for line in shown("README.md")["variants"].splitlines() if "`" in line}
    named = {term.name for spec in SYSTEMS.values() for term in parse_pattern(parts(spec)[0])}
    assert named - rows == set()


def test_no_system_is_named_twice() -> None:
    assert len(SYSTEMS) == sum(map(len, GROUPS.values()))
