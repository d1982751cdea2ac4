"""The pages of the site: one for everything, with links that lead somewhere, and what is missing said."""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from linbench.experiments.registry import shipped
from linbench.results.record import is_cell
from linbench.results.schema import Result
from linbench.results.submission import Statement, marked, write_submission
from linbench.site.findings import Findings, variant_of
from linbench.site.pages import site_from
from linbench.site.render import Site
from tests.helpers.records import a_record
from tests.helpers.site import FEW_CLAIMS, FEW_TABLES, SCORES, findings_of, trained

UNMEASURED = re.compile(r"[Nn]ot measured|Nothing was measured")


def page_of(site: Site, path: str) -> str:
    return next(page.text for page in site.pages if page.path == path)


def rows_below(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without the headings of columns."""
    lines = iter(text.partition(heading)[2].splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            break
    return table[2:]


def test_there_is_a_page_for_everything(site: Site) -> None:
    paths = {page.path for page in site.pages}
    assert len(paths) == len(site.pages)
    assert paths == {
        "index.md",
        "submissions.md",
        *(f"variants/{name}.md" for name in shipped("model").entries),
        *(f"tasks/{name}.md" for name in ("index", *shipped("task").entries)),
        *(f"claims/{name}.md" for name in ("index", *FEW_CLAIMS)),
        *(f"tables/{name}.md" for name in ("index", *FEW_TABLES)),
    }


def test_every_link_and_picture_is_there(site: Site) -> None:
    known = {page.path for page in site.pages} | {*site.files}
    shown = set()
    for page in site.pages:
        folder = PurePosixPath(page.path).parent
        for target in re.findall(r"\]\(([^)\s]+)\)", page.text):
            parts: list[str] = []
            for part in (folder / target).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            shown.add("/".join(parts))
    of_claims = {one for one in shown if re.match(r"claims/C\d+\.md", one)}
    assert shown - known == of_claims - known
    assert {one for one in site.files if one.startswith("pictures/")} <= shown, (
        "no picture is drawn for nothing"
    )
    assert "pictures/deltanet-ranks.svg" in shown


def test_the_same_results_make_the_same_bytes(findings: Findings, site: Site) -> None:
    again = findings_of([*findings.data.cells[::-1], *findings.data.speeds[::-1]])
    assert site_from(again) == site


def test_variants_stand_in_the_order_of_their_estimates_with_open_ranks(site: Site) -> None:
    front = page_of(site, "index.md")
    rows = rows_below(front, "### Accuracy in counter")
    assert [re.sub(r"\[(.*)\].*", r"\1", row[0]) for row in rows] == sorted(
        SCORES, key=lambda name: -SCORES[name]
    )
    assert [row[2] for row in rows] == ["1 to 2", "1 to 3", "2 to 3", "4"]
    every = {re.sub(r"\[(.*)\].*", r"\1", row[0]): row for row in rows_below(front, "## All variants")}
    assert every.keys() == shipped("model").entries.keys()
    assert every["deltanet"][1:4] == ["delta rule", "recurrent state", "2021"]
    assert set(every["kda"][4:]) == {"–"}
    assert "–" not in every["gla"][4:]


def test_what_was_not_measured_is_said(site: Site) -> None:
    said = "Not measured"
    front = page_of(site, "index.md")
    assert said in front.partition("## Reasoning")[2].partition("## Speed")[0]
    assert said not in front.partition("## In context")[2].partition("## Reasoning")[0]
    for name, missing in (("kda", 4), ("deltanet", 0)):
        assert page_of(site, f"variants/{name}.md").count(said) == missing
    assert said in page_of(site, "tasks/depo.md")
    assert said not in page_of(site, "tasks/counter.md")
    assert said in page_of(site, f"tables/{FEW_TABLES[0]}.md")


def test_without_results_every_page_says_so() -> None:
    empty = site_from(findings_of([]))
    assert not [name for name in empty.files if name.startswith("pictures/")]
    for page in empty.pages:
        if not page.path.endswith("index.md") or page.path == "index.md":
            assert UNMEASURED.search(page.text), page.path


def test_a_variant_is_shown_as_it_is(site: Site) -> None:
    text = page_of(site, "variants/gated_deltanet.md")
    assert '<pre class="card">' in text
    assert shipped("model").entries["gated_deltanet"].cls.learner.retention in text
    assert "qwen3_next" in text
    assert "claims/C17.md" in text


def test_a_task_is_shown_with_an_example_and_those_that_learn_it(site: Site) -> None:
    text = page_of(site, "tasks/mqar.md")
    assert re.search(r'<pre class="card words">[^<]*means[^<]*</pre>', text)
    rows = rows_below(text, "### Controlled form")
    learned = {re.sub(r"\[(.*)\].*", r"\1", row[0]): row[2] for row in rows}
    assert learned == {"attention": "2 of 3", "deltanet": "1 of 3", "gla": "0 of 3", "retnet": "0 of 3"}


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("deltanet", "deltanet"),
        ("gla[heads=4]", "gla"),
        ("2xdeltanet", "deltanet"),
        ("deltanet+attention", ""),
        ("mine", ""),
        ("][", ""),
    ],
)
def test_a_label_speaks_of_one_variant_or_none(label: str, name: str) -> None:
    assert variant_of(label) == name


def test_a_submission_stands_beside_the_others_and_is_marked(
    a_result: Callable[..., Result], tmp_path: Path
) -> None:
    statement: Statement = {
        "layer": "deltanet",
        "suite": "leaderboard",
        "command": "linbench submit deltanet",
        "linbench": "0.1.0",
        "sources": {},
    }
    record = a_record("0" * 64)
    assert is_cell(record)
    submission = write_submission(tmp_path, statement, [record])
    assert submission.about is not None
    label = marked("deltanet", submission.about)
    findings = findings_of(
        [
            trained(a_result, one, seed, score, "needle")
            for one, score in {**SCORES, label: 0.8}.items()
            for seed in range(5)
        ]
    )
    findings.stored.submissions = [submission]
    site = site_from(findings)
    page = page_of(site, "submissions.md")
    assert submission.about["hash"] in page
    ranking = rows_below(page_of(site, "index.md"), "### Accuracy in needle")
    assert [cells[0].partition("]")[0].strip("[") for cells in ranking] == [
        "attention",
        "deltanet",
        label,
        "gla",
        "retnet",
    ]
    assert "(submissions.md)" in ranking[2][0]


def test_a_submission_without_a_rank_says_so(tmp_path: Path) -> None:
    statement: Statement = {
        "layer": "deltanet",
        "suite": "quick",
        "command": "linbench submit deltanet",
        "linbench": "0.1.0",
        "sources": {},
    }
    record = a_record("0" * 64)
    assert is_cell(record)
    findings = findings_of([])
    findings.stored.submissions = [write_submission(tmp_path, statement, [record])]
    page = page_of(site_from(findings), "submissions.md")
    assert "no ranking" in page
    assert "| quantity" not in page
