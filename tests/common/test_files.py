import errno
import os
import re
from pathlib import Path

import pytest

from linbench.common.files import LONGEST, file_name, inside, unused, write_named, write_whole
from tests.helpers.hostile import TEXTS

TODAY = (
    "mqar-quick-native",
    "variable_overwrite-8dded676-controlled",
    "parity-f71e1bca-controlled",
    "NVIDIA H100 80GB HBM3",
    "by task native form, cpu",
    "kernels B16xT256xH2xD32, fp32, AMD EPYC, 1 thread",
    "nothing trained",
)


def test_names_of_today_stay() -> None:
    assert [file_name(text) for text in TODAY] == [
        "mqar-quick-native",
        "variable_overwrite-8dded676-controlled",
        "parity-f71e1bca-controlled",
        "nvidia-h100-80gb-hbm3",
        "by-task-native-form-cpu",
        "kernels-b16xt256xh2xd32-fp32-amd-epyc-1-thread",
        "nothing-trained",
    ]


def test_whatever_the_text_a_name_leads_nowhere() -> None:
    texts = [
        *TEXTS,
        "",
        ".",
        "..",
        "...",
        "/",
        "\\",
        "-rf",
        ".bashrc",
        "../pwn",
        "/etc/passwd",
        "C:\\x",
        "~",
        "a" * 5000,
        "é",
        "\x00",
        "a/../../b",
        "con:",
    ]
    names = [file_name(text) for text in texts]
    assert len(set(names)) == len(texts)
    for name in names:
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name)
        assert len(name) <= LONGEST


def test_two_texts_do_not_share_a_name_where_something_was_replaced() -> None:
    """Nor can a text be the name of another."""
    for one, other in (
        ("a/b", "a-b"),
        ("a/b", "a:b"),
        ("x" * 200, "x" * 201),
        (".a", "a"),
        ("a-", "a"),
        ("é", "è"),
        ("a/b", file_name("a/b")),
    ):
        assert file_name(one) != file_name(other)
    assert unused("a", ["a", "a-2"]) == "a-3"
    assert unused("b", ["a"]) == "b"


def test_what_leads_out_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "asked"
    folder.mkdir()
    (tmp_path / "secret").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert inside(folder, "table.md") == folder / "table.md"
    for name in ("../secret", "link", str(tmp_path / "secret")):
        with pytest.raises(OSError, match="leads out of"):
            inside(folder, name)


def test_a_full_disk_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "report.html"
    write_named(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    for write in (write_named, write_whole):
        with pytest.raises(OSError, match="No space"):
            write(path, b"new" * 1000)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert path.read_bytes() == b"old"


def test_a_link_that_the_user_names_stays_one_and_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_named(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    write_named(Path(os.devnull), b"gone")
    assert Path(os.devnull).is_char_device()
