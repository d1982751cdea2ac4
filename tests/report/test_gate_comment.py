"""The comment of a gate: few lines, and everything else folded."""

import random

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.tables.gate import page
from linbench.report.tables.gate_comment import WIDTH, comment, interval_picture
from linbench.results.gate import Gate
from linbench.results.gate_policy import Policy
from linbench.results.judgement import SeedPair, judge

FALLS = (0.0, 0.05, 0.03, -0.02, 0.12)


def gated(falls: tuple[float, ...], *, name: str = "mqar native, m", problems: int = 0) -> Gate:
    """Cells that fell by so much, with six seeds each."""
    noise = random.Random(1)
    pairs = []
    for place, fall in enumerate(falls):
        seeds = [noise.gauss(0.8, 0.05) for _ in range(6)]
        after = [seed - fall + noise.gauss(0, 0.008) for seed in seeds]
        pairs.append(SeedPair(f"{name}{place}", seeds, after, chance=0.1))
    return Gate(tuple(judge(pairs, Policy())), tuple(f"Problem {i}." for i in range(problems)), ())


def shown(found: Gate) -> list[str]:
    """The lines that a reader sees before the details are unfolded."""
    return [line for line in comment(found, Policy()).partition("<details>")[0].splitlines() if line]


def test_it_says_the_verdict_what_changed_and_what_would_have_been_seen(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(shown(gated(FALLS, problems=1))) == snapshot
    assert "\n".join(shown(gated((0.0, 0.0)))) == snapshot(name="nothing changed")


def test_everything_else_is_folded() -> None:
    found = gated(FALLS)
    _, _, details = comment(found, Policy()).partition("<details>")
    assert page(found, Policy()) in details
    assert details.rstrip().endswith("</details>")


@pytest.mark.parametrize(("cells", "problems"), [(1, 0), (40, 0), (40, 9), (0, 9)])
def test_it_has_at_most_twelve_lines(cells: int, problems: int) -> None:
    assert 1 <= len(shown(gated((0.1,) * cells, problems=problems))) <= 12


def test_a_name_stays_a_name() -> None:
    """A cell is named by the pull request."""
    found = gated((0.2,), name="</details><img src=x>|`@all` ![](http://x) \n# ")
    lines = shown(found)
    assert len(lines) == 5
    assert not {"<img", "</details", "@all", "![]("} & {part for line in lines for part in line.split()}
    assert "http://x)" not in comment(found, Policy())


@pytest.mark.parametrize(
    ("interval", "picture"),
    [
        ((-0.1, -0.05, 0.0), "─────●─────··········"),
        ((0.05, 0.05, 0.05), "··········┊····●·····"),
        ((-9.0, -8.0, 9.0), "●────────────────────"),
    ],
)
def test_a_picture_shows_the_interval_beside_zero(interval: tuple[float, float, float], picture: str) -> None:
    assert interval_picture(*interval, 0.1) == picture
    assert len(picture) == WIDTH
