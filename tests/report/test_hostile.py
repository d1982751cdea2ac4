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
from linbench.report.data import ReportData
from linbench.report.page import page as report
from linbench.report.table import save_tables
from linbench.report.tables import all_tables
from linbench.report.tables import gate as gated
from linbench.report.tables import side_by_side as beside
from linbench.report.tables.benchmarks import bench_tables
from linbench.report.tables.comparison import table as comparison_table
from linbench.report.tables.layer_speeds import tables as speed_tables
from linbench.results.comparison import Comparison, comparisons
from linbench.results.gate import gate
from linbench.results.gate_policy import Policy
from linbench.results.schema import Result
from linbench.results.side_by_side import compare_variants
from linbench.results.speeds import speeds
from tests.helpers.claims import a_claim, keeping
from tests.helpers.figures import drawings, save_figures
from tests.helpers.hostile import ALONE, FIELDS, TEXTS, results, results_of_all
from tests.helpers.speeds import a_speed

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
    r"\\(?:begin|end)\{(?:table|tabular)\}"
    r"|\\(?:centering|caption|label|resizebox|ifdim|width|linewidth|else|fi|toprule|midrule|bottomrule|pm|to"
    r"|textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|usepackage)"
    r"(?![a-z])|\\[\\&%$#_{}]"
)
SMALL = {
    "task.seq_len": 16,
    "task.kv_pairs": 2,
    "task.vocab_size": 16,
    "model.d_model": 16,
    "model.heads": 2,
    "model.layers": 1,
}
APART = (
    "device",
    "task",
    "source of the task",
    "name of a setting of the task",
    "setting of the task",
    "name of a setting of the protocol",
    "precision",
    "form",
)
"""Fields that keep results in comparisons of their own, and show in different places there."""

CASES = {field: (field,) for field in FIELDS | ALONE if field not in APART} | {"all that keep apart": APART}
every_case = pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
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
    """Yield the tables as a narrow and as a wide terminal shows them."""
    for width in (60, 400):
        console = Console(file=StringIO(), width=width)
        for comparison in found:
            console.print(comparison_table(comparison).to_terminal())
        yield console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
@every_case
def test_in_tables(a_result: Make, fields: tuple[str, ...]) -> None:
    """All texts at once: where a field keeps them in one comparison, there is one table of them."""
    found = comparisons(results_of_all(a_result, *fields))
    assert len(found) == (1 if fields[0] not in {*APART, "test"} else 1 + len(TEXTS))
    for comparison in found:
        table = comparison_table(comparison)
        assert_markdown(table.to_markdown())
        assert_latex(table.to_latex())
        assert_csv(table.to_csv())
    assert not any(HIDDEN.search(words) for words in shown(found))


def sides(make: Make, fields: tuple[str, ...]) -> Iterator[tuple[list[Result], list[Result]]]:
    hostile = results_of_all(make, *fields)
    sound = results_of_all(make, *fields, texts=["deltanet"] * len(TEXTS))
    yield from ((hostile, sound), (sound, hostile), (hostile, hostile), (hostile[2:], []))


@pytest.mark.slow
@every_case
def test_in_a_gate(a_result: Make, fields: tuple[str, ...]) -> None:
    for baseline, candidate in sides(a_result, fields):
        for policy in (Policy.parse({"seeds": 2, "slower": 1.1}, where="policy"), Policy()):
            assert_markdown(gated.page(gate(baseline, candidate, policy), policy))


@every_text
def test_in_files(a_result: Make, tmp_path: Path, text: str) -> None:
    """All are in the folder asked for, under names of letters, digits, '.', '_' and '-'."""
    (tmp_path / "asked").mkdir()
    tables = all_tables(ReportData(results(a_result, text)))
    written = save_tables(tables, tmp_path / "asked")
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
    everything = json.dumps([table.to_json() for table in tables])
    assert json.dumps(text)[1:-1] in everything, "JSON has it as it was"


def words_of(folder: Path) -> list[str]:
    """All words of pictures, which have no other elements than a picture needs."""
    words = []
    for path in folder.iterdir():
        content = path.read_text()
        assert not HIDDEN.search(content)
        if path.suffix == ".svg":
            elements = list(ElementTree.fromstring(content).iter())
            tags = {element.tag.rpartition("}")[2] for element in elements}
            assert not tags & {"script", "a", "image", "foreignObject", "h1"}
            words += ["".join(one.itertext()) for one in elements if one.tag.endswith("}text")]
    return words


@pytest.mark.slow
def test_in_names_of_pictures(a_result: Make, tmp_path: Path) -> None:
    """All texts are names of models in one comparison."""
    few = results_of_all(a_result, "label", "mark")
    tuning = [result | {"purpose": "tuning", "id": f"{result['id']} tuned"} for result in few]
    found = comparisons([*few, *tuning])
    assert len(save_figures(found, tmp_path, ["learning-curves", "learning-rates"], ["svg"])) == 4
    words = words_of(tmp_path)
    for part in (part for text in TEXTS for part in escape.visible(text).split()):
        assert any(part in said for said in words), part


@pytest.mark.slow
@every_text
def test_in_titles_and_labels_of_pictures(a_result: Make, tmp_path: Path, text: str) -> None:
    assert save_figures(comparisons(results(a_result, text)), tmp_path, ["slices"], ["svg"])
    words = words_of(tmp_path)
    for part in escape.visible(text).split():
        assert any(part in said for said in words), part


LONG = ("n" * 5000, "ab " * 3000, "日本→" * 30, "x\n" * 300)


@pytest.mark.slow
def test_long_names_in_pictures(a_result: Make, tmp_path: Path) -> None:
    found = comparisons(results_of_all(a_result, "label", texts=LONG))
    assert save_figures(found, tmp_path, ["learning-curves", "distance"], ["png", "svg"])


@pytest.mark.slow
@pytest.mark.parametrize("text", LONG, ids=["long", "words", "letters", "lines"])
def test_long_titles_and_labels_in_pictures(a_result: Make, tmp_path: Path, text: str) -> None:
    found = comparisons(results(a_result, text, "label", "task", "mark", "reason", "slice", "device"))
    assert save_figures(found, tmp_path, ["slices"], ["png", "svg"])


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


def assert_page(told: str) -> Tags:
    """Return what is in a page, which has no other elements, attributes and links than the template."""
    assert not HIDDEN.search(told)
    tags = Tags(told)
    for name in ("script", "style", "title", "h1"):
        assert tags.tags.count(name) == 1
    assert not set(tags.tags) & {"iframe", "object", "form", "svg", "base", "link"}
    assert not [name for _, name, _ in tags.attributes if name.startswith("on")]
    links = [value or "" for _, name, value in tags.attributes if name in {"href", "src"}]
    assert all(value.startswith(("#", "data:image/")) for value in links)
    assert {value[1:] for value in links if value.startswith("#")} <= {
        value for _, name, value in tags.attributes if name == "id"
    }
    return tags


@every_text
def test_in_the_report(a_result: Make, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pictures, of which `test_in_pictures_of_the_report` has some."""
    monkeypatch.setattr(report, "embed", lambda drawings: {})
    tags = assert_page(
        report.page(results(a_result, text), title=text, aside=[text], speeds=[a_speed(label=text)])
    )
    assert " ".join(escape.visible(text).split()) in " ".join(" ".join(tags.words).split())


@pytest.mark.slow
def test_in_pictures_of_the_report(a_result: Make) -> None:
    many, one = results_of_all(a_result, "label", "slice"), results(a_result, TEXTS[-1])
    speeds = [a_speed(label=text, length=length) for text in TEXTS[:2] for length in (64, 256)]
    tags = assert_page(report.page([*many, *one], title="all", speeds=speeds))
    assert tags.tags.count("img") > 4


@every_text
def test_in_speeds(text: str) -> None:
    failed = a_speed(label=text, length=256) | {"status": "failed", "reason": text, "marks": [text]}
    failed["environment"]["commit"] = failed["bench"]["device"] = text
    for table in [*speed_tables([a_speed(label=text), failed]), *bench_tables([])]:
        assert_markdown(table.to_markdown())
        assert_latex(table.to_latex())
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", table.slug)


def test_two_tasks_of_one_name_for_files_have_files_each(a_result: Make, tmp_path: Path) -> None:
    found = []
    for name in ("A b", "a-b", "a, b"):
        result = a_result()
        result["cell"]["task"]["name"] = name
        found.append(result)
    written = save_tables([comparison_table(one) for one in comparisons(found)], tmp_path)
    assert len(set(written)) == len(written) == len(list(tmp_path.iterdir()))
    drawn = [
        drawing.slug for comparison in comparisons(found) for drawing in drawings(comparison, ["models"])
    ]
    assert len(drawn) == 3


def test_ordinary_labels_stay_as_they_are() -> None:
    ordinary = (
        "fox[forget_bias=8]", "deltanet+attention[window=16]", "deltanet (heads 2, lr 0.001)",
        "rfa[directions=16,gated=true]", "0.550 ± 0.071", "+0.012 [-0.100, +0.124]", "<0.001",
        "scores < 1e-5", "stale_previous", "lr_edge 1/3, failed 1/3", "1,234", "mqar quick-hard", "R & D",
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
    (table,) = compare_variants(found, kept, speeds_)
    assert_markdown(beside.table(table).to_markdown(), also={"code_inline"})


@pytest.mark.slow
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
    assert all(re.fullmatch(r"(#c\d+|claims/C1-[a-z0-9._-]+\.svg)?", lead) for lead in leads), leads
    drawn = claim_drawings(found[0])
    assert all(re.fullmatch(r"C1-[a-z0-9][a-z0-9._-]*", drawing.slug) for drawing in drawn)
    (hostile,) = (drawing for drawing in drawn if drawing.slug != "C1-cpu")
    assert not HIDDEN.search(hostile.pictures(["svg"])["svg"].decode())
