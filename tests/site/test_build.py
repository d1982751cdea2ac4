"""Building: what `linbench site` may replace, what it needs, and other pages that the site joins."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.claims.claim import claims
from linbench.common.errors import StorageError, UserError
from linbench.reproduction.table import reproductions
from linbench.results.store import Store
from linbench.site import build as building
from linbench.site.build import MARKER, build, require_mkdocs, require_ready, require_target
from linbench.site.render import Page, Site
from tests.helpers.records import a_record

SMALL = Site(
    [
        Page(path, "# A page\n\n[front](../index.md)\n")
        for path in ("tasks/index.md", "claims/index.md", "tables/index.md")
    ]
    + [Page(path, "# Front\n\n[tasks](tasks/index.md)\n") for path in ("index.md", "submissions.md")],
    {"site.css": b"", "site.js": b""},
)


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture
def instead_of_mkdocs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that copies the sources."""

    def run(config: Path) -> None:
        shutil.copytree(config.parent / "docs", config.parent / "site")

    monkeypatch.setattr(building, "_run", run)


@pytest.mark.usefixtures("instead_of_mkdocs")
def test_a_folder_is_new_empty_or_made_by_the_command(tmp_path: Path) -> None:
    new, empty = tmp_path / "below" / "new", tmp_path / "empty"
    empty.mkdir()
    for target in (new, empty, new):
        require_ready(target, None)
        build(SMALL, target)
        assert files_in(target) >= {MARKER, "index.md", "tasks/index.md"}
    (new / "stale.md").write_text("")
    build(SMALL, new)
    assert "stale.md" not in files_in(new), "what was made before is replaced as a whole"
    assert files_in(tmp_path / "below") == {"new", *(f"new/{name}" for name in files_in(new))}


@pytest.mark.usefixtures("instead_of_mkdocs")
def test_any_other_folder_or_file_is_left_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    for target in (other, other / "mine.txt"):
        with pytest.raises(UserError, match="--save"):
            require_target(target)
        with pytest.raises(UserError, match="--save"):
            build(SMALL, target)
    assert files_in(tmp_path) == {"other", "other/mine.txt"}
    assert (other / "mine.txt").read_text() == "mine"


@pytest.mark.usefixtures("instead_of_mkdocs")
def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    build(SMALL, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert MARKER in files_in(tmp_path / "real")


def test_nothing_is_replaced_if_mkdocs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "site"
    target.mkdir()
    (target / MARKER).write_text("")
    (target / "before.html").write_text("")
    monkeypatch.setattr(building, "_run", lambda config: require_target(config))
    with pytest.raises(UserError):
        build(SMALL, target)
    assert files_in(tmp_path) == {"site", f"site/{MARKER}", "site/before.html"}


def test_mkdocs_is_asked_for_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    require_mkdocs()
    monkeypatch.setattr(building, "find_spec", lambda name: None if name == "material" else building)
    with pytest.raises(UserError, match=r"'linbench\[site\]'"):
        require_mkdocs()


@pytest.mark.slow
def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    broken = SMALL._replace(pages=[*SMALL.pages, Page("lost.md", "# Lost\n\n[gone](gone.md)\n")])
    with pytest.raises(UserError, match=r"gone\.md"):
        build(broken, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.slow
def test_the_pages_join_others(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Mine\n\n[board](leaderboard/index.md)\n")
    with pytest.raises(UserError, match=r"mkdocs\.yml"):
        build(SMALL, tmp_path / "site", docs=docs)
    (tmp_path / "hook.py").write_text(
        "def on_page_markdown(markdown, **_):\n    return markdown.replace('Mine', 'Hooked')\n"
    )
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: mine\ntheme: material\nhooks: [hook.py]\nnav:\n  - Mine: index.md\n"
    )
    build(SMALL, tmp_path / "site", docs=docs)
    assert files_in(tmp_path / "site") >= {
        "index.html",
        "leaderboard/index.html",
        "leaderboard/tasks/index.html",
    }
    assert "Hooked" in (tmp_path / "site" / "index.html").read_text()
    assert "site.js" in (tmp_path / "site" / "leaderboard" / "index.html").read_text()
    assert files_in(docs) == {"index.md"}, "nothing is written beside the pages"


@pytest.mark.slow
def test_every_page_is_built_and_loads_nothing_from_elsewhere(built: Path, site: Site) -> None:
    for page in site.pages:
        text = (built / page.path).with_suffix(".html").read_text()
        assert "\x02" not in text
        assert 'src="http' not in text
        assert 'rel="stylesheet" href="http' not in text
    assert {path for path in site.files if path.endswith((".svg", ".js", ".css"))} <= files_in(built)


@pytest.mark.slow
def test_the_command_makes_a_page_of_every_claim_and_table(linbench: Callable[..., Any]) -> None:
    store = Store("results")
    store.prepare()
    store.put(a_record("0" * 64))
    ended = linbench("site", "--results", "results", "--save", "made")
    assert (ended.code, ended.out.strip()) == (0, "made")
    pages = {path.relative_to("made").with_suffix("").as_posix() for path in Path("made").rglob("*.html")}
    assert pages >= {f"claims/{name}" for name in claims()} | {f"tables/{name}" for name in reproductions()}
    assert "deltanet" in Path("made/tasks/mqar.html").read_text()
    refused = linbench("site", "--results", "results", "--save", "results")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert linbench("site", "--results", "absent", "--save", "made").code == 6


@pytest.mark.parametrize("config", ["", "- a list", "theme: !!python/name:os.system", "a: [", None])
def test_a_configuration_that_cannot_be_read_is_refused_at_once(tmp_path: Path, config: str | None) -> None:
    (tmp_path / "docs").mkdir()
    if config is not None:
        (tmp_path / "mkdocs.yml").write_text(config)
    with pytest.raises(UserError, match=r"mkdocs\.yml"):
        require_ready(tmp_path / "site", tmp_path / "docs")
    assert files_in(tmp_path) <= {"docs", "mkdocs.yml"}


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="--save"):
        require_ready(tmp_path / "file" / "site", None)
