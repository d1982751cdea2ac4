import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from linbench.cards import card
from linbench.common.errors import StorageError
from linbench.models.deltanet import DeltaNet
from linbench.report import page as module
from linbench.report.page import page, save_page
from linbench.store import Store

HOSTILE = "<script>alert('no')</script>\"'&$\\frac$"
ROOT = Path(__file__).parents[2]


class Tags(HTMLParser):
    """What a browser would find: every tag with its attributes, and the words between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def results(a_result: Any) -> list[Any]:
    curve = [{"step": i, "tokens": 100 * i, "accuracy": 0.1 * i, "loss": 1.0, "nll": 1.0} for i in range(1, 5)]
    good = [a_result(name, seed, 0.5 + 0.1 * seed, curve=curve, form="controlled") for name in ("deltanet", "attention", HOSTILE) for seed in (0, 1)]
    return [*good, a_result("gla", form="controlled", status="failed", metrics={}, reason="<img src=x onerror=alert(1)>", marks=["lr_edge"])]


def test_it_has_tables_figures_cards_environment_and_failures(results: list[Any]) -> None:
    text = page(results, title="mine", aside=["0123.json.unreadable-0"])
    tags = Tags(text)
    words = " ".join(" ".join(tags.words).split())
    assert "mqar quick, controlled form" in words
    assert "0.550 ± 0.071" in words
    assert "Controlled form: the same convolution" in words
    assert sum(tag == "img" for tag, _ in tags.found) == 1
    assert {attributes["id"] for tag, attributes in tags.found if tag == "details"} >= {"card-deltanet", "card-attention", "card-gla"}
    assert " ".join(card(DeltaNet).split()) in words
    assert "It is not installed where this page was made." in words, "the card of a model from elsewhere"
    assert "<img src=x onerror=alert(1)>" in words
    assert "lr_edge 1/1, failed 1/1" in words
    assert "0123.json.unreadable-0" in words


def test_hostile_names_are_words_and_nothing_else(results: list[Any]) -> None:
    tags = Tags(page(results, title=HOSTILE, aside=[HOSTILE]))
    assert sum(tag == "script" for tag, _ in tags.found) == 1
    assert all("onerror" not in attributes for _, attributes in tags.found)
    (source,) = (attributes["src"] for tag, attributes in tags.found if tag == "img")
    assert "&lt;script&gt;alert(%27no%27)" in (source or ""), "in the picture, too, a word"


def test_it_needs_nothing_beside_it_and_says_so_to_the_browser(results: list[Any]) -> None:
    tags = Tags(page(results, title="mine"))
    linked = [value for _, attributes in tags.found for name, value in attributes.items() if name in {"src", "href"} and value]
    assert linked
    assert all(value.startswith(("#", "data:image/")) for value in linked)
    policy = next(attributes["content"] for tag, attributes in tags.found if attributes.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none'; img-src data:")
    anchors = {attributes.get("id") for _, attributes in tags.found}
    assert {value[1:] for value in linked if value.startswith("#")} <= anchors


def test_the_same_results_make_the_same_page(results: list[Any]) -> None:
    assert page(results, title="mine") == page(list(reversed(results)), title="mine")


def test_without_failures_it_says_so(a_result: Any) -> None:
    words = " ".join(" ".join(Tags(page([a_result()], title="mine")).words).split())
    assert "Cells that did not end well None. Models with marks" in words
    assert words.count("None.") == 3


def test_a_model_in_several_comparisons_has_a_row_of_them_all(a_result: Any) -> None:
    results = [a_result("deltanet", score=0.5), a_result("deltanet", score=0.7, kv_pairs=16, marks=["undertrained"]), a_result("gla", kv_pairs=16)]
    text = " ".join(page(results, title="mine").split())
    assert '<td class="left">deltanet</td> <td>0.500</td> <td>0.700 †</td>' in text
    assert '<td class="left">gla</td> <td>–</td> <td>0.500</td>' in text


def test_where_there_is_no_room_pictures_are_dots(results: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {}
    for room in (module.PICTURES_BYTES, 0):
        monkeypatch.setattr(module, "PICTURES_BYTES", room)
        (sources[room],) = re.findall(r"<img src='([^']*)'", page(results, title="mine"))
    lines, dots = sources.values()
    assert lines.startswith("data:image/svg+xml")
    assert dots.startswith("data:image/png;base64,") == (len(dots) < len(lines))


def test_a_folder_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no results folder"):
        save_page(Store(tmp_path / "nowhere"), tmp_path / "report.html")


@pytest.mark.slow
def test_the_page_of_twelve_hundred_results_is_below_five_megabytes(tmp_path: Path) -> None:
    save_page(Store(ROOT / "results" / "h200"), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
