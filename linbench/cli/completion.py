"""Shell completion of names.

Names are read from file names and YAML keys. Importing tasks or models would load torch, which takes seconds
at every press of a key.
"""

import re
from collections.abc import Iterable
from importlib.resources import files

import typer

from linbench.common.scan import data_files
from linbench.experiments import suites as shipped_suites
from linbench.experiments import systems as shipped_systems
from linbench.reproduction import tables as published_tables

_NAMES = {"tasks": r'^    name = "(.+)"$', "models": r'^    name = "(.+)"$', "claims": r"^  (C[0-9]+):"}
"""Patterns of the lines that define names, by the folder they are looked for in."""


def tasks(incomplete: str) -> list[str]:
    """Return the shipped tasks whose names begin with the incomplete word."""
    return _beginning(_defined("tasks"), incomplete)


def models(incomplete: str) -> list[str]:
    """Complete the last model or system of a list or pattern: `deltanet,gl` gives `deltanet,gla`."""
    cut = max(incomplete.rfind(","), incomplete.rfind("+")) + 1
    done, last = incomplete[:cut], incomplete[cut:]
    names = [*_defined("models"), *data_files(shipped_systems, ".yaml")]
    return [f"{done}{name}" for name in _beginning(names, last)]


def suites(incomplete: str) -> list[str]:
    """Return the shipped suites whose names begin with the incomplete word."""
    return _beginning(data_files(shipped_suites, ".yaml"), incomplete)


def claims(incomplete: str) -> list[str]:
    """Return the claims, such as C17, whose names begin with the incomplete word."""
    return sorted(
        (name for name in _defined("claims") if name.startswith(incomplete.upper())),
        key=lambda name: int(name[1:]),
    )


def reproductions(incomplete: str) -> list[str]:
    """Return the published tables, such as R9, whose names begin with the incomplete word."""
    names = sorted(data_files(published_tables, ".yaml"), key=lambda name: int(name[1:]))
    return _beginning(names, incomplete.upper())


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the matching presets of the shipped task earlier on the command line."""
    from linbench.experiments.registry import shipped

    # an incomplete command line is not parsed into parameters
    task = ctx.params.get("task") or next(iter(ctx.args), None)
    entry = shipped("task").entries.get(str(task))
    return _beginning(entry.cls.presets, incomplete) if entry else []


def shown(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return matching tasks, systems, or models and systems, depending on the word before."""
    kind = str(ctx.params.get("kind"))
    if kind.endswith("system"):
        return _beginning(data_files(shipped_systems, ".yaml"), incomplete)
    return tasks(incomplete) if kind.endswith("task") else models(incomplete)


def _defined(folder: str) -> set[str]:
    texts = [
        path.read_text(encoding="utf-8")
        for path in files("linbench").joinpath(folder).iterdir()
        if path.name.endswith((".py", ".yaml"))
    ]
    return {name for text in texts for name in re.findall(_NAMES[folder], text, re.MULTILINE)}


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
