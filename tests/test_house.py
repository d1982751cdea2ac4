"""The rules of the house: who may import whom, the length of files, and how docstrings begin."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("linbench", "tasks", "models", "kernels")
SOURCES = sorted(
    path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if not any(p.is_symlink() for p in path.parents)
)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All below; no import is part of an expression, and there are ten times as many of those."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every docstring, also of those under attributes and constants."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                text = child.value.value
                if isinstance(text, str):
                    yield child.lineno, text.strip()


@cache
def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return found


def test_there_are_sources_to_look_at() -> None:
    assert len(SOURCES) > 40


def test_rooms_are_reached_through_relative_links() -> None:
    for room in ("tasks", "models", "kernels"):
        assert (ROOT / "linbench" / room).readlink() == Path("..") / room


def test_no_bare_import_of_a_room() -> None:
    bare = {
        str(path): name
        for path in [*SOURCES, *(ROOT / "tests").rglob("*.py")]
        for name in imported(path)
        if name.split(".")[0] in ROOMS[1:]
    }
    assert bare == {}


@pytest.mark.slow
def test_bare_names_stay_free_for_other_packages(tmp_path: Path) -> None:
    for name in ROOMS[1:]:
        (tmp_path / f"{name}.py").write_text(f"OWNER = 'somebody else {name}'\n")
    program = (
        "import linbench.tasks.mqar, linbench.models.deltanet, tasks, models, kernels; print(tasks.OWNER,"
        " models.OWNER, kernels.OWNER, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        check=True,
    )
    assert done.stdout.splitlines() == [f"somebody else {name}" for name in ROOMS[1:]]


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("kernels", {"torch", "triton", "linbench.kernels", "linbench.common"}),
        ("tasks", {"torch", "pydantic", "linbench.tasks", "linbench.kernels.hashing", "linbench.common"}),
        ("models", {"torch", "pydantic", "linbench.models", "linbench.kernels", "linbench.common"}),
        ("linbench/common", {"pydantic", "pydantic_core", "yaml", "linbench.common"}),
    ],
)
def test_a_room_imports_only_what_it_may(room: str, allowed: set[str]) -> None:
    wrong = {
        (path.name, name)
        for path in (ROOT / room).rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not any(name == a or name.startswith(a + ".") for a in allowed)
    }
    assert wrong == set()


def test_import_rules_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_help_needs_no_heavy_import() -> None:
    program = (
        "import sys, linbench.cli; print([m for m in ('torch', 'pandas', 'matplotlib', 'pydantic') if m in"
        " sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_file_is_longer_than_400_lines() -> None:
    assert {
        path.name: lines
        for path in SOURCES
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    } == {}


OPENING = re.compile(
    r"(What|Which|Whether|Where|How|That|Those|Of|As|By|With|From|For|In)\b(?!-)"  # but In-context
)
"""Words that begin half a sentence: a docstring says what a function does, or names what a class is."""


def test_no_docstring_begins_with_half_a_sentence() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines()]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in files
        if path.is_file()
        for line, text in docstrings(path)
        if OPENING.match(text)
    ]
    assert wrong == []


WORDING_WORDS = 5
"""A text of so many words in an assertion is wording, which a snapshot holds."""


def test_no_assertion_holds_wording() -> None:
    """A change of wording shall not break tests one by one: `pytest --snapshot-update` takes it over."""
    wordy = [
        f"{path.relative_to(ROOT)}:{text.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
        for text in ast.walk(node.test)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        if len(text.value.split()) >= WORDING_WORDS
    ]
    assert wordy == []
