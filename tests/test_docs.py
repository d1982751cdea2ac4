"""The pages for readers: all are in the site, and what they link to is there. `make docs` builds the site."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = {"index.md", "models.md", "task-cards.md", "decisions/index.md"}
"""Pages that `docs/hooks.py` makes."""
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def named_in_navigation(node: object) -> set[str]:
    if isinstance(node, str):
        return {node}
    parts = node.values() if isinstance(node, dict) else node
    assert not isinstance(parts, str)
    return {name for part in parts for name in named_in_navigation(part)}  # type: ignore[attr-defined]


def test_the_navigation_holds_every_page() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    written = {page.name for page in DOCS.glob("*.md")}
    assert named_in_navigation(navigation) == written | MADE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "CHANGELOG" / "index.html").is_file()
