"""Instructions of the README and the pages beside it, which must work as they stand there."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from linbench.claims.claim import claims
from linbench.experiments.registry import registry, shipped
from linbench.experiments.system import shipped as systems
from linbench.models.base import LayerInfo

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "pulse.py"
GUEST = ROOT / "examples" / "carried.py"


@pytest.mark.parametrize(
    ("page", "example"),
    [("docs/usage.md", EXAMPLE), ("docs/adding-a-variant.md", EXAMPLE), ("docs/your-layer.md", GUEST)],
)
def test_pages_show_the_example_as_it_is(page: str, example: Path) -> None:
    assert f"```python\n{example.read_text(encoding='utf-8')}```" in (ROOT / page).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    seen = re.sub("<details.*?</details>", "", text, flags=re.DOTALL)  # the rest opens with a click
    assert len(seen.splitlines()) <= 150


def test_the_readme_counts_what_there_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (counted,) = re.findall(r"(\d+) variants [^,]*, (\d+) published systems, (\d+) tasks", text)
    there = shipped("model").entries, systems(), shipped("task").entries
    assert counted == tuple(str(len(each)) for each in there)
    assert f"`linbench claims` holds {len(claims())} published sentences" in text


@pytest.fixture
def readmes_layer(tmp_path: Path) -> str:
    """The layer that the README shows, as a file."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        text.partition("```python\n# mine.py\n")[2].partition("```")[0], encoding="utf-8"
    )
    return f"{tmp_path}/mine.py:Mine"


@pytest.mark.slow
def test_the_layer_of_the_readme_is_sound_and_can_be_trained(
    linbench: Callable[..., Any], tiny: list[str], readmes_layer: str
) -> None:
    assert linbench("check", readmes_layer).code == 0
    ended = linbench("run", "mqar", "--model", readmes_layer, "--json", *tiny)
    assert [result["status"] for result in json.loads(ended.out)] == ["ok"]


@pytest.mark.slow
def test_the_example_is_sound(linbench: Callable[..., Any]) -> None:
    assert linbench("check", f"{EXAMPLE}:Pulse").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["native", "controlled"])
def test_the_example_of_a_plain_module_is_sound_in_both_forms(
    linbench: Callable[..., Any], form: str
) -> None:
    told = linbench("check", f"{GUEST}:Carried", "--form", form)
    assert told.code == 0
    assert {line.split()[-1] for line in told.err.splitlines() if line[:5] in ("strea", "state")} == {"ok"}


def test_the_example_is_about_twenty_lines() -> None:
    assert sum(bool(line.strip()) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 22


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_example_runs_beside_the_others(linbench: Callable[..., Any], tiny: list[str]) -> None:
    ended = linbench(
        "run", "mqar", "--model", f"{EXAMPLE}:Pulse,deltanet", "--form", "controlled", "--json", *tiny
    )
    assert [result["status"] for result in json.loads(ended.out)] == ["ok", "ok"]


def test_the_example_streams() -> None:
    entry = registry("model").find(f"{EXAMPLE}:Pulse")
    mixer = entry.cls(entry.cls.Settings(), LayerInfo(0, 1, 16)).double()
    mixer.readout.linear.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 70, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = mixer(x).y
    first = mixer(x[:, :33], mixer.init_state(2, capacity=70))
    second = mixer(x[:, 33:], first.state)
    torch.testing.assert_close(torch.cat([first.y, second.y], dim=1), whole, rtol=1e-9, atol=1e-12)
    assert whole.abs().max() > 0
