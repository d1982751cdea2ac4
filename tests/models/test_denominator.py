import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.experiments.registry import registry
from linbench.models.blocks import denominator
from linbench.models.blocks.denominator import normalised_matrix_state


def results(apart: bool, given: dict[str, Tensor | None], monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Outputs, state and all gradients, with the sum of the weights in a call of its own or beside the
    values."""
    monkeypatch.setattr(denominator, "doubles_value_tile", lambda v: apart)
    leaves = {name: x if x is None else x.clone().requires_grad_() for name, x in given.items()}
    q, k, v, log_decay, strength, state = leaves.values()
    assert q is not None
    assert k is not None
    assert v is not None
    o, last = normalised_matrix_state(
        q,
        k,
        v,
        lambda total: total + 1e-6,
        log_decay=log_decay,
        strength=strength,
        scale=0.5,
        state=state,
    )
    return [
        o,
        last,
        *torch.autograd.grad(
            (o.sin().sum() + last.cos().sum()), [x for x in leaves.values() if x is not None]
        ),
    ]


@pytest.mark.parametrize("length", [1, 5, 70])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("from_state", [False, True])
def test_the_sum_of_the_weights_is_the_same_beside_the_values_and_in_a_call_of_its_own(
    length: int, gated: bool, from_state: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    given = {
        "q": torch.rand(2, length, 3, 4, dtype=torch.float64),
        "k": torch.rand(2, length, 3, 4, dtype=torch.float64),
        "v": torch.randn(2, length, 3, 8, dtype=torch.float64),
        "log_decay": -torch.rand(2, length, 3, dtype=torch.float64) if gated else None,
        "strength": torch.rand(2, length, 3, dtype=torch.float64) if gated else None,
        "state": torch.rand(2, 3, 4, 9, dtype=torch.float64) if from_state else None,
    }
    for beside, apart in zip(
        results(False, given, monkeypatch), results(True, given, monkeypatch), strict=True
    ):
        torch.testing.assert_close(apart, beside)


@pytest.mark.parametrize("model", ["linear_attention", "performer", "rfa", "based", "rebased"])
def test_what_is_divided_by_is_not_rotated(model: str) -> None:
    settings = registry("model").find(model).cls.Settings
    with pytest.raises(UserError, match="normalise = false"):
        settings.parse({"positions": "rope"}, where="model")
    assert settings.parse({"positions": "rope", "normalise": "false"}, where="model").positions == "rope"
