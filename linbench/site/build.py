"""Building the site with MkDocs: sources in a temporary folder, and a target that is replaced at the end."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from linbench.common.errors import UserError
from linbench.common.files import LEFTOVER, storage_sentence, try_named
from linbench.site.render import Site

MARKER = ".linbench-site"
"""The file in a folder that says that `linbench site` made it, and may replace it."""

BELOW = "leaderboard"
"""The folder of the generated pages where they join others."""

CONFIG = "mkdocs.yml"
"""The name of a configuration of MkDocs: the site's own in this package, and that beside other pages."""

DOING = "cannot write the site to"
"""The words for what fails where the target cannot be written."""

NAV = {
    "Leaderboard": "index.md",
    "Tasks": "tasks/index.md",
    "Claims": "claims/index.md",
    "Published tables": "tables/index.md",
    "Submissions": "submissions.md",
}
"""The pages that all others are reached from."""


def require_mkdocs() -> None:
    """Raise UserError if MkDocs with its theme is not installed."""
    if find_spec("mkdocs") is None or find_spec("material") is None:
        raise UserError(
            "the site is built with MkDocs, which is not installed; pip install 'linbench[site]'."
        )


def require_target(target: Path) -> None:
    """Raise UserError if a folder holds what `linbench site` has not made."""
    if target.is_dir() and any(target.iterdir()) and not (target / MARKER).is_file():
        raise UserError(
            f"{target} holds files that `linbench site` has not made; name an empty or new folder with"
            " --save."
        )
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is not a folder; name an empty or new folder with --save.")


def require_ready(target: Path, docs: Path | None) -> None:
    """Require all that `build` needs, before time is spent on pages.

    Raises:
        UserError: MkDocs is not installed, the target holds something else, or no configuration is beside
            `docs`.
        StorageError: the target cannot be written.
    """
    require_mkdocs()
    require_target(target)
    _read_config(docs)
    with storage_sentence(target, DOING, "--save"):
        target.parent.mkdir(parents=True, exist_ok=True)
        try_named(target.resolve().parent / MARKER)


def build(site: Site, target: Path, *, docs: Path | None = None) -> None:
    """Build a site and put it in the place of a folder.

    Args:
        site: the generated pages.
        target: the folder, which is left as it was unless all has succeeded.
        docs: a folder of further pages, with MkDocs' configuration beside it, that these join.

    Raises:
        UserError: MkDocs fails, or the target is a folder of something else.
        StorageError: something cannot be written.
    """
    require_target(target)
    with (
        storage_sentence(target, DOING, "--save"),
        tempfile.TemporaryDirectory() as made,
    ):
        sources, built = Path(made, "docs"), Path(made, "site")
        if docs:
            shutil.copytree(docs, sources)
        _write(site, sources / BELOW if docs else sources)
        config = Path(made, CONFIG)
        config.write_text(yaml.safe_dump(_config(sources, built, docs), sort_keys=False), encoding="utf-8")
        _run(config)
        (built / MARKER).write_text(
            "Made by `linbench site`, which replaces this folder.\n", encoding="utf-8"
        )
        _replace(built, target)


def _write(site: Site, folder: Path) -> None:
    texts = {page.path: page.text.encode() for page in site.pages}
    for name, content in {**site.files, **texts}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _config(sources: Path, built: Path, docs: Path | None) -> dict[str, Any]:
    """Return MkDocs' configuration: the site's own, or that beside the pages which it joins."""
    config = _read_config(docs)
    prefix = f"{BELOW}/" if docs else ""
    pages = [{title: f"{prefix}{path}"} for title, path in NAV.items()]
    config |= {
        "docs_dir": str(sources),
        "site_dir": str(built),
        "strict": True,
        "extra_css": [*config.get("extra_css", []), f"{prefix}site.css"],
        "extra_javascript": [*config.get("extra_javascript", []), f"{prefix}site.js"],
    }
    if not docs:
        return {**config, "nav": pages}
    config["hooks"] = [str(docs.resolve().parent / hook) for hook in config.get("hooks", [])]
    if "nav" in config:  # otherwise MkDocs lists all pages
        config["nav"] = [*config["nav"], {"Leaderboard": pages}]
    return config


def _read_config(docs: Path | None) -> dict[str, Any]:
    """Read the site's own configuration, or that beside other pages.

    Raises UserError: it is not there, or not plain YAML.
    """
    path: Traversable = docs.resolve().parent / CONFIG if docs else files("linbench.site") / CONFIG
    if not path.is_file():
        raise UserError(f"there is no {path}; --docs takes a folder of pages with a {CONFIG} beside it.")
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not plain YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(config, dict):
        raise UserError(f"{path} holds {type(config).__name__}; it must be a mapping, with a site_name.")
    return config


def _run(config: Path) -> None:
    """Build what a configuration describes. Raises UserError: MkDocs refuses it."""
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if not line.startswith("INFO")]
        raise UserError(f"MkDocs could not build the site: {' '.join(' '.join(said).split())}")


def _replace(built: Path, target: Path) -> None:
    """Put a folder in the place of another, which may be on another disk."""
    place = target.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=LEFTOVER) as aside:
        new, old = Path(aside, "new"), Path(aside, "old")
        shutil.copytree(built, new)
        if place.exists():
            place.replace(old)
        new.replace(place)
