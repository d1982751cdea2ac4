"""Nothing is told that is not stored: every number of a page is made, computed or defined.

A table comes from a command (`blocks.py`), a number in a sentence from a function (`facts.py`), and a setting
or a limit is in a list with its reason (`definitions.py`).
"""

import re
from fnmatch import fnmatch

import pytest

from tests.pages.blocks import PAGES, WHOLE, Block, blocks, relative, shown
from tests.pages.definitions import DEFINITIONS
from tests.pages.fact import Fact
from tests.pages.facts import FACTS
from tests.pages.numbers import RAW_LOST, measured, spaced
from tests.results.drawn import ROOT

READ = [relative(page) for page in PAGES if relative(page) not in WHOLE]


def known(page: str) -> list[re.Pattern[str]]:
    """Return the patterns of what is computed or defined on a page."""
    return [
        *(spaced(fact.says) for fact in FACTS if fact.page == page),
        *(one.words for one in DEFINITIONS if fnmatch(page, one.page)),
    ]


@pytest.mark.parametrize("page", READ)
def test_every_number_is_made_computed_or_defined(page: str) -> None:
    found = measured((ROOT / page).read_text(encoding="utf-8"), known(page))
    assert [f"{page}:{one.line}: {one.text} in: {one.context}" for one in found] == []


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(fact, marks=pytest.mark.slow if fact.slow else (), id=f"{fact.page}: {fact.says[:40]}")
        for fact in FACTS
    ],
)
def test_the_numbers_of_a_sentence_follow_from_what_is_stored(fact: Fact) -> None:
    text = " ".join((PAGES[0].parent / fact.page).read_text(encoding="utf-8").split())
    assert fact.phrase() in text


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page}: {block.name}")
def test_a_table_is_what_its_command_makes(block: Block) -> None:
    assert shown(block.page)[block.name] == block.make(), f"{block.command} makes it anew"


def test_every_table_with_a_mark_is_in_the_list() -> None:
    marked = {(relative(page), name) for page in PAGES for name in shown(relative(page))}
    assert marked == {(block.page, block.name) for block in blocks()}


def test_no_definition_is_left_over() -> None:
    texts = {relative(page): page.read_text(encoding="utf-8") for page in PAGES}
    assert [
        one
        for one in DEFINITIONS
        if not any(fnmatch(page, one.page) and one.words.search(text) for page, text in texts.items())
    ] == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("DeltaNet recalls .98 of them.", [".98"]),
        ("It is 1.5 times as\nfast, at 12 % of the cost.", ["1.5 times", "12 %"]),
        ("It is 14 times as fast and trains 22 M tokens/s in 3 ms.", ["14 times", "22 M tokens", "3 ms"]),
        ("Two seeds of three miss it, 5 of 8 do not.", ["Two seeds of three", "5 of 8"]),
        ("| DeltaNet | 12 | 0.98 ± 0.01 |\n", ["12", "0.98 ± 0.01"]),
        ("See [it](a-0.5.md), `lr=.003`, arXiv 2312.04927, Triton 3.4 to 3.7.0.", []),
        ("# 0.5 of all\n```\n0.98\n```\n<!-- 0.5 -->\n    y = 0.5 x\n", []),
        ("<!-- table: kernels-256 -->\n| a |\n|---|\n| 0.98 |\n", []),
        (f"# Title\n\n{RAW_LOST}\n\n.98\n\n## More\n\n.97\n", []),
        (f"# Title\n\n.98\n\n## More\n\n{RAW_LOST} It was .97.\n\n## Last\n\n.96\n", [".98", ".96"]),
        ("64 pairs in 256 tokens at width 64", []),
    ],
)
def test_what_looks_measured(text: str, numbers: list[str]) -> None:
    assert [one.text for one in measured(text)] == numbers


def test_a_phrase_covers_its_own_numbers_alone() -> None:
    text = "It takes 1.5 to 2.5 ms on\none device and 3.5 ms on another."
    phrase = spaced("takes {} to {} ms on one device")
    assert [one.text for one in measured(text, [phrase])] == ["3.5 ms"]
