"""Fixtures of the tests of claims."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from linbench.claims.stored_results import Stored


@pytest.fixture
def kept(tmp_path: Path) -> "Callable[..., Stored]":
    """A function that stores a score for every seed of a measure."""
    from tests.helpers.claims import keeping

    return keeping(tmp_path)
