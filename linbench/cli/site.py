"""`linbench site`: the leaderboard as a static site."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import warn_ignored_files
from linbench.cli.result_folders import require_folders, stores_in

REFERENCE = Path("reference")
"""The results that come with linbench, which are shown unless others are named."""

EXAMPLES = """
Examples:

  linbench site

  linbench site --results results/mine --results reference

  linbench site --docs docs --save build/leaderboard
"""


def site(
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder of results to show, with all folders in it; reference: the results of linbench.",
            show_default="reference",
            rich_help_panel="Results",
        ),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Folder of further pages that the site holds, too; mkdocs.yml beside it describes them.",
        ),
    ] = None,
    save: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for the site: an empty or new one, or one that this command has made before.",
        ),
    ] = Path("build/leaderboard"),
) -> None:
    """Build the leaderboard, a static site, from stored results.

    Every variant is ranked by question. Each variant, task, claim and published table has a page. The site
    loads nothing from elsewhere. Without --docs it opens from a disk; its search needs a server, such as
    `python -m http.server --directory build/leaderboard`. It is built with MkDocs, which comes with
    linbench's extra `site`.
    """
    from linbench.claims.stored_results import Stored
    from linbench.site.build import build, require_ready
    from linbench.site.pages import site_of

    require_ready(save, docs)
    folders = results or [REFERENCE]
    require_folders(folders, new=False)
    with redirect_stdout(sys.stderr):  # plugins may print; standard output is ours
        stored = Stored(stores_in(folders))
        build(site_of(stored), save, docs=docs)
    warn_ignored_files(stored.set_aside)
    print(save)


site.__doc__ = (site.__doc__ or "") + EXAMPLES
