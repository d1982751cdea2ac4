"""Text that a result, a plugin or a suite brings stays text in every output."""

import csv as spreadsheets
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from linbench.claims.figure import drawings as claim_drawings
from linbench.claims.page import detail
from linbench.claims.page import page as claims_page
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import verdict
from linbench.common import escape
from linbench.experiments.suite import Suite, blocks
from linbench.report.export import csv, latex, plain, save_tables
from linbench.report.figure import drawings, save_figures
from linbench.report.page.page import page
from linbench.report.style.wording import latex as latex_of_words
from linbench.report.style.wording import markdown as markdown_of_words
from linbench.report.tables import gate as gated
from linbench.report.tables import side_by_side as beside
from linbench.report.tables.benchmarks import bench_tables
from linbench.report.tables.comparison import markdown, rich_tables
from linbench.report.tables.layer_speeds import tables as speed_tables
from linbench.results.comparison import Comparison, comparisons
from linbench.results.gate import gate
from linbench.results.gate_policy import Policy
from linbench.results.record import Result
from linbench.results.side_by_side import side_by_side
from linbench.results.speeds import speeds
from tests.claims.claiming import a_claim, keeping
from tests.hostile import ALONE, FIELDS, TEXTS, results
from tests.speeds import a_speed

Make = Callable[..., Result]
HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {
    "heading",
    "paragraph",
    "inline",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "bullet_list",
    "list_item",
    "text",
    "text_special",
}
"""Parts of Markdown that our tables, captions and sentences are made of."""

COMMANDS = re.compile(
    r"\\(?:begin|end)\{(?:table|tabular)\}|\\(?:centering|caption|label|resizebox|ifdim|width|linewidth|else|fi|toprule|midrule|bottomrule|pm|to"
    r"|textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|usepackage)(?![a-z])|\\[\\&%$#_{}]"
)
SMALL = {
    "task.seq_len": 16,
    "task.kv_pairs": 2,
    "task.vocab_size": 16,
    "model.d_model": 16,
    "model.heads": 2,
    "model.layers": 1,
}
every_text = pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Stored]:
    return keeping(tmp_path)


def assert_markdown(text: str, *, also: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """It opens nothing but tables, headings, lists and paragraphs, and joins nothing to a mention, an issue
    or a link."""
    assert not HIDDEN.search(text)
    tokens = list(READER.parse(text))
    kinds = {
        re.sub("_(open|close)$", "", each.type)
        for token in tokens
        for each in (token, *(token.children or ()))
    }
    assert kinds <= OURS | also, kinds - OURS
    said = "".join(
        each.content for token in tokens for each in token.children or () if each.type != "code_inline"
    )
    assert not re.search(r"@[\w-]|#\d|GH-\d|\w://|www\.\w|mailto:\w", said)
    assert not re.search(r"(?<!\\)\$", text)


def assert_latex(text: str) -> None:
    """Every command is one of ours, every brace is closed, and nothing is a comment but the first line."""
    first, _, rest = text.partition("\n")
    assert first.startswith("% \\usepackage")
    assert not HIDDEN.search(text)
    for tables in rest.split(first):
        left = COMMANDS.sub("", re.sub(r"(?<=\{)!(?=\})|\{%\n", "{", tables))
        assert "\\" not in left, left[left.index("\\") :][:80]
        assert not re.search(r"[#%~^]", left.replace("$$", ""))
        bare = re.sub(r"\\[\\{}]", "", tables)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"(?:\\\\|rule)\s*[\[*]", tables), "a line end takes no bracket of the next line"


def assert_csv(text: str) -> None:
    assert not HIDDEN.search(text)
    rows = list(spreadsheets.reader(StringIO(text)))
    assert len({len(row) for row in rows}) == 1
    for cell in (cell for row in rows for cell in row):
        assert not re.match(r"[=+\-@\t\r]", cell) or re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell), cell


def shown(found: list[Comparison]) -> Iterator[str]:
    """As a terminal has it."""
    for width in (60, 400):
        console = Console(file=StringIO(), width=width)
        for comparison in found:
            console.print(*rich_tables(comparison))
        yield console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
@every_text
def test_in_tables(a_result: Make, text: str) -> None:
    found = [
        comparison for field in FIELDS | ALONE for comparison in comparisons(results(a_result, text, field))
    ]
    for comparison in found:
        assert_markdown(markdown(comparison))
        assert_latex(latex(comparison))
        assert_csv(csv(comparison))
    assert not any(HIDDEN.search(words) for words in shown(found))


def sides(make: Make, text: str) -> Iterator[tuple[list[Result], list[Result]]]:
    for field in FIELDS | ALONE:
        hostile, sound = results(make, text, field), results(make, "deltanet", field)
        yield from ((hostile, sound), (sound, hostile), (hostile, hostile), (hostile[2:], []))


@pytest.mark.slow
@every_text
def test_in_a_gate(a_result: Make, text: str) -> None:
    for baseline, candidate in sides(a_result, text):
        for policy in (Policy.parse({"seeds": 2, "slower": 1.1}, where="policy"), Policy()):
            assert_markdown(gated.page(gate(baseline, candidate, policy), policy))


@every_text
def test_in_files(a_result: Make, tmp_path: Path, text: str) -> None:
    """All are in the folder asked for, under names of letters, digits, '.', '_' and '-'."""
    (tmp_path / "asked").mkdir()
    found = comparisons(results(a_result, text))
    written = save_tables(found, tmp_path / "asked")
    assert {path.resolve() for path in tmp_path.rglob("*") if path.is_file()} == {
        path.resolve() for path in written
    }
    assert len(written) == len(set(written))
    for path in written:
        assert path.parent == tmp_path / "asked"
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", path.name)
        assert len(path.name) < 200
    for path in (path for path in written if path.suffix == ".json"):
        assert not HIDDEN.search(path.read_text().replace("\n", " "))
        assert json.loads(path.read_text())["rows"]
    everything = json.dumps([plain(comparison) for comparison in found])
    assert json.dumps(text)[1:-1] in everything, "JSON has it as it was"


@pytest.mark.slow
@every_text
def test_in_pictures(a_result: Make, tmp_path: Path, text: str) -> None:
    found = comparisons(results(a_result, text))
    few = results(a_result, text, "label", "mark")
    alone = comparisons(
        [*few, *(result | {"purpose": "tuning", "id": f"{result['id']} tuned"} for result in few)]
    )
    assert len(save_figures(alone, tmp_path, ["learning-curves", "learning-rates"], ["svg"])) == 4
    save_figures(found, tmp_path, ["slices"], ["svg"])
    words = []
    for path in tmp_path.iterdir():
        content = path.read_text()
        assert not HIDDEN.search(content)
        if path.suffix == ".svg":
            tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(content).iter()}
            assert not tags & {"script", "a", "image", "foreignObject", "h1"}
            words += [
                "".join(element.itertext())
                for element in ElementTree.fromstring(content).iter()
                if element.tag.endswith("}text")
            ]
    for part in escape.visible(text).split():
        assert any(part in said for said in words), part


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["n" * 5000, "ab " * 3000, "日本→" * 30, "x\n" * 300], ids=["long", "words", "letters", "lines"]
)
def test_long_text_in_pictures(a_result: Make, tmp_path: Path, text: str) -> None:
    for fields in (("label",), ("task", "mark"), ("label", "reason", "slice", "device")):
        assert save_figures(comparisons(results(a_result, text, *fields)), tmp_path, formats=["png", "svg"])


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.slow
@every_text
def test_in_the_report(a_result: Make, text: str) -> None:
    told = page(results(a_result, text), title=text, aside=[text], speeds=[a_speed(label=text)])
    assert not HIDDEN.search(told)
    tags = Tags(told)
    assert (
        tags.tags.count("script")
        == tags.tags.count("style")
        == tags.tags.count("title")
        == tags.tags.count("h1")
        == 1
    )
    assert not set(tags.tags) & {"iframe", "object", "form", "svg", "base", "link"}
    assert not [name for _, name, _ in tags.attributes if name.startswith("on")]
    links = [value or "" for _, name, value in tags.attributes if name in {"href", "src"}]
    assert all(value.startswith(("#", "data:image/")) for value in links)
    assert {value[1:] for value in links if value.startswith("#")} <= {
        value for _, name, value in tags.attributes if name == "id"
    }
    assert " ".join(escape.visible(text).split()) in " ".join(" ".join(tags.words).split())


@every_text
def test_in_speeds(text: str) -> None:
    failed = a_speed(label=text, length=256) | {"status": "failed", "reason": text, "marks": [text]}
    failed["environment"]["commit"] = failed["bench"]["device"] = text
    for table in [*speed_tables([a_speed(label=text), failed]), *bench_tables([])]:
        assert_markdown(markdown_of_words(table))
        assert_latex(latex_of_words(table))
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", table.slug)


def test_two_tasks_of_one_name_for_files_have_files_each(a_result: Make, tmp_path: Path) -> None:
    found = []
    for name in ("A b", "a-b", "a, b"):
        result = a_result()
        result["cell"]["task"]["name"] = name
        found.append(result)
    written = save_tables(comparisons(found), tmp_path)
    assert len(set(written)) == len(written) == len(list(tmp_path.iterdir()))
    drawn = [
        drawing.slug for comparison in comparisons(found) for drawing in drawings(comparison, ["models"])
    ]
    assert len(drawn) == 3


def test_ordinary_labels_stay_as_they_are() -> None:
    ordinary = (
        "fox[forget_bias=8]", "deltanet+attention[window=16]", "deltanet (heads 2, lr 0.001)", "rfa[directions=16,gated=true]", "0.550 ± 0.071",
        "+0.012 [-0.100, +0.124]", "<0.001", "scores < 1e-5", "stale_previous", "lr_edge 1/3, failed 1/3", "1,234", "mqar quick-hard", "R & D",
        "[0, 4]", "feature_map=elu+1]", "Intel(R) Xeon(R) CPU @ 2.20GHz", "head_dim None", "±", "–",
    )  # fmt: skip
    for text in ordinary:
        assert escape.markdown(text) == escape.one_line(text) == escape.visible(text) == text
        assert text[:1] in "+" or escape.csv(text) == text
    assert escape.paragraph("8,192 tokens; 1.5 times") == "8,192 tokens; 1.5 times"


@every_text
def test_in_a_comparison(a_result: Make, text: str) -> None:
    suite = Suite.parse(
        {"about": "a test", "tasks": ["mqar"], "models": ["deltanet", "gla"], "seeds": "0,1", "set": SMALL},
        where="suite",
    )
    found, _ = blocks(suite, device="cpu")
    kept = {}
    for model, cells in found[0].rows:
        for cell in cells:
            kept[cell.id] = a_result(
                model.model,
                cell.seed,
                environment={"commit": None, "dirty": None, "packages": {}, "device": {}},
                marks=[],
            )
            kept[cell.id]["cell"] = json.loads(json.dumps(cell.identity))
            kept[cell.id]["cell"]["protocol"]["settings"]["spare"] = 1
            for put in (FIELDS[field] for field in FIELDS if field != "slice"):
                put(kept[cell.id], text)
    speeds_ = speeds([a_speed(text, bench={"device": text})])
    (table,) = side_by_side(found, kept, speeds_)
    assert_markdown(beside.page(table), also={"code_inline"})


@every_text
def test_in_the_page_of_claims(kept: Callable[..., Stored], tmp_path: Path, text: str) -> None:
    claim = a_claim()
    if not text.isascii() and "\\ud" in ascii(text):
        with pytest.raises(ValueError, match="a result cannot be kept"):
            kept(claim, {"delta": [0.9], "sum": [0.1]}, device=text)
        return
    kept(claim, {"delta": [0.9, 0.91, 0.92], "sum": [0.1, 0.1, 0.1]}, device=text)
    stored = kept(
        claim,
        {"delta": [0.9, 0.91, 0.92], "sum": [0.1, 0.1, 0.1]},
        device="cpu",
        marks=[text],
        status="failed",
        reason=text,
        metrics={},
    )
    found = [verdict(claim, stored)]
    keep, few = keeping(tmp_path / "few"), {"delta": [0.9, 0.91], "sum": [0.1, 0.1]}
    keep(claim, few, device="cpu")
    undecided = keep(claim, few, device=text)
    at_length = detail(verdict(claim, undecided), undecided)
    assert escape.markdown(text) in next(line for line in at_length if line.startswith("- **undecided**: "))
    assert_markdown("\n".join(at_length), also={"code_inline", "strong", "softbreak"})
    told = claims_page(found, stored, command=f"linbench claims --save {text}", beside=Path("docs/claims.md"))
    ours = {"code_inline", "strong", "link", "image", "fence", "softbreak"}
    assert_markdown(told.partition("writes this page")[2], also=ours)
    leads = [
        str(child.attrs.get("href") or child.attrs.get("src") or "")
        for token in READER.parse(told)
        for child in token.children or ()
    ]
    assert all(re.fullmatch(r"(#c\d+|claims/C1-[a-z0-9._-]+\.png)?", lead) for lead in leads), leads
    for drawing in claim_drawings(found[0]):
        assert re.fullmatch(r"C1-[a-z0-9][a-z0-9._-]*", drawing.slug)
        assert not HIDDEN.search(drawing.pictures(["svg"])["svg"].decode())
