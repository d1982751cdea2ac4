"""Variants of the delta rule: each is its equation, starts where it was published to start, and falls
together with a simpler one where it should."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.norms import l2_norm
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.channel_decay import ChannelDecay
from linbench.models.blocks.heads import share_input
from linbench.models.blocks.linear import SharedInput
from linbench.models.comba import Comba
from linbench.models.deltanet import DeltaNet
from linbench.models.deltaproduct import DeltaProduct
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.gated_deltaproduct import GatedDeltaProduct
from linbench.models.kaczmarz import Kaczmarz
from linbench.models.kda import KDA
from linbench.models.normalised_deltanet import NormalisedDeltaNet
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 70
Inside = tuple[SharedInput, Tensor, Tensor, Tensor, Tensor, Tensor]


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def inside(mixer: Any, x: Tensor) -> Inside:
    """The input, q, k and v as the recurrence has them, and what it makes of them: o and the memory."""
    given = share_input(x, mixer, mixer.readout)
    q, k, v, _ = mixer.project(given, None)
    return given, q, k, v, *mixer.recur(given, q, k, v, None)


def outer(k: Tensor, v: Tensor) -> Tensor:
    return k[..., :, None] * v[..., None, :]


def read(memory: Tensor, q: Tensor) -> Tensor:
    return (memory * q[..., :, None]).sum(dim=-2)


def looped(q: Tensor, v: Tensor, step: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, Tensor]:
    """o and the memory when `step` makes each token's memory of the one before."""
    memory, outputs = (
        torch.zeros(*v.shape[:1], *v.shape[2:3], q.shape[-1], v.shape[-1], dtype=torch.float64),
        [],
    )
    for t in range(q.shape[1]):
        memory = step(memory, t)
        outputs.append(read(memory, q[:, t]) / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, dim=1), memory


def scalar_decay(mixer: Any, x: Tensor) -> Tensor:
    """Return Mamba-2's decay [B, T, H]."""
    return torch.exp(
        -mixer.decay.A_log.exp() * F.softplus(x @ mixer.decay.project.weight.T + mixer.decay.dt_bias)
    )


def beta_of(mixer: Any, x: Tensor) -> Tensor:
    """[B, T, H, 1]."""
    return torch.sigmoid(x @ mixer.beta.project.weight.T)[..., None]


@torch.no_grad()
def test_kaczmarz_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    """It holds for keys of any length, which queries have not."""
    mixer = randomise(build_mixer(Kaczmarz, expand_k=1.0, expand_v=1.0))
    _, q, k, v, o, memory = inside(mixer, x)
    a, eta = scalar_decay(mixer, x), beta_of(mixer, x)
    beta = eta / (k.square().sum(dim=-1, keepdim=True) + 1e-6)

    def step(memory: Tensor, t: int) -> Tensor:
        memory = a[:, t, :, None, None] * memory
        return memory + outer(beta[:, t] * k[:, t], v[:, t] - read(memory, k[:, t]))

    expected = looped(l2_norm(q), v, step)
    assert k.norm(dim=-1).std() > 0.1
    assert relative_error(o, expected[0]) < 1e-10
    assert relative_error(memory, expected[1]) < 1e-10


@torch.no_grad()
def test_kaczmarz_is_gated_deltanet_that_writes_more_under_short_keys(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build_mixer(Kaczmarz, query_norm="none", epsilon=1e-12))
    given, q, k, v, o, _ = inside(mixer, x)
    length = k.norm(dim=-1, keepdim=True)
    gated, _ = GatedDeltaNet.recur(mixer, given, q, k / length, v / length, None)
    assert relative_error(o, gated) < 1e-8


@torch.no_grad()
def test_a_full_step_of_kaczmarz_recalls_what_it_wrote(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(Kaczmarz, epsilon=1e-12))
    mixer.beta.forward = lambda x: torch.ones(*x.x.shape[:2], HEADS, dtype=torch.float64)
    _, _, k, v, _, memory = inside(mixer, x)
    torch.testing.assert_close(read(memory, k[:, -1]), v[:, -1], rtol=0, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("safe", [False, True])
def test_kda_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error, safe: bool) -> None:
    mixer = randomise(build_mixer(KDA, safe_decay=safe))
    _, q, k, v, o, memory = inside(mixer, x)
    low = x @ mixer.decay.project.down.weight.T @ mixer.decay.project.up.weight.T + mixer.decay.dt_bias
    low, rate = low.unflatten(-1, (HEADS, -1)), mixer.decay.A_log.exp()[:, None]
    a = torch.exp(-5 * torch.sigmoid(rate * low) if safe else -rate * F.softplus(low))
    beta, eye = beta_of(mixer, x), torch.eye(D // HEADS, dtype=torch.float64)

    def step(memory: Tensor, t: int) -> Tensor:
        erase = eye - beta[:, t, :, :, None] * outer(k[:, t], k[:, t])
        return erase @ torch.diag_embed(a[:, t]) @ memory + outer(beta[:, t] * k[:, t], v[:, t])

    expected = looped(q, v, step)
    assert a.std(dim=-1).min() > 1e-3  # else the order of decay and erasing would not show
    assert relative_error(o, expected[0]) < 1e-10
    assert relative_error(memory, expected[1]) < 1e-10


@torch.no_grad()
def test_kda_with_one_decay_for_all_channels_is_gated_deltanet(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    same = {"expand_k": 1.0, "expand_v": 1.0, "output_gate": "none"}
    gated, channels = randomise(build_mixer(GatedDeltaNet, **same)), build_mixer(KDA, gate_rank=HEADS, **same)
    missing, extra = channels.load_state_dict(
        {name: value for name, value in gated.state_dict().items() if not name.startswith("decay.")},
        strict=False,
    )
    assert not extra
    assert all(name.startswith("decay.") for name in missing)
    dim = D // HEADS
    channels.decay.project.down.weight.copy_(gated.decay.project.weight)
    channels.decay.project.up.weight.copy_(torch.eye(HEADS).repeat_interleave(dim, dim=0))
    channels.decay.A_log.copy_(gated.decay.A_log)
    channels.decay.dt_bias.copy_(gated.decay.dt_bias.repeat_interleave(dim))
    expected = gated(x).y
    assert relative_error(channels(x).y, expected) < 1e-10
    channels.decay.dt_bias[0] += 1
    assert relative_error(channels(x).y, expected) > 1e-4


@torch.no_grad()
def test_kda_starts_with_a_median_half_life_of_about_ten_tokens_and_safe_keeps_above_its_floor() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decay, safe = ChannelDecay(4, 2, 64, 64, safe=False), ChannelDecay(4, 2, 64, 64, safe=True)
    zeros = torch.zeros(1, 1, 4)
    log_decay = decay(SharedInput(zeros, [decay.project.down]))
    assert log_decay.shape == (1, 1, 64, 64)
    assert 8 < (math.log(0.5) / log_decay).median() < 13
    assert log_decay.std(dim=-1).min() > 1e-3
    assert not safe.A_log.any()
    assert safe(SharedInput(zeros, [safe.project.down])).flatten().tolist() == pytest.approx(
        (-5 * torch.sigmoid(safe.dt_bias)).tolist()
    )
    safe.dt_bias.fill_(1e3)
    assert (safe(SharedInput(zeros, [safe.project.down])) == -5).all()


@torch.no_grad()
def test_a_safe_decay_can_start_where_a_softplus_starts() -> None:
    shipped, matched = (
        build_mixer(KDA, safe_decay=True, safe_start=name).decay for name in ("shipped", "matched")
    )
    nothing = torch.zeros(1, 1, D, dtype=torch.float64)
    short, long = (
        decay(SharedInput(nothing, [decay.project.down])).flatten() for decay in (shipped, matched)
    )
    torch.testing.assert_close(-long, F.softplus(shipped.dt_bias), rtol=1e-5, atol=0)
    assert (short / long > 4).all()
    with pytest.raises(UserError, match="safe_start = matched is a start of safe_decay"):
        build_mixer(KDA, safe_start="matched")


@torch.no_grad()
@pytest.mark.parametrize("neg_eigval", [False, True])
@pytest.mark.parametrize(
    "cls", [DeltaNet, NormalisedDeltaNet, DeltaProduct, GatedDeltaProduct, GatedDeltaNet, Comba, KDA]
)
def test_beta_starts_around_a_half_of_the_largest_as_a_torch_layer_without_bias_does(
    cls: type[Mixer], neg_eigval: bool, generator: torch.Generator
) -> None:
    width, largest = 256, 2 if neg_eigval else 1
    mixer = build_mixer(cls, LayerInfo(0, 2, width), heads=16, neg_eigval=neg_eigval)
    given = share_input(
        torch.randn(1, 500, width, dtype=torch.float64, generator=generator), mixer, mixer.readout
    )
    beta = mixer.beta(given)
    assert beta.shape[-1] == 16 * getattr(mixer.settings, "steps", 1)
    assert beta.median().item() == pytest.approx(largest / 2, rel=0.02)
    # weights are U(-1, 1) / sqrt(D), whose variance is 1 / (3 D), and inputs N(0, 1)
    assert (beta / largest).logit().std().item() == pytest.approx(3**-0.5, rel=0.03)


@torch.no_grad()
def test_comba_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(Comba))
    _, q, k, v, o, memory = inside(mixer, x)
    a, beta = scalar_decay(mixer, x)[..., None, None], beta_of(mixer, x)
    b = torch.sigmoid(mixer.erase)[:, None]

    def step(memory: Tensor, t: int) -> Tensor:
        eye = torch.eye(k.shape[-1], dtype=torch.float64)
        return (a[:, t] * eye - (b * beta[:, t])[..., None] * outer(k[:, t], k[:, t])) @ memory + outer(
            beta[:, t] * k[:, t], v[:, t]
        )

    expected = looped(q - mixer.correction[:, None] * k, v, step)
    assert relative_error(o, expected[0]) < 1e-10
    assert relative_error(memory, expected[1]) < 1e-10
    assert relative_error(o, looped(q, v, step)[0]) > 1e-3


@torch.no_grad()
def test_comba_that_keeps_all_erases_all_and_corrects_nothing_is_deltanet(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    same = {"expand_k": 1.0, "expand_v": 1.0, "output_gate": "none"}
    comba, plain = randomise(build_mixer(Comba, **same)), build_mixer(DeltaNet, **same)
    missing, extra = plain.load_state_dict(comba.state_dict(), strict=False)
    assert not missing
    assert {name.split(".")[0] for name in extra} == {"decay", "erase", "correction"}
    expected = plain(x).y
    comba.decay.A_log.fill_(-math.inf)
    comba.erase.fill_(math.inf)
    assert relative_error(comba(x).y, expected) > 1e-3
    comba.correction.zero_()
    assert relative_error(comba(x).y, expected) < 1e-12
    comba.erase.fill_(1.0)
    assert relative_error(comba(x).y, expected) > 1e-3


def test_comba_starts_with_erasing_less_than_it_writes() -> None:
    mixer = build_mixer(Comba)
    assert torch.sigmoid(mixer.erase).tolist() == pytest.approx([0.731] * HEADS, abs=1e-3)
    assert mixer.correction.tolist() == pytest.approx([0.02] * HEADS)
    assert build_mixer(Comba, correction=1.0).correction.tolist() == [1.0] * HEADS


@torch.no_grad()
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("cls", [DeltaProduct, GatedDeltaProduct])
def test_deltaproduct_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, cls: type[Mixer], steps: int
) -> None:
    mixer = randomise(build_mixer(cls, steps=steps))
    _, q, k, v, o, memory = inside(mixer, x)
    assert k.shape == (B, steps * T, HEADS, 6)
    beta = 2 * torch.sigmoid(x @ mixer.beta.project.weight.T).unflatten(-1, (steps, HEADS))[..., None]
    a = (
        scalar_decay(mixer, x)[..., None, None]
        if cls is GatedDeltaProduct
        else torch.ones(B, T, 1, 1, 1, dtype=torch.float64)
    )
    k, v = (each.unflatten(1, (T, steps)) for each in (k, v))

    def step(memory: Tensor, t: int) -> Tensor:
        memory = a[:, t] * memory
        for j in range(steps):
            memory = memory + outer(beta[:, t, j] * k[:, t, j], v[:, t, j] - read(memory, k[:, t, j]))
        return memory

    expected = looped(q, v[:, :, 0], step)
    assert relative_error(o, expected[0]) < 1e-10
    assert relative_error(memory, expected[1]) < 1e-10


@torch.no_grad()
def test_the_steps_of_deltaproduct_have_channels_of_their_own_step_by_step(
    x: Tensor, randomise: Randomise
) -> None:
    """Channels are those of q, then of k: all heads of the first step before those of the second; then of v
    alike."""
    mixer = randomise(build_mixer(DeltaProduct, steps=2, conv=0, qk_norm="none", expand_k=1.0, expand_v=1.0))
    _, q, k, v, _, _ = inside(mixer, x)
    made = x @ mixer.project.linear.weight.T
    parts = [q.flatten(2), *(each[:, j::2].flatten(2) for each in (k, v) for j in range(2))]
    torch.testing.assert_close(torch.cat(parts, dim=-1), made, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(
    ("product", "single"), [(DeltaProduct, DeltaNet), (GatedDeltaProduct, GatedDeltaNet)]
)
def test_deltaproduct_of_one_step_is_the_delta_rule(
    x: Tensor, randomise: Randomise, relative_error: Error, product: type[Mixer], single: type[Mixer]
) -> None:
    same = {"expand_k": 1.0, "expand_v": 1.0, "output_gate": "none", "neg_eigval": True}
    one, plain = randomise(build_mixer(product, steps=1, **same)), build_mixer(single, **same)
    plain.load_state_dict(one.state_dict())
    assert torch.equal(one(x).y, plain(x).y)


@torch.no_grad()
def test_two_reflections_of_one_token_rotate(relative_error: Error) -> None:
    """If beta = 2 and values are zero, each step reflects the memory.

    Two of them turn it by twice the angle between their keys.
    """
    mixer = build_mixer(DeltaProduct, steps=2, heads=1, head_dim=2, expand_k=1.0, expand_v=1.0, conv=0)
    mixer.beta.project.weight.fill_(1e3)
    x, angle = torch.ones(1, 8, D, dtype=torch.float64), math.pi / 8
    keys = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    k, v = keys.repeat(8, 1)[None, :, None], torch.zeros(1, 16, 1, 2, dtype=torch.float64)
    q = torch.eye(2, dtype=torch.float64)[None, :1, None].expand(1, 8, 1, 2)
    memory = torch.eye(2, dtype=torch.float64)[None, None]
    o, _ = mixer.recur(share_input(x, mixer, mixer.readout), q, k, v, memory)
    turns = 2 * angle * torch.arange(1, 9, dtype=torch.float64)
    expected = torch.stack([turns.cos(), -turns.sin()], dim=-1)[None, :, None] / math.sqrt(2)
    assert relative_error(o, expected) < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("feature_map", ["elu+1", "relu"])
def test_normalised_deltanet_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, feature_map: str
) -> None:
    mixer = randomise(build_mixer(NormalisedDeltaNet, feature_map=feature_map))
    _, q, k, v, o, memory = inside(mixer, x)
    beta = beta_of(mixer, x)
    z, written, outputs = torch.zeros_like(k[:, 0]), torch.zeros_like(memory[..., :-1]), []
    for t in range(T):
        predicted = read(written, k[:, t]) / (z * k[:, t]).sum(dim=-1, keepdim=True).clamp(min=1e-6)
        written = written + outer(beta[:, t] * k[:, t], v[:, t] - predicted)
        z = z + k[:, t]
        outputs.append(read(written, q[:, t]) / math.sqrt(q.shape[-1]))
    assert relative_error(o, torch.stack(outputs, dim=1)) < 1e-10
    assert relative_error(memory, torch.cat([written, z[..., None]], dim=-1)) < 1e-10


@torch.no_grad()
def test_of_a_key_that_is_written_again_only_the_mean_is_erased() -> None:
    """Let one key have unit length, beta = 1 and a value of 1.

    Then S_t = S_{t-1} + 1 - S_{t-1} / (t - 1), while DeltaNet stays at 1.
    """
    mixer = build_mixer(NormalisedDeltaNet, heads=1, head_dim=1, conv=0)
    mixer.beta.project.weight.fill_(1e3)
    ones, x = torch.ones(1, 6, 1, 1, dtype=torch.float64), torch.ones(1, 6, D, dtype=torch.float64)
    o, _ = mixer.recur(share_input(x, mixer, mixer.readout), ones, ones, ones, None)
    assert o.flatten().tolist() == pytest.approx([1, 1, 1.5, 2, 2.5, 3])


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_deltaproduct_counts_every_step(steps: int) -> None:
    mixer = build_mixer(GatedDeltaProduct, steps=steps)
    assert mixer.recurrence_flops(100) == HEADS * 6 * 12 * (3 + 4 * steps)
    assert mixer.state_floats(100).recurrent == HEADS * 6 * 12


@torch.no_grad()
@pytest.mark.parametrize("cls", [DeltaNet, GatedDeltaNet, Comba, KDA, DeltaProduct, NormalisedDeltaNet])
@pytest.mark.parametrize("feature_map", ["relu", "elu+1"])
def test_q_and_k_may_have_another_activation_than_v(
    x: Tensor, randomise: Randomise, relative_error: Error, cls: type[Mixer], feature_map: str
) -> None:
    mixer = randomise(build_mixer(cls, qk_activation="none", feature_map=feature_map))
    _, q, k, v, _, _ = inside(mixer, x)
    made = F.pad((x @ mixer.project.linear.weight.T).mT, (3, 0))
    filtered = F.conv1d(made, mixer.project.conv.weight.T[:, None], groups=made.shape[1]).mT
    for given, part, activation in zip(
        (q, k, v), filtered.split(mixer.project.widths, dim=-1), 2 * [feature_map] + ["silu"], strict=True
    ):
        expected = {"relu": F.relu, "elu+1": lambda y: F.elu(y) + 1, "silu": F.silu}[activation](part)
        expected = expected.reshape(*given.shape[:1], -1, *given.shape[2:])
        if activation != "silu":
            expected = expected / (expected.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()
        assert relative_error(given, expected) < 1e-12
    assert cls.Settings.parse(cls.controlled, where="model").qk_activation == "silu"


DECAY = {"decay.A_log", "decay.dt_bias"}


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (KDA, DECAY),
        (Comba, {*DECAY, "erase", "correction"}),
        (DeltaProduct, set()),
        (GatedDeltaProduct, DECAY),
    ],
)
def test_rules_spare_what_must_not_decay(cls: type[Mixer], expected: set[str]) -> None:
    rules = build_mixer(cls).parameter_rules()
    assert rules.keys() == expected
    assert all(rule.decay is False for rule in rules.values())


@torch.no_grad()
@pytest.mark.parametrize("qk_norm", ["l2", "rms", "none"])
@pytest.mark.parametrize("neg_eigval", [False, True])
@pytest.mark.parametrize("cls", [DeltaNet, GatedDeltaNet, Comba, DeltaProduct, GatedDeltaProduct])
def test_no_negative_eigenvalue_is_promised_that_could_come(
    x: Tensor, monkeypatch: pytest.MonkeyPatch, cls: type[Mixer], neg_eigval: bool, qk_norm: str
) -> None:
    mixer, updates = build_mixer(cls, neg_eigval=neg_eigval, qk_norm=qk_norm), []

    def seen(q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Any:
        updates.append((k, more["update"]))
        return matrix_state(q, k, v, **more)

    for module in ("deltanet", "gated_deltanet", "comba", "deltaproduct"):
        monkeypatch.setattr(f"linbench.models.{module}.matrix_state", seen)
    inside(mixer, 100 * x)
    ((k, update),) = updates
    erase = k if update.erase_key is None else update.erase_key
    along = update.beta * (k * erase).sum(dim=-1)
    assert update.neg_eigval == (neg_eigval or qk_norm != "l2")
    assert update.neg_eigval or along.max() <= 1 + 1e-9
    assert not neg_eigval or qk_norm != "l2" or along.max() > 1
