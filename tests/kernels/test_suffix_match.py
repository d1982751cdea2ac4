"""The longest match: all pairs at once find what the automaton finds, and what a search by hand finds; the
gradient is that of finite differences of the relaxed match."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.kernels.suffix_match import History, pairwise, reference, signs, suffix_match
from tests.helpers.matrix_state import error

B, C, BITS = 2, 3, 2
BACKENDS = ["reference", "pairwise"]
LENGTHS = [1, 2, 31, 33, 63, 65, 100]


def draw(length: int, *, bits: int = BITS, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(3, B, length, C, bits, dtype=torch.float64, generator=generator)
    return x.to(dtype).unbind()


def symbols(rows: int, length: int, kinds: int, seed: int) -> Tensor:
    return torch.randint(0, kinds, (rows, length), generator=torch.Generator().manual_seed(seed))


def search(q: list[int], k: list[int], t: int) -> int:
    """The place after the last of the keys whose suffix is longest; 0 without a match."""
    lengths = []
    for j in range(t):
        same = 0
        while same <= j and q[t - same] == k[j - same]:
            same += 1
        lengths.append(same)
    longest = max(lengths, default=0)
    return max(j + 1 for j in range(t) if lengths[j] == longest) if longest else 0


@pytest.mark.parametrize("kinds", [1, 2, 3, 5])
def test_all_pairs_at_once_find_what_the_automaton_finds(kinds: int) -> None:
    """600 pairs of random sequences for each number of symbols, and 200 of one sequence with itself."""
    for length in (1, 2, 7, 40):
        q, k = (symbols(150, length, kinds, seed) for seed in (length, length + 1))
        for keys in (k, torch.cat([q[:50], k[50:]])):
            given, expected = pairwise.find(q, keys, None, None), reference.find(q, keys, None, None)
            assert all(map(torch.equal, given, expected))


@pytest.mark.parametrize("kinds", [2, 4])
def test_the_automaton_finds_what_a_search_finds(kinds: int) -> None:
    q, k = (symbols(20, 25, kinds, seed) for seed in (5, 6))
    q[:5] = k[:5]
    places, runs = reference.find(q, k, None, None)
    for row in range(len(q)):
        q_row, k_row = q[row].tolist(), k[row].tolist()
        assert places[row].tolist() == [search(q_row, k_row, t) for t in range(25)]
        assert runs[row].max() == (0 if not (last := places[row, -1]) else runs[row, last - 1])


@pytest.mark.slow
def test_long_sequences_are_searched_alike() -> None:
    q, k = symbols(2, 700, 2, 8), symbols(2, 700, 2, 9)
    q[1] = k[1] = torch.arange(700) % 61  # which repeats all of what came before
    given, expected = pairwise.find(q, k, None, None), reference.find(q, k, None, None)
    assert all(map(torch.equal, given, expected))
    assert given[1].max() == 700 - 61


def results(x: tuple[Tensor, ...], backend: str) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in x]
    o, runs = suffix_match(*leaves, backend=backend)
    weight = torch.randn(o.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(o.dtype)
    (o * weight).sum().backward()
    return [o.detach(), runs, *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.parametrize("bits", [1, 4])
@pytest.mark.parametrize("length", [1, 2, 31, 33, pytest.param(70, marks=pytest.mark.slow)])
def test_outputs_runs_and_gradients_equal_the_loop(length: int, bits: int) -> None:
    x = draw(length, bits=bits)
    given, expected = results(x, "pairwise"), results(x, "reference")
    assert torch.equal(given[0], expected[0])
    assert torch.equal(given[1], expected[1])
    for mine, theirs in zip(given[2:], expected[2:], strict=True):
        assert error(mine, theirs) < 1e-12 or not (mine.any() or theirs.any())
    for single, exact in zip(results(tuple(each.float() for each in x), "pairwise"), given, strict=True):
        assert error(single, exact) < 1e-4 or not exact.any()


def test_the_gradient_is_that_of_the_relaxed_match_by_finite_differences() -> None:
    """Its signs are moved by themselves, and the slope of softsign is that of each input."""
    x = tuple(each[:1, :, 0].clone() for each in draw(9))
    *_, of_q, of_k, of_v = results(tuple(each[:, :, None] for each in x), "pairwise")
    weight = torch.randn(1, 9, 1, BITS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for which, gradient in enumerate((of_q, of_k, of_v)):
        for t in range(9):
            for bit in range(BITS):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = [signs(each) for each in x]
                    moved[which][0, t, bit] += step
                    ends.append((reference.relaxed(*moved) * weight[:, :, 0]).sum())
                slope = 1 / (1 + x[which][0, t, bit].abs()) ** 2
                expected = float((ends[0] - ends[1]) / 2e-5 * slope)
                assert gradient[0, t, 0, bit].item() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("points", [[1] * 9, [4, 5], [33, 1, 6], [1, 63, 6]], ids=str)
def test_splitting_and_carrying_the_history_equals_the_whole(points: list[int], backend: str) -> None:
    q, k, v = draw(length := sum(points))
    whole, last = suffix_match(q, k, v, backend=backend)
    places = length + 3  # three are never used
    keys, values = (torch.full((B, places, C, BITS), float("nan")).double() for _ in range(2))
    runs, start, outputs = torch.zeros(B, places, C, dtype=torch.float64), 0, []
    for part in points:
        end = start + part
        keys[:, start:end], values[:, start:end] = signs(k[:, start:end]), signs(v[:, start:end])
        history = History(keys, values, runs, torch.full((B,), start))
        o, runs = suffix_match(*(x[:, start:end] for x in (q, k, v)), history=history, backend=backend)
        outputs.append(o)
        start = end
    assert torch.equal(torch.cat(outputs, dim=1), whole)
    assert torch.equal(runs[:, :length], last)
    assert not runs[:, length:].any()


def test_later_tokens_change_no_earlier_output() -> None:
    x, others = draw(70), draw(71)
    whole, _ = suffix_match(*x)
    for t in (1, 31, 32, 69):
        o, _ = suffix_match(
            *(torch.cat([a[:, :t], b[:, t:70]], dim=1) for a, b in zip(x, others, strict=True))
        )
        assert torch.equal(o[:, :t], whole[:, :t])


def test_rows_are_compared_in_parts_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(20)
    whole = results(x, "pairwise")
    monkeypatch.setattr(pairwise, "PAIRS", {"cpu": 1, "cuda": 1})
    assert all(map(torch.equal, results(x, "pairwise"), whole))


def test_replicas_stack() -> None:
    x = [torch.stack([each, -each.flip(1)]) for each in draw(20)]

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        o, runs = suffix_match(q, k, v)
        return (o * torch.arange(o.numel()).view(o.shape)).sum() + runs.sum()

    stacked = torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*x)
    leaves = [each.clone().requires_grad_() for each in x]
    torch.vmap(loss)(*leaves).sum().backward()
    for r in range(2):
        alone = torch.func.grad(loss, argnums=(0, 1, 2))(*(each[r] for each in x))
        for one, folded, expected in zip(stacked, leaves, alone, strict=True):
            assert error(one[r], expected) < 1e-12
            assert folded.grad is not None
            assert error(folded.grad[r], expected) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dtypes(dtype: torch.dtype) -> None:
    x = draw(20, dtype=dtype)
    o, runs = suffix_match(*x)
    assert (o.dtype, runs.dtype) == (dtype, torch.float32)
    assert torch.equal(o.double(), suffix_match(*(each.double() for each in x), backend="reference")[0])
    assert set(o.unique().tolist()) == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: [x[0][:, :-1], *x[1:]], r"q, k and v \[B, T, C, b\]"),
        (lambda x: [each[..., 0] for each in x], r"q, k and v \[B, T, C, b\]"),
        (lambda x: [each[:, :0] for each in x], "at least one token, stream and sign"),
        (lambda x: [each[..., :0] for each in x], "at least one token, stream and sign"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[Any], list[Tensor]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suffix_match(*change(draw(6)))


def test_a_backend_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="backend must be one of auto, reference, pairwise, not 'triton'"):
        suffix_match(*draw(6), backend="triton")
