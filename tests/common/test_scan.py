import sys
from pathlib import Path

import pytest

import linbench.common
from linbench.common.scan import data_files, submodule_names, submodules


def test_every_public_module_of_a_package_is_found_in_order() -> None:
    names = submodule_names(linbench.common)
    assert names == sorted(names)
    assert {"scan", "errors"} <= set(names)


def test_a_file_in_a_folder_added_to_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zebra.py").write_text("STRIPES = 40\n")
    (tmp_path / "_private.py").write_text("raise RuntimeError\n")
    monkeypatch.setattr(linbench.common, "__path__", [*linbench.common.__path__, str(tmp_path)])
    found = {module.__name__: module for module in submodules(linbench.common)}
    assert found["linbench.common.zebra"].STRIPES == 40
    assert "linbench.common._private" not in found
    monkeypatch.delitem(sys.modules, "linbench.common.zebra")
    monkeypatch.delattr(linbench.common, "zebra")


def test_files_of_a_kind_are_found_by_name_in_every_folder_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "scan" in data_files(linbench.common, ".py")
    (tmp_path / "zebra.yaml").write_text("stripes: 40\n")
    (tmp_path / "zebra.txt").write_text("")
    monkeypatch.setattr(linbench.common, "__path__", [*linbench.common.__path__, str(tmp_path)])
    assert data_files(linbench.common, ".yaml") == {"zebra": tmp_path / "zebra.yaml"}
