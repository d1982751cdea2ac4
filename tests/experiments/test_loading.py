"""Importing what a user brings."""

import os
import sys
from pathlib import Path

import pytest

from linbench.experiments.loading import import_path


def test_a_file_edited_within_a_second_to_one_of_the_same_size_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for gain in (1, 2):
        path.write_text(f"gain = {gain}\n")
        os.utime(path, (1e9, 1e9))
        assert import_path(path).module.gain == gain
