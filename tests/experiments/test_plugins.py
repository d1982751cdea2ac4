"""Imports of a user's layer: they are its own, and part of its identity."""

import hashlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from linbench.common.errors import PluginError, UserError
from linbench.engine.workers import outcomes
from linbench.experiments.registry import Entry, registry
from linbench.models.base import LayerInfo

LAYER = """
from torch import nn
{imports}
class Mine(nn.Module):
    def __init__(self, dim):
        super().__init__()
    def forward(self, x):
        {lazily}
        return {gain} * x
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write files below the current folder, by path."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return write


def layer(imports: str = "pass", *, lazily: str = "pass", gain: str = "gain") -> str:
    return LAYER.format(imports=imports, lazily=lazily, gain=gain)


def find(location: str) -> Entry:
    return registry("model").find(location)


def module_of(location: str) -> Any:
    """The module that a class is found in."""
    plugin = find(location).plugin
    assert plugin is not None
    return plugin.module


def gain_of(entry: Entry) -> float:
    """Return the factor that the layer multiplies by."""
    mixer = entry.cls(entry.cls.Settings(), LayerInfo(0, 1, 1))
    return float(mixer(torch.ones(1, 1, 1)).y)


def test_the_digest_of_a_single_file_is_that_of_its_bytes(write: Callable[..., None]) -> None:
    write({"mine.py": layer("import math, torch", gain="1")})
    assert (
        find("./mine.py:Mine").digest
        == find("mine:Mine").digest
        == hashlib.sha256(Path("mine.py").read_bytes()).hexdigest()
    )


IMPORTED = {
    "a helper": ("mine.py", "from helper import gain", "pass", "helper.py"),
    "a helper within a function": ("mine.py", "pass", "from helper import gain", "helper.py"),
    "a helper by a literal name": (
        "mine.py",
        "from importlib import import_module",
        "gain = import_module('helper').gain",
        "helper.py",
    ),
    "a helper's helper": ("mine.py", "from middle import gain", "pass", "deep.py"),
    "a helper in a package": (
        "mine.py",
        "from parts.deep.helper import gain",
        "pass",
        "parts/deep/helper.py",
    ),
    "a helper in a folder without __init__": (
        "mine.py",
        "import bare.helper\ngain = bare.helper.gain",
        "pass",
        "bare/helper.py",
    ),
    "the package itself": ("mine.py", "from parts import gain", "pass", "parts/__init__.py"),
    "a sibling by a dot": ("mine.py", "from .helper import gain", "pass", "helper.py"),
    "a sibling in a package": (
        "pkg/layers/mine.py",
        "from .helper import gain",
        "pass",
        "pkg/layers/helper.py",
    ),
    "a cousin in a package": ("pkg/layers/mine.py", "from ..cousin import gain", "pass", "pkg/cousin.py"),
    "a file of the current folder": ("sub/mine.py", "from common import gain", "pass", "common.py"),
    "everything of a package": (
        "mine.py",
        "from starred import *\ngain = part.gain",
        "pass",
        "starred/part.py",
    ),
    "a name made up while it is imported": (
        "mine.py",
        "import importlib\ngain = importlib.import_module('hel' + 'per').gain",
        "pass",
        "helper.py",
    ),
    "all modules of a folder": (
        "mine.py",
        (
            "from pathlib import Path\nfrom importlib import import_module\ngain ="
            " max(import_module(f'many.{path.stem}').gain for path in"
            " Path(__file__).parent.glob('many/[a-z]*.py'))"
        ),
        "pass",
        "many/one.py",
    ),
}
FILES = {
    "middle.py": "from deep import gain\n", "parts/__init__.py": "gain = 0\n", "parts/deep/__init__.py": "",
    "pkg/__init__.py": "", "pkg/layers/__init__.py": "", "starred/__init__.py": "__all__ = ['part']\n",
}  # fmt: skip


@pytest.mark.parametrize("what", IMPORTED)
def test_whatever_of_the_users_is_imported_is_part_of_the_identity(
    write: Callable[..., None], what: str
) -> None:
    path, imports, lazily, edited = IMPORTED[what]
    write({**FILES, path: layer(imports, lazily=lazily)})
    found = []
    for gain in (2, 3, 2):
        write({edited: f"gain = {gain}\n"})
        entry = find(f"./{path}:Mine")
        assert gain_of(entry) == gain_of(pickle.loads(pickle.dumps(entry))) == gain
        found.append(entry.digest)
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("location", ["./again.py:Mine", "./again.py", "again:Mine"])
def test_a_file_that_exports_a_class_of_another_counts_and_so_does_that(
    write: Callable[..., None], location: str
) -> None:
    write({"base.py": layer(gain="1"), "again.py": "from base import Mine\n"})
    first = find(location)
    write({"again.py": "from base import Mine\nMine.forward = lambda self, x: 2 * x\n"})
    second = find(location)
    write({"base.py": layer("extra = 1", gain="1")})
    third = find(location)
    assert [gain_of(entry) for entry in (first, second)] == [1, 2]
    assert len({first.digest, second.digest, third.digest}) == 3


@pytest.mark.slow
def test_two_plugins_with_a_helper_of_one_name_have_each_their_own(write: Callable[..., None]) -> None:
    lazily = layer(lazily="from helper import gain")
    write(
        {
            "a/mine.py": layer("from helper import gain"),
            "b/mine.py": lazily,
            "a/helper.py": "gain = 2\n",
            "b/helper.py": "gain = 3\n",
        }
    )
    write({"a/other.py": lazily, "helper.py": "gain = 9\n"})
    entries = [find(f"./{path}:Mine") for path in ("a/mine.py", "b/mine.py", "a/other.py")]
    assert [gain_of(entry) for entry in entries] == [2, 3, 2]
    there = dict(outcomes(gain_of, reversed(entries), workers=1))
    assert [there[i].value for i in range(3)] == [2, 3, 2], [outcome.failure for outcome in there.values()]
    assert "helper" not in sys.modules


def test_files_of_one_folder_share_a_helper_that_runs_once(write: Callable[..., None]) -> None:
    write(
        {
            "one.py": layer("from helper import gain"),
            "two.py": layer("from helper import gain"),
            "helper.py": "gain = object()\n",
        }
    )
    one, two, again = (module_of(f"./{name}.py:Mine") for name in ("one", "two", "one"))
    assert one.gain is two.gain
    assert again is one


@pytest.mark.slow
def test_what_was_read_is_what_runs_whatever_stands_there_later(write: Callable[..., None]) -> None:
    write({"mine.py": layer(lazily="from helper import gain"), "helper.py": "gain = 2\n"})
    before = find("./mine.py:Mine")
    sent = pickle.dumps(before)
    write({"helper.py": "gain = 3\n"})
    assert gain_of(before) == gain_of(pickle.loads(sent)) == 2
    assert gain_of(find("./mine.py:Mine")) == 3
    assert dict(outcomes(gain_of, [before], workers=1))[0].value == 2


def test_a_name_made_up_while_it_runs_is_refused(write: Callable[..., None]) -> None:
    write(
        {
            "mine.py": layer("import importlib", lazily="gain = importlib.import_module('hel' + 'per').gain"),
            "helper.py": "gain = 2\n",
        }
    )
    for _ in range(2):
        with pytest.raises(
            PluginError,
            match=r"^mine imports helper while it runs, .* at the top of the file\.$",
        ):
            gain_of(find("./mine.py:Mine"))


def test_what_is_installed_and_python_itself_stand_above_files_of_the_same_name(
    write: Callable[..., None],
) -> None:
    write(
        {
            "mine.py": layer("import random, torch, einops_of_mine", gain="random.choice([1])"),
            "random.py": "1/0",
            "torch.py": "1/0",
            "einops_of_mine.py": "",
        }
    )
    assert gain_of(find("./mine.py:Mine")) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such", "ModuleNotFoundError: No module named 'no_such'"),
        ("import helper.no", "No module named 'helper.no'"),
    ],
)
def test_a_module_that_is_not_there_is_told_by_the_name_that_was_written(
    write: Callable[..., None], text: str, reason: str
) -> None:
    write({"mine.py": f"\n{text}\n", "helper.py": ""})
    with pytest.raises(PluginError, match=f"mine.py line 2: .*{reason}") as refused:
        find("./mine.py:Mine")
    assert "linbench_plugin" not in str(refused.value)
    write({"no_such.py": "", "helper/__init__.py": "", "helper/no.py": "", "mine.py": layer(text, gain="1")})
    Path("helper.py").unlink()
    assert gain_of(find("./mine.py:Mine")) == 1, "once it is there it is found"


def test_source_is_shown_as_it_was_read(write: Callable[..., None]) -> None:
    import inspect

    write({"mine.py": layer(gain="1")})
    module = module_of("./mine.py:Mine")
    write({"mine.py": "\n\n" + layer(gain="2")})
    assert "return 1 * x" in inspect.getsource(module.Mine.forward)


ELSEWHERE = """
import pickle, sys, torch
from linbench.models.base import LayerInfo
entry = pickle.load(open(sys.argv[1], "rb"))
mixer = entry.cls(entry.cls.Settings(), LayerInfo(0, 1, 1))
print(entry.name, entry.digest, float(mixer(torch.ones(1, 1, 1)).y))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "named", ["../layers/mine.py:Mine", "{}/layers/mine.py:Mine", "../here/../layers/mine.py:Mine"]
)
def test_a_plugin_travels_as_its_source_and_nothing_of_it_is_written(
    write: Callable[..., None], tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        {
            "layers/mine.py": layer("from helper import gain"),
            "layers/helper.py": "gain = 2\n",
            "here/x": "",
            "node/deep/x": "",
        }
    )
    monkeypatch.chdir(tmp_path / "here")
    entry = find(named.format(tmp_path))
    (tmp_path / "sent").write_bytes(pickle.dumps(entry))
    for name in ("mine.py", "helper.py"):
        (tmp_path / "layers" / name).unlink()
    (tmp_path / "layers").rmdir()
    before = sorted(tmp_path.rglob("*"))
    ended = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "sent")],
        cwd=tmp_path / "node" / "deep",
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == [entry.name, entry.digest, "2.0"]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_module_on_pythons_path_counts_with_its_neighbours(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"lib/on_the_path.py": layer("from its_neighbour import gain"), "here/x": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.chdir(tmp_path / "here")
    found = []
    for gain in (2, 3):
        write({"lib/its_neighbour.py": f"gain = {gain}\n"})
        found.append(find("on_the_path:Mine"))
    assert [gain_of(entry) for entry in found] == [2, 3]
    assert found[0].digest != found[1].digest


def installed(folder: Path, value: str, gain: int) -> None:
    """A package with an entry point, as pip would install it."""
    package, info = folder / "its_package", folder / "its_package-1.0.dist-info"
    for each in (package, info):
        each.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(
        layer("from its_package.helper import gain") + "class Other(Mine):\n    pass\n"
    )
    (package / "helper.py").write_text(f"gain = {gain}\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: its-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[linbench.models]\ntheirs = {value}\n")


def test_an_installed_package_counts_with_all_its_files_and_the_name_it_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    for i, (value, gain) in enumerate(
        [
            ("its_package.mine:Mine", 2),
            ("its_package.mine:Mine", 3),
            ("its_package.mine:Other", 3),
            ("its_package.mine:Mine", 2),
        ]
    ):
        folder = tmp_path / str(i) / "site-packages"
        installed(folder, value, gain)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(folder))
            registry.cache_clear()
            entry = registry("model").find("theirs")
            found.append((entry.digest, gain_of(entry), find(value).digest))
        for name in [name for name in sys.modules if name.startswith("its_package")]:
            del sys.modules[name]
    registry.cache_clear()
    assert [gain for _, gain, _ in found] == [2, 3, 3, 2]
    assert found[0] == found[3]
    assert len({digest for digest, *_ in found}) == 3
    assert found[0][2] != found[1][2] == found[2][2]


def test_a_module_that_is_none_is_refused(write: Callable[..., None]) -> None:
    write({"pkg/__init__.py": ""})
    for name in ("pkg.no:Mine", "no_such.mine:Mine", "..:Mine", ":Mine", "a b:Mine"):
        with pytest.raises(UserError, match="there is no module"):
            find(name)
