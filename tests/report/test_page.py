import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import StorageError
from linbench.experiments.registry import card
from linbench.models.deltanet import DeltaNet
from linbench.report.page import pictures as module
from linbench.report.page.page import Claimed, page, save_page
from linbench.report.tables.comparison import caption
from linbench.results.comparison import comparisons
from linbench.results.store import CELL, SPEED, Store
from tests.helpers.speeds import a_speed

HOSTILE = "<script>alert('no')</script>\"'&$\\frac$"
ROOT = Path(__file__).parents[2]


class Tags(HTMLParser):
    """The parts that a browser would find: every tag with its attributes, and the words between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def words_of(text: str) -> str:
    """Return the words of a page, or of a part of it, without its tags."""
    return " ".join(" ".join(Tags(text).words).split())


def part(text: str, opening: str, closing: str) -> str:
    """Return what stands first between both in a page."""
    return text.partition(opening)[2].partition(closing)[0]


@pytest.fixture
def results(a_result: Any) -> list[Any]:
    curve = [
        {"step": i, "tokens": 100 * i, "accuracy": 0.1 * i, "loss": 1.0, "nll": 1.0} for i in range(1, 5)
    ]
    good = [
        a_result(name, seed, 0.5 + 0.1 * seed, curve=curve, form="controlled")
        for name in ("deltanet", "attention", HOSTILE)
        for seed in (0, 1)
    ]
    return [
        *good,
        a_result(
            "gla",
            form="controlled",
            status="failed",
            metrics={},
            reason="<img src=x onerror=alert(1)>",
            marks=["lr_edge"],
        ),
    ]


def test_it_has_tables_figures_cards_environment_and_failures(
    results: list[Any], snapshot: SnapshotAssertion
) -> None:
    text = page(results, title="mine", aside=["0123.json.unreadable-0"])
    tags = Tags(text)
    words = words_of(text)
    assert "mqar quick, controlled form" in words
    assert "0.550 ± 0.071" in words
    (compared,) = comparisons(results)
    assert "Controlled form:" in caption(compared)
    assert caption(compared) in words
    assert sum(tag == "img" for tag, _ in tags.found) == 1
    assert {attributes.get("id") for tag, attributes in tags.found if tag == "details"} >= {
        "card-deltanet",
        "card-attention",
        "card-gla",
    }
    assert " ".join(card(DeltaNet).split()) in words
    (told,) = (told for told in tags.words if "not installed" in told)
    assert told == snapshot, "the card of a model from elsewhere"
    assert "<img src=x onerror=alert(1)>" in words
    assert "lr_edge 1/1, failed 1/1" in words
    assert "0123.json.unreadable-0" in words


def claim_sections(result: Any, words: str = "the delta rule recalls more") -> Claimed:
    figures = pd.DataFrame(
        [["delta", "deltanet, accuracy", "0.900", "3 seeds"]], columns=["measure", "of", "figure", "out of"]
    )
    return Claimed(
        ["C7", "supported", words, ""],
        {"Source": "a paper"},
        [("On cpu, supported", figures)],
        {result["id"]},
    )


@pytest.mark.slow
def test_it_has_speeds_and_what_is_said_of_claims(results: list[Any], snapshot: SnapshotAssertion) -> None:
    speeds = [
        a_speed(label, length=length, seconds=length) for label in ("deltanet", "kda") for length in (64, 256)
    ]
    text = page(
        results, title="mine", speeds=speeds, claims=[claim_sections(results[0]), claim_sections(speeds[0])]
    )
    tags = Tags(text)
    words = words_of(text)
    assert words_of(part(text, "<dt>Measured</dt>", "</div>")) == "4 speeds of layers"
    assert words_of(part(text, '<details class="section" id="speed">', "<table>")) == snapshot(name="speed")
    assert "growth" in words
    assert sum(tag == "img" for tag, _ in tags.found) == 2
    ids = {attributes.get("id") for _, attributes in tags.found}
    assert {"speed", "claims", "C7", "card-kda"} <= ids, "kda was measured alone"
    assert words_of(part(text, 'id="C7">', "</details>")) == snapshot(name="C7")
    (slug,) = {
        attributes["id"] for tag, attributes in tags.found if "comparison" in (attributes.get("class") or "")
    }
    assert [attributes["href"] for tag, attributes in tags.found if tag == "a"].count(f"#{slug}") == 3, (
        "so do the contents, the ranking and a claim, which says what it rests on"
    )
    assert [attributes["href"] for tag, attributes in tags.found if tag == "a"].count("#speed") == 2
    assert (
        page(
            results,
            title="mine",
            speeds=list(reversed(speeds)),
            claims=[claim_sections(results[0]), claim_sections(speeds[0])],
        )
        == text
    )


def test_speeds_alone_are_a_page() -> None:
    text = page([], title="mine", speeds=[a_speed()])
    assert words_of(part(text, "<dt>Measured</dt>", "</div>")) == "1 speed of layers"
    words = words_of(text)
    assert "Trained" not in words
    assert "Ranking" not in words
    assert "By task and model" not in words
    assert "say of claims" not in words


def test_hostile_names_are_words_and_nothing_else(results: list[Any]) -> None:
    tags = Tags(
        page(
            results,
            title=HOSTILE,
            aside=[HOSTILE],
            speeds=[a_speed(HOSTILE)],
            claims=[claim_sections(results[0], HOSTILE)],
        )
    )
    assert sum(tag == "script" for tag, _ in tags.found) == 1
    assert all("onerror" not in attributes for _, attributes in tags.found)
    (source,) = (attributes["src"] for tag, attributes in tags.found if tag == "img")
    assert "&lt;script&gt;alert(%27no%27)" in (source or ""), "in the picture, too, a word"


def test_it_needs_nothing_beside_it_and_says_so_to_the_browser(results: list[Any]) -> None:
    tags = Tags(page(results, title="mine"))
    linked = [
        value
        for _, attributes in tags.found
        for name, value in attributes.items()
        if name in {"src", "href"} and value
    ]
    assert linked
    assert all(value.startswith(("#", "data:image/")) for value in linked)
    policy = next(
        attributes["content"]
        for tag, attributes in tags.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert (policy or "").startswith("default-src 'none'; img-src data:")
    anchors = {attributes.get("id") for _, attributes in tags.found}
    assert {value[1:] for value in linked if value.startswith("#")} <= anchors


@pytest.mark.slow
def test_the_same_results_make_the_same_page(results: list[Any]) -> None:
    assert page(results, title="mine") == page(list(reversed(results)), title="mine")


def test_without_failures_it_says_so(a_result: Any, snapshot: SnapshotAssertion) -> None:
    text = page([a_result()], title="mine")
    failures = part(text, 'id="failures">', "</details>")
    assert "<table>" not in failures
    assert words_of(failures) == snapshot
    assert words_of(text).count("None.") == 3


def test_a_model_in_several_comparisons_has_a_row_of_them_all(a_result: Any) -> None:
    results = [
        a_result("deltanet", score=0.5),
        a_result("deltanet", score=0.7, kv_pairs=16, marks=["lr_edge"]),
        a_result("gla", kv_pairs=16),
    ]
    overview = part(page(results, title="mine"), 'id="overview">', "</details>")
    rows = [re.findall("<td[^>]*>(.*)</td>", row) for row in re.findall("(?s)<tr>(.*?)</tr>", overview)]
    assert rows[1:] == [["deltanet", "0.500", "0.700 †"], ["gla", "–", "0.500"]]


@pytest.mark.slow
def test_where_there_is_no_room_pictures_are_dots(
    results: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {}
    for room in (module.PICTURES_BYTES, 0):
        monkeypatch.setattr(module, "PICTURES_BYTES", room)
        (sources[room],) = re.findall(r"<img src='([^']*)'", page(results, title="mine"))
    lines, dots = sources.values()
    assert lines.startswith("data:image/svg+xml")
    assert dots.startswith("data:image/png;base64,") == (len(dots) < len(lines))


def test_a_file_that_cannot_be_written_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "report.html", tmp_path):
        with pytest.raises(StorageError, match="cannot write the report"):
            save_page(path, lambda: pytest.fail("it is said before the page is made"))
    save_page(tmp_path / "new" / "report.html", lambda: "page")
    assert (tmp_path / "new" / "report.html").read_text() == "page"


@pytest.mark.parametrize(
    "store",
    [
        pytest.param("cpu/zoo-quick", marks=pytest.mark.slow),
        pytest.param("h200", marks=[pytest.mark.slow, pytest.mark.nightly]),  # drawn in a minute
    ],
)
def test_the_page_of_a_large_store_is_below_five_megabytes(store: str) -> None:
    from linbench.claims.report_section import claim_sections
    from linbench.claims.stored_results import Stored

    stored = Stored([Store(ROOT / "results" / store)])
    (kept,) = stored.by_folder.values()
    html = page(kept[CELL], title=store, speeds=kept[SPEED], claims=claim_sections(stored))
    assert len(html.encode()) < 5_000_000
