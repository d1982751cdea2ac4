"""minGRU and minLSTM: their equations token by token, and the scan and the sums that they are."""

import pytest
import torch
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.scan import scan
from linbench.models.mingru import MinGRU
from linbench.models.minlstm import MinLSTM
from tests.helpers.models import B, D, Error, Randomise, build_mixer

T = 37


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def averaged(keep: Tensor, write: Tensor, candidate: Tensor) -> Tensor:
    h, outputs = torch.zeros(B, D, dtype=torch.float64), []
    for t in range(T):
        h = keep[:, t] * h + write[:, t] * candidate[:, t]
        outputs.append(h)
    return torch.stack(outputs, dim=1)


@torch.no_grad()
@pytest.mark.parametrize("candidate", ["linear", "positive"])
def test_mingru_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, candidate: str
) -> None:
    mixer = randomise(build_mixer(MinGRU, candidate=candidate))
    z, c = torch.sigmoid(mixer.update(x)), mixer.candidate(x)
    if candidate == "positive":
        c = torch.where(c >= 0, c + 0.5, c.sigmoid())
    h = averaged(1 - z, z, c)
    y, state, _ = mixer(x)
    assert relative_error(y, h @ mixer.linear.weight.T) < 1e-10
    assert relative_error(state.memory[:, 0], h[:, -1]) < 1e-10


@torch.no_grad()
def test_minlstm_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(MinLSTM))
    f, i = torch.sigmoid(mixer.forget(x)), torch.sigmoid(mixer.input(x))
    h = averaged(f / (f + i), i / (f + i), mixer.candidate(x))
    y, state, _ = mixer(x)
    assert relative_error(y, h @ mixer.linear.weight.T) < 1e-10
    assert relative_error(state.memory[:, 0], h[:, -1]) < 1e-10


@torch.no_grad()
def test_mingru_is_a_scan_and_glas_memory_with_keys_of_one_number(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    """Each channel is a head: the decay 1 - z, the key z, the value c and the query 1."""
    mixer = randomise(build_mixer(MinGRU))
    logits, c = mixer.update(x), mixer.candidate(x)
    z = torch.sigmoid(logits)
    h, memory = mixer.recur(x, torch.zeros(B, 1, D, dtype=torch.float64))
    o, S = matrix_state(
        torch.ones_like(z)[..., None],
        z[..., None],
        c[..., None],
        log_decay=torch.nn.functional.logsigmoid(-logits)[..., None],
        scale=1.0,
    )
    assert relative_error(h, scan(1 - z, z * c)[0]) < 1e-10
    assert relative_error(h, o.squeeze(-1)) < 1e-10
    assert relative_error(memory[:, 0], S.flatten(1)) < 1e-10


@torch.no_grad()
def test_minlstm_whose_gates_add_up_to_one_is_a_mingru(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    one, other = randomise(build_mixer(MinGRU)), randomise(build_mixer(MinLSTM))
    shared = {name: value for name, value in one.state_dict().items() if not name.startswith("update")}
    other.load_state_dict(shared, strict=False)
    for ours, theirs in ((other.input, 1), (other.forget, -1)):
        ours.weight.copy_(theirs * one.update.weight)
        ours.bias.copy_(theirs * one.update.bias)
    assert relative_error(other(x).y, one(x).y) < 1e-10


@torch.no_grad()
def test_minlstm_keeps_a_small_share_to_the_last_digit() -> None:
    """Shut gates would be a quotient of zeros in float32."""
    mixer = build_mixer(MinLSTM).float()
    mixer.forget.bias.fill_(-200)
    mixer.input.bias.fill_(-198)
    logits = mixer.update_logits(torch.zeros(1, 1, D))
    assert logits.flatten().tolist() == pytest.approx([2.0] * D, rel=1e-4)
