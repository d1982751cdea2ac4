"""YAML that is too much, or none."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.common.errors import UserError
from linbench.common.yaml_files import DEEPEST, MOST_BYTES, read_mapping, read_yaml

BOMB = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{" * 100_000, "lists and mappings inside each other"),
        ("[" * 100_000, "lists and mappings inside each other"),
        ("- " * 100_000, "lists and mappings inside each other"),
        ("a: " + "[" * (DEEPEST + 1), "lists and mappings inside each other"),
        (BOMB, "with its aliases"),
        (f"{BOMB}seeds: *a11\n", "with its aliases"),
        (MERGES, "with its aliases"),
        ("a: &a [*a]", "with its aliases"),
        ("a: [" + "1," * 200_000 + "]", "more than 100,000 values"),
        ("#" * (MOST_BYTES + 1), "limit of 1 MiB"),
        ("a: [1", "not YAML"),
        (f"a: {'9' * 5000}", "has more than 100 digits"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("a: 1\na: 2", "a is given twice"),
        ("a: \x00", "not YAML"),
    ],
)
def test_what_is_too_much_or_no_yaml_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=why) as caught:
        read_mapping(tmp_path / "a.yaml", "suite", ["about"])
    assert "\n" not in str(caught.value)


def test_what_is_no_text_is_told_without_words_of_a_library(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"tasks: \xff")
    with pytest.raises(UserError, match=r"mine\.yaml is not text in UTF-8\.$"):
        read_mapping(path, "suite", ["tasks"])
    path.write_text("tasks: [mqar")
    with pytest.raises(UserError, match=r"mine\.yaml is not YAML: .* at line 1") as told:
        read_mapping(path, "suite", ["tasks"])
    assert "unicode" not in str(told.value)


def test_aliases_and_depth_as_people_write_them_are_read() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, y: [*a, [[2]]]}"
    assert read_yaml(text) == {"a": {"x": 1}, "b": {"x": 1, "y": [{"x": 1}, [[2]]]}}


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
    ],
)
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    make(tmp_path / "a.yaml")
    with pytest.raises(UserError, match=r"cannot read the policy .*a\.yaml: "):
        read_mapping(tmp_path / "a.yaml", "policy", ["drop"])
