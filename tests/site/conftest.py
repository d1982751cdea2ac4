"""A site of made-up results."""

from collections.abc import Callable
from pathlib import Path

import pytest

from linbench.results.schema import Result
from linbench.site.findings import Findings
from linbench.site.pages import site_from
from linbench.site.render import Site
from tests.helpers.site import findings_of, made_up


@pytest.fixture(scope="module")
def findings(a_result: Callable[..., Result]) -> Findings:
    """Findings of made-up results of four variants."""
    return findings_of(made_up(a_result))


@pytest.fixture(scope="module")
def site(findings: Findings) -> Site:
    """The site of these results."""
    return site_from(findings)


@pytest.fixture(scope="module")
def built(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this site, as MkDocs builds it."""
    from linbench.site.build import build

    folder = tmp_path_factory.mktemp("built") / "site"
    build(site, folder)
    return folder
