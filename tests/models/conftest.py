"""Fixtures for tests of every variant: one built with random weights, and its tokens."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from linbench.models.base import LayerInfo, Mixer
from tests.helpers.every_variant import CASES, VARIANTS, B, Build, D, Variant


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture
def variant(case: tuple[str, str]) -> Variant:
    return VARIANTS[case[0]]


@pytest.fixture
def form(case: tuple[str, str]) -> str:
    return case[1]


@pytest.fixture
def build(variant: Variant, form: str, randomise: Callable[[Mixer], Mixer]) -> Build:
    """The variant with random weights everywhere."""

    def make(dtype: torch.dtype = torch.float64) -> Mixer:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return randomise(variant.cls(variant.parsed(form), LayerInfo(0, 2, D))).to(dtype)

    return make


@pytest.fixture
def tokens(generator: torch.Generator) -> Callable[..., Tensor]:
    def make(length: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(B, length, D, dtype=torch.float64, generator=generator).to(dtype)

    return make
