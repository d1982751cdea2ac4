"""What tests of several rooms share."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20)


@pytest.fixture
def relative_error() -> Callable[[Tensor, Tensor], float]:
    """Largest difference over largest expected value; infinite where anything is NaN or what is expected is all zero."""

    def measure(given: Tensor, expected: Tensor) -> float:
        assert given.shape == expected.shape
        given, expected = given.detach().double(), expected.detach().double()
        largest = expected.abs().max()
        if not given.isfinite().all() or not expected.isfinite().all() or largest == 0:
            return float("inf")
        return float((given - expected).abs().max() / largest)

    return measure


@pytest.fixture
def randomise(generator: torch.Generator) -> Callable[[nn.Module], nn.Module]:
    """Replace every parameter by noise, since output projections start at zero; what parameterises the decay keeps its own start."""

    def fill(module: nn.Module) -> nn.Module:
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name.rsplit(".", 1)[-1] not in {"A_log", "dt_bias"}:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        return module

    return fill


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Memory that nothing was written to holds NaN."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    assert torch.zeros(1).new_empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture
def chi_squared() -> Callable[..., float]:
    """The probability of counts at least this far from what is expected; `degrees` are one fewer than there are cells unless given."""

    def probability(counts: Tensor, expected: Tensor, *, degrees: int | None = None) -> float:
        counts, expected = counts.double().flatten(), expected.double().flatten()
        assert counts.shape == expected.shape
        assert expected.min() >= 5
        assert float(counts.sum()) == pytest.approx(float(expected.sum()))
        statistic = ((counts - expected).square() / expected).sum()
        return float(torch.special.gammaincc(torch.tensor((degrees or len(counts) - 1) / 2, dtype=torch.float64), statistic / 2))

    return probability
