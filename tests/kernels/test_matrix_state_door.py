"""Arguments that the entry of `matrix_state` takes, and those that it refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from linbench.kernels.matrix_state import Add, Delta, LowRank, flops_per_token, matrix_state
from linbench.kernels.matrix_state.published import apply
from tests.helpers.matrix_state import draw, error

B, T, HK, H, K, V = 2, 5, 2, 4, 8, 5

backends = pytest.mark.parametrize("backend", ["reference", "chunkwise"])


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def arguments(steps: int = 1) -> dict[str, Any]:
    """Return arguments that fit together."""
    k = zeros(B, steps * T, HK, K)
    return {"q": zeros(B, T, HK, K), "k": k, "v": zeros(B, steps * T, H, V), "steps": steps}


Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"q": x["q"][..., :-1]}, "Hk dividing H"),
        (lambda x: {"q": x["q"][:, :-1]}, "Hk dividing H"),
        (lambda x: {"q": x["q"][:1]}, "Hk dividing H"),
        (lambda x: {"k": x["k"][:, :, :1]}, "Hk dividing H"),
        (lambda x: {"k": x["k"][:, :-1]}, "Hk dividing H"),
        (lambda x: {"k": x["k"][:1]}, "Hk dividing H"),
        (lambda x: {"v": x["v"][:, :-1]}, "Hk dividing H"),
        (lambda x: {"v": x["v"][:1]}, "Hk dividing H"),
        (lambda x: {"v": x["v"][:, :, :3]}, "Hk dividing H"),
        (lambda x: {"steps": 2}, "with Hk dividing H and steps 2"),
        (lambda x: {"steps": 0}, "with Hk dividing H and steps 0"),
        (lambda x: {name: x[name][:, :0] for name in "qkv"}, "at least one token"),
        (lambda x: {"read": "during"}, "read must be after or before, not 'during'"),
        (lambda x: {"bonus": zeros(H, K)}, "goes with read='before'"),
        (lambda x: {"bonus": zeros(K, H), "read": "before"}, r"bonus must broadcast to \[H, K\] = \(4, 8\)"),
        (lambda x: {"bonus": zeros(1, H, K), "read": "before"}, "bonus must broadcast"),
        (
            lambda x: {"state": zeros(B, H, V, K)},
            r"state must be \[B, H, K, V\] = \(2, 4, 8, 5\), not \(2, 4, 5, 8\)",
        ),
        (lambda x: {"state": zeros(1, H, K, V)}, "state must be"),
        (
            lambda x: {"log_decay": zeros(B, T - 1, H)},
            r"log_decay must broadcast to \[B, T, H\] = \(2, 5, 4\)",
        ),
        (lambda x: {"log_decay": zeros(B, T, 1, H)}, r"or \[B, T, H, K\] with K = 8, not \(2, 5, 1, 4\)"),
        (lambda x: {"log_decay": zeros(1, B, T, H, K)}, "log_decay must broadcast"),
        (lambda x: {"update": Delta(zeros(B, T - 1, H))}, r"beta must broadcast to \[B, T, H\]"),
        (lambda x: {"update": Delta(zeros(3, B, T, H))}, "beta must broadcast"),
        (
            lambda x: arguments(2) | {"update": Delta(zeros(B, T, H))},
            r"beta must broadcast to \[B, T, H\] = \(2, 10, 4\)",
        ),
        (
            lambda x: {"update": Delta(zeros(B, T, H), reads="never")},
            "Delta reads decayed or undecayed, not 'never'",
        ),
        (
            lambda x: {"update": Delta(zeros(B, T, H), zeros(B, T, H, K))},
            r"erase_key must be shaped as k = \(2, 5, 2, 8\)",
        ),
        (lambda x: {"update": LowRank(zeros(B, T, 1, K), x["k"])}, "a must be shaped as k"),
        (lambda x: {"update": LowRank(x["k"], zeros(B, T, HK, 1))}, "b must be shaped as k"),
        (lambda x: {"update": Add}, r"update must be Add\(\), Delta\(...\) or LowRank\(...\)"),
        (lambda x: {"update": "delta"}, "update must be"),
        (
            lambda x: {"backend": "fast"},
            "backend must be one of auto, reference, scan, chunkwise, triton, not 'fast'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change: Change, message: str) -> None:
    fitting = arguments()
    matrix_state(**fitting)
    with pytest.raises(ValueError, match=message):
        matrix_state(**fitting | change(fitting))


@backends
@pytest.mark.parametrize("shape", [(H,), (1, 1, 1), (B, 1, H), (1, 65, 1), ()])
def test_gates_broadcast(backend: str, shape: tuple[int, ...]) -> None:
    instance, inputs = draw(
        "scalar",
        "delta",
        batch=B,
        length=65,
        heads=H,
        key_heads=HK,
        key_dim=K,
        value_dim=V,
        dtype=torch.float64,
    )
    small = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    full = small.expand(B, 65, H).contiguous()
    given = apply(instance, inputs | {"log_decay": -small, "beta": small}, backend=backend)
    expected = apply(instance, inputs | {"log_decay": -full, "beta": full}, backend=backend)
    assert [error(x, y) < 1e-12 for x, y in zip(given, expected, strict=True)] == [True, True]


@backends
@pytest.mark.parametrize("shape", [(1, 1, 1, K), (1, 1, H, K), (B, 1, 1, 1), (1, 65, H, 1)])
def test_decays_for_every_row_broadcast(backend: str, shape: tuple[int, ...]) -> None:
    instance, inputs = draw(
        "vector",
        "delta",
        batch=B,
        length=65,
        heads=H,
        key_heads=HK,
        key_dim=K,
        value_dim=V,
        dtype=torch.float64,
    )
    small = -torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    given = apply(instance, inputs | {"log_decay": small}, backend=backend)
    expected = apply(
        instance, inputs | {"log_decay": small.expand(B, 65, H, K).contiguous()}, backend=backend
    )
    assert [error(x, y) < 1e-12 for x, y in zip(given, expected, strict=True)] == [True, True]


@backends
@pytest.mark.parametrize("shape", [(K,), (1, K), (H, 1), ()])
def test_a_bonus_broadcasts(backend: str, shape: tuple[int, ...]) -> None:
    instance, inputs = draw(
        "none",
        "add",
        "bonus",
        batch=B,
        length=T,
        heads=H,
        key_heads=HK,
        key_dim=K,
        value_dim=V,
        dtype=torch.float64,
    )
    small = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    o, _ = apply(instance, inputs | {"bonus": small}, backend=backend)
    assert (
        error(o, apply(instance, inputs | {"bonus": small.expand(H, K).contiguous()}, backend=backend)[0])
        < 1e-12
    )


@pytest.mark.parametrize(
    ("decay", "delta", "per_element"),
    [(False, False, 4), (True, False, 5), (False, True, 6), (True, True, 7)],
)
def test_flops_per_token(decay: bool, delta: bool, per_element: int) -> None:
    assert (
        flops_per_token(heads=3, key_dim=8, value_dim=5, decay=decay, delta=delta) == 3 * 8 * 5 * per_element
    )
    more = flops_per_token(heads=3, key_dim=8, value_dim=5, decay=decay, delta=delta, steps=3)
    # two more writes, and predictions with them
    assert more == 3 * 8 * 5 * (per_element + 2 * (4 if delta else 2))


@backends
def test_a_final_state_that_is_not_wanted_is_none(backend: str) -> None:
    o, state = matrix_state(**arguments(), backend=backend, final=False)  # type: ignore[arg-type]
    assert (o.shape, state) == ((B, T, H, V), None)
