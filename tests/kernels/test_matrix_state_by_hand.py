"""The recurrence against numbers worked out by hand, and against what the papers say equals what."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import Delta, LowRank, Update, matrix_state
from linbench.kernels.matrix_state.published import apply
from tests.helpers.matrix_state import DECAYS, READS, UPDATES, draw, error

B, T, H, K, V = 2, 70, 4, 8, 5

backends = pytest.mark.parametrize("backend", ["reference", "chunkwise"])
drawn = partial(draw, batch=B, length=T, heads=H, key_dim=K, value_dim=V, state=True, dtype=torch.float64)


def one_head(rows: list[Any]) -> Tensor:
    """[1, T, 1, ...]: one sequence, one head."""
    return torch.tensor(rows, dtype=torch.float64)[None, :, None]


def by_hand(
    backend: str,
    *,
    q: list[Any],
    k: list[Any],
    v: list[float],
    decay: list[Any],
    start: list[float],
    **more: Any,
) -> tuple[list[float], list[float]]:
    """Outputs and final state with one value per token and two rows of state."""
    state = torch.tensor(start, dtype=torch.float64)[None, None, :, None]
    options = {"scale": 1.0, "state": state, "backend": backend} | more
    o, last = matrix_state(
        one_head(q), one_head(k), one_head(v)[..., None], log_decay=one_head(decay).log(), **options
    )
    return o.flatten().tolist(), last.flatten().tolist()


@backends
@pytest.mark.parametrize(("scale", "factor"), [(None, 2**-0.5), (1.0, 1.0), (0.25, 0.25)])
@pytest.mark.parametrize(
    ("beta", "o", "s"),
    # S_1 = (3, 0), half of it stays: (1.5, 0), and k_2 v_2 = (1.2, 1.6) comes in
    [(None, (3.0, 5.9), (2.7, 1.6)), ([0.5, 1.0], (1.5, 4.16), (1.68, 1.24))],
    # S_1 = (1.5, 0), half of it stays: (0.75, 0), of which k_2 recalls 0.45, so that 1.55 k_2 comes in
    ids=["add", "delta"],
)
def test_two_tokens(
    backend: str,
    scale: float | None,
    factor: float,
    beta: list[float] | None,
    o: tuple[float, ...],
    s: tuple[float, ...],
) -> None:
    update = {} if beta is None else {"update": Delta(one_head(beta))}
    given = by_hand(
        backend,
        q=[[1, 1], [1, 2]],
        k=[[1, 0], [0.6, 0.8]],
        v=[3, 2],
        decay=[0.9, 0.5],
        start=[0, 0],
        scale=scale,
        **update,
    )
    assert given == (pytest.approx([factor * x for x in o]), pytest.approx(s))


@backends
def test_a_decay_for_every_row(backend: str) -> None:
    # (1, 4) stays of the start and (3, 6) comes in: (4, 10); (2, 1) stays of that and (2, 0) comes in
    given = by_hand(
        backend,
        q=[[1, 1], [1, 1]],
        k=[[1, 2], [1, 0]],
        v=[3, 2],
        decay=[[0.1, 0.2], [0.5, 0.1]],
        start=[10, 20],
    )
    assert given == (pytest.approx([14, 5]), pytest.approx([4, 1]))


@backends
@pytest.mark.parametrize(
    ("reads", "o", "s"),
    [
        # p recalls 5 of (10, 0): 0.4 (7 - 5) k comes to the (5, 0) that stay; then 5.8 of (5.8, 0.8)
        ("undecayed", (6.6, -5.14), (0.58, -5.72)),
        # p recalls 2.5 of (5, 0): 0.4 (7 - 2.5) k comes to it: (6.8, 1.8); then 0.68 of (0.68, 0.18)
        ("decayed", (8.6, 0.18), (0.68, -0.5)),
    ],
)
def test_an_erase_key_and_what_it_reads(
    backend: str, reads: Any, o: tuple[float, ...], s: tuple[float, ...]
) -> None:
    update = Delta(one_head([0.4, 1]), one_head([[0.5, 0], [1, 0]]), reads)
    given = by_hand(
        backend,
        q=[[1, 1], [1, 1]],
        k=[[1, 1], [0, 1]],
        v=[7, 0],
        decay=[0.5, 0.1],
        start=[10, 0],
        update=update,
    )
    assert given == (pytest.approx(o), pytest.approx(s))


@backends
def test_a_low_rank_update_reads_the_state_before_its_decay(backend: str) -> None:
    # (5, 2) stays, a recalls -10 and b writes (-2, -3) for it, k v = (3, 6) comes in: (6, 5); then (6, 1), 3,
    # (3, -3) and (0, 4)
    update = LowRank(one_head([[1, -1], [0.5, 0]]), one_head([[0.2, 0.3], [1, -1]]))
    given = by_hand(
        backend,
        q=[[1, 1], [1, -1]],
        k=[[1, 2], [0, 1]],
        v=[3, 4],
        decay=[[0.5, 0.1], [1, 0.2]],
        start=[10, 20],
        update=update,
    )
    assert given == (pytest.approx([11, 7]), pytest.approx([9, 2]))


@backends
@pytest.mark.parametrize(("bonus", "o"), [(None, (30, 8)), ([2.0, 1.0], (42, 18))])
def test_reading_before_the_write_with_a_bonus_for_it(
    backend: str, bonus: list[float] | None, o: tuple[float, ...]
) -> None:
    # the bonus adds (2 * 1 + 1 * 2) * 3, then 2 * 5 * 1
    more = {"read": "before", "bonus": None if bonus is None else torch.tensor([bonus], dtype=torch.float64)}
    for scale in (1.0, 0.25):
        given = by_hand(
            backend,
            q=[[1, 1], [1, 0]],
            k=[[1, 2], [5, 7]],
            v=[3, 1],
            decay=[0.5, 0.5],
            start=[10, 20],
            scale=scale,
            **more,
        )
        assert given == (pytest.approx([scale * x for x in o]), pytest.approx([9, 15]))


@backends
@pytest.mark.parametrize(
    ("more", "o"),
    [
        ({}, (4.18, 0.626)),
        ({"read": "before"}, (4, 4.18)),
        ({"read": "before", "bonus": torch.ones(2, dtype=torch.float64)}, (4 + 6 + 1.4, 4.18 + 10)),
    ],
    ids=["after", "before", "bonus"],
)
def test_two_steps_to_a_token(backend: str, more: dict[str, Any], o: tuple[float, ...]) -> None:
    # half of (4, 0) stays; 4 (1, 0) comes to it, then 0.5 (1 - 3.6) (0.6, 0.8): (5.22, -1.04). A tenth of it
    # stays, nothing comes, then 0.208 (0, 1)
    update = Delta(one_head([1, 0.5, 0, 2]))
    k = [[1, 0], [0.6, 0.8], [1, 0], [0, 1]]
    given = by_hand(
        backend,
        q=[[1, 1], [1, 1]],
        k=k,
        v=[6, 1, 10, 0],
        decay=[0.5, 0.1],
        start=[4, 0],
        steps=2,
        update=update,
        **more,
    )
    assert given == (pytest.approx(o), pytest.approx([0.522, 0.104]))


@backends
def test_a_key_head_serves_neighbouring_value_heads(backend: str) -> None:
    q = torch.ones(1, 1, 2, 1, dtype=torch.float64)
    k = torch.tensor([2.0, 3.0], dtype=torch.float64)[None, None, :, None]
    o, _ = matrix_state(q, k, torch.ones(1, 1, 4, 1, dtype=torch.float64), backend=backend)
    assert o.flatten().tolist() == [2.0, 2.0, 3.0, 3.0]


@backends
def test_orthonormal_keys_recall_and_overwrite_exactly(generator: torch.Generator, backend: str) -> None:
    keys = torch.linalg.qr(torch.randn(K, K, dtype=torch.float64, generator=generator)).Q
    values = torch.randn(K, V, dtype=torch.float64, generator=generator)
    replaced = torch.randn(V, dtype=torch.float64, generator=generator)
    read = torch.zeros(K, V, dtype=torch.float64)
    k = torch.cat([keys, keys, keys[3:4], keys])
    v = torch.cat([values, read, replaced[None], read])
    beta = torch.cat([torch.ones(K), torch.zeros(K), torch.ones(1), torch.zeros(K)]).double()
    o, _ = matrix_state(
        k[None, :, None],
        k[None, :, None],
        v[None, :, None],
        update=Delta(beta[None, :, None]),
        scale=1.0,
        backend=backend,
    )
    o = o[0, :, 0]
    torch.testing.assert_close(o[K : 2 * K], values, rtol=0, atol=1e-12)
    expected = values.clone()
    expected[3] = replaced
    torch.testing.assert_close(o[2 * K + 1 :], expected, rtol=0, atol=1e-12)


@backends
def test_beta_of_two_reflects(generator: torch.Generator, backend: str) -> None:
    key = F.normalize(torch.randn(K, dtype=torch.float64, generator=generator), dim=0)
    value = torch.randn(V, dtype=torch.float64, generator=generator)
    k = key.expand(1, T, 1, K)
    beta = torch.full((1, T, 1), 2.0, dtype=torch.float64)
    start = torch.outer(key, value)[None, None]
    o, state = matrix_state(
        k,
        k,
        torch.zeros(1, T, 1, V, dtype=torch.float64),
        update=Delta(beta),
        scale=1.0,
        state=start,
        backend=backend,
    )
    signs = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(T // 2)
    torch.testing.assert_close(o[0, :, 0], signs[:, None] * value, rtol=0, atol=1e-11)
    torch.testing.assert_close(state, start, rtol=0, atol=1e-11)


@backends
@pytest.mark.parametrize("decay", DECAYS)
def test_a_sum_is_attention_without_softmax(backend: str, decay: str) -> None:
    instance, inputs = drawn(decay, "add", state=False)
    o, _ = apply(instance, inputs, backend=backend)
    gate = inputs.get("log_decay", torch.zeros(B, T, H, dtype=torch.float64))
    sums = (gate if decay == "vector" else gate[..., None]).cumsum(dim=1)
    between = (sums[:, :, None] - sums[:, None]).clamp(max=0).exp()  # [B, T, T, H, K]
    scores = (
        torch.einsum("bihk,bijhk,bjhk->bhij", inputs["q"], between.expand(B, T, T, H, K), inputs["k"]).tril()
        * K**-0.5
    )
    assert error(o, torch.einsum("bhij,bjhv->bihv", scores, inputs["v"])) < 1e-12


def assert_same(given: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    assert [error(x, y) < 1e-12 for x, y in zip(given, expected, strict=True)] == [True, True]


@backends
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("update", UPDATES)
def test_decays_that_are_equal_over_rows_are_one_decay(backend: str, update: str, read: str) -> None:
    instance, inputs = drawn("scalar", update, read)
    rows = inputs["log_decay"][..., None].expand(B, T, H, K)
    assert_same(
        apply(instance, inputs | {"log_decay": rows}, backend=backend),
        apply(instance, inputs, backend=backend),
    )


@backends
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("update", UPDATES)
def test_no_decay_is_a_decay_of_one(backend: str, update: str, read: str) -> None:
    instance, inputs = drawn("none", update, read)
    without = apply(instance, inputs, backend=backend)
    for shape in ((B, T, H), (B, T, H, K)):
        assert_same(
            apply(instance, inputs | {"log_decay": torch.zeros(shape, dtype=torch.float64)}, backend=backend),
            without,
        )


@backends
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("decay", DECAYS)
def test_reading_before_is_reading_after_the_token_before(backend: str, decay: str, update: str) -> None:
    instance, inputs = drawn(decay, update, "before")
    before, last = apply(instance, inputs, backend=backend)
    earlier = inputs | {"q": inputs["q"].roll(-1, dims=1)}
    after, same_last = apply(instance._replace(read="after"), earlier, backend=backend)
    assert_same((before[:, 1:], last), (after[:, :-1], same_last))
    assert (
        error(before[:, 0], K**-0.5 * torch.einsum("bhkv,bhk->bhv", inputs["state"], inputs["q"][:, 0]))
        < 1e-12
    )


@backends
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("decay", DECAYS)
def test_two_steps_are_two_tokens_of_which_the_second_does_not_decay_and_is_read(
    backend: str, decay: str, update: str
) -> None:
    instance, inputs = drawn(decay, update, steps=2)
    doubled = {"q": inputs["q"].repeat_interleave(2, dim=1)}
    if decay != "none":
        doubled["log_decay"] = torch.stack(
            [inputs["log_decay"], torch.zeros_like(inputs["log_decay"])], dim=2
        ).flatten(1, 2)
    o, last = apply(instance._replace(steps=1), inputs | doubled, backend=backend)
    assert_same(apply(instance, inputs, backend=backend), (o[:, 1::2], last))


@pytest.fixture
def gated(backend: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Gated DeltaNet or KDA with something else in place of what it has."""

    def run(
        decay: str, replace: Callable[..., dict[str, Any]]
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        instance, inputs = drawn(decay, "delta")
        expected = apply(instance, inputs, backend=backend)
        gate = (
            inputs["log_decay"]
            if decay == "vector"
            else inputs.get("log_decay", torch.zeros(B, T, H, dtype=torch.float64))[..., None]
        )
        changed = {**inputs, **replace(inputs["k"], inputs["v"], inputs["beta"][..., None], gate.exp())}
        update: Update = changed["update"]
        options = {
            "log_decay": changed.get("log_decay"),
            "update": update,
            "steps": changed.get("steps", 1),
            "state": changed["state"],
        }
        return matrix_state(changed["q"], changed["k"], changed["v"], **options, backend=backend), expected

    return run


@backends
@pytest.mark.parametrize("decay", DECAYS)
def test_low_rank_with_the_decayed_key_is_the_delta_rule(gated: Callable[..., Any], decay: str) -> None:
    assert_same(
        *gated(decay, lambda k, v, beta, decayed: {"update": LowRank(-decayed * k, beta * k), "v": beta * v})
    )


@backends
@pytest.mark.parametrize("decay", DECAYS)
def test_erasing_with_the_decayed_key_what_is_undecayed_is_the_delta_rule(
    gated: Callable[..., Any], decay: str
) -> None:
    assert_same(
        *gated(decay, lambda k, v, beta, decayed: {"update": Delta(beta[..., 0], decayed * k, "undecayed")})
    )


@backends
@pytest.mark.parametrize("decay", DECAYS)
def test_an_erase_key_that_is_the_key_changes_nothing(gated: Callable[..., Any], decay: str) -> None:
    assert_same(*gated(decay, lambda k, v, beta, decayed: {"update": Delta(beta[..., 0], k)}))


@backends
@pytest.mark.parametrize("decay", DECAYS)
def test_a_second_step_with_beta_zero_changes_nothing(gated: Callable[..., Any], decay: str) -> None:
    def twice(x: Tensor) -> Tensor:
        return torch.stack([x, x.roll(1, dims=1)], dim=2).flatten(1, 2)

    def replace(k: Tensor, v: Tensor, beta: Tensor, decayed: Tensor) -> dict[str, Any]:
        only_first = torch.stack([beta, torch.zeros_like(beta)], dim=2).flatten(1, 2)[..., 0]
        return {"update": Delta(only_first), "k": twice(k), "v": twice(v), "steps": 2}

    assert_same(*gated(decay, replace))


@backends
def test_without_decay_a_bonus_of_one_is_reading_after(backend: str) -> None:
    instance, inputs = drawn("none", "add", "bonus")
    given = apply(instance, inputs | {"bonus": torch.ones(H, K, dtype=torch.float64)}, backend=backend)
    del inputs["bonus"]
    assert_same(given, apply(instance._replace(read="after"), inputs, backend=backend))
