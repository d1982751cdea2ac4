"""The repository stays small: for whoever clones it, and for whoever looks at its tree."""

import subprocess
from pathlib import Path

import pytest

from linbench.results.packs import MANIFEST, SUFFIX, pack_name, pack_paths
from tests.results.drawn import DRAWN, PAGES, ROOT, shown_by

PACKED = (
    "ci",
    "cpu",
    "cpu/claims",
    "cpu/similarity",
    "cpu/zoo-quick",
    "h100",
    "h100/claims",
    "h200",
    "h200/claims",
    "h200/reproduction",
    "h200/softmax",
    "h200/steps-to-kda",
)
MOST_FILES = 1_700
MOST_CLONED_BYTES = 25_000_000


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def tracked() -> list[str]:
    return git("ls-files", "-z").rstrip("\0").split("\0")


def test_the_tree_has_few_files() -> None:
    assert len(tracked()) <= MOST_FILES


def test_what_is_needed_of_results_is_tracked_and_nothing_loose() -> None:
    there = {name for name in tracked() if name.startswith("results/")}
    wanted = {str(path) for page in PAGES for path in shown_by(page)} | {str(DRAWN.relative_to(ROOT))}
    for name in PACKED:
        folder = f"results/{name}"
        wanted.add(f"{folder}/{MANIFEST}")
        wanted |= {f"{folder}/{pack_name(path)}{SUFFIX}" for path in pack_paths(ROOT / folder)}
    assert there - wanted == {"results/README.md", "results/.gitignore"}, "`linbench results pack` packs them"
    assert wanted - there == set(), "`git add` them"


@pytest.mark.slow
def test_a_shallow_clone_is_small(tmp_path: Path) -> None:
    git("clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(tmp_path / "clone"))
    files = [path for path in (tmp_path / "clone").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= MOST_CLONED_BYTES
