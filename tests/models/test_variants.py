"""The laws that every variant keeps, in its published and in the controlled form."""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Mixer
from linbench.models.base_conv import BaseConv
from linbench.models.comba import Comba
from linbench.models.deltanet import DeltaNet
from linbench.models.deltaproduct import DeltaProduct
from linbench.models.dfw import DFW
from linbench.models.fox import FoX
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.gated_deltaproduct import GatedDeltaProduct
from linbench.models.gla import GLA
from linbench.models.hgrn2 import HGRN2
from linbench.models.kda import KDA
from linbench.models.lightning import Lightning
from linbench.models.linear_attention import LinearAttention
from linbench.models.lstm import LSTM
from linbench.models.mamba2 import Mamba2
from linbench.models.mlstm import MLSTM
from linbench.models.normalised_deltanet import NormalisedDeltaNet
from linbench.models.performer import Performer
from linbench.models.retnet import RetNet
from linbench.models.rfa import RFA
from linbench.models.rwkv4 import RWKV4
from linbench.models.rwkv5 import RWKV5
from linbench.models.rwkv6 import RWKV6
from linbench.models.rwkv7 import RWKV7, FirstValue
from linbench.models.transnormer import TransNormer

B, D, HEADS = 2, 16, 2
Error = Callable[[Tensor, Tensor], float]


class Variant(NamedTuple):
    """A mixer, the settings that make it this variant, how many parameters it has as published, and its state in either form: (memory,
    convolution) as a function of length, no controlled form where that is None."""

    cls: type[Mixer]
    settings: dict[str, Any]
    parameters: int
    native_state: Callable[[int], tuple[int, int]]
    controlled_state: Callable[[int], tuple[int, int]] | None
    shift: int = 0
    """As published; in the controlled form there is none."""

    def parsed(self, form: str) -> Any:
        around = {"heads": HEADS} if "heads" in self.cls.Settings.model_fields else {}
        return self.cls.Settings.parse({**around, **((self.cls.controlled or {}) if form == "controlled" else {}), **self.settings}, where="model")


CONV = 3 * 3 * D  # three inputs of q, k and v
CACHE, WINDOW, KERNEL = 2 * D, 3, 3
HEAD = D // HEADS
MATRIX = HEADS * HEAD**2
QKVO, FILTER, NORM, GATE = 4 * D * D, 4 * 3 * D, HEAD, D * HEADS  # projections; a convolution on q, k and v; an output norm; a gate for each head

SOFTMAX = {
    "attention": Variant(Attention, {}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)),
    "attention without positions": Variant(Attention, {"positions": "none"}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)),
    "attention with alibi": Variant(Attention, {"positions": "alibi"}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)),
    "attention with a window": Variant(Attention, {"window": WINDOW}, QKVO, lambda n: (min(n, WINDOW) * CACHE, 0), lambda n: (min(n, WINDOW) * CACHE, CONV)),
}

REVISITED = {
    "fox": Variant(FoX, {}, QKVO + GATE + HEADS, lambda n: (n * (CACHE + HEADS), 0), lambda n: (n * (CACHE + HEADS), CONV)),
    "fox with a window and positions": Variant(
        FoX,
        {"window": WINDOW, "positions": "rope"},
        QKVO + GATE + HEADS,
        lambda n: (min(n, WINDOW) * (CACHE + HEADS), 0),
        lambda n: (min(n, WINDOW) * (CACHE + HEADS), CONV),
    ),
    "fox with alibi": Variant(FoX, {"positions": "alibi"}, QKVO + GATE + HEADS, lambda n: (n * (CACHE + HEADS), 0), lambda n: (n * (CACHE + HEADS), CONV)),
}

SUMS = {
    "linear attention": Variant(LinearAttention, {}, QKVO, lambda _: (MATRIX + D, 0), lambda _: (MATRIX + D, CONV)),
    "linear attention unnormalised": Variant(LinearAttention, {"normalise": False}, QKVO + NORM, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)),
    "linear attention with positions": Variant(
        LinearAttention, {"normalise": False, "positions": "rope"}, QKVO + NORM, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)
    ),
}

SUMS |= {
    f"linear attention with {name}": Variant(
        LinearAttention,
        {"feature_map": name, "qk_norm": norm},
        QKVO + learned * 2 * HEAD**2,
        lambda _, times=times: (times * (MATRIX + D), 0),
        lambda _, times=times: (times * (MATRIX + D), CONV),
    )
    # how many times as many features as dimensions, and how many learned matrices for queries and as many for keys
    for name, norm, times, learned in (("dpfp-3", "l1", 6, 0), ("hedgehog", "l1", 2, 1), ("t2r", "none", 1, 1))
}
SUMS["linear attention with hadamard"] = Variant(
    LinearAttention, {"feature_map": "hadamard", "normalise": False}, QKVO + 4 * HEAD**2 + NORM, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)
)
SUMS["transnormer"] = Variant(TransNormer, {}, 5 * D * D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV))  # with a gate, and a norm over all heads
SUMS |= {
    "performer": Variant(Performer, {}, QKVO, lambda _: (HEADS * 16 * (HEAD + 1), 0), lambda _: (HEADS * 16 * (HEAD + 1), CONV)),  # 16 = 8 log 8, rounded down
    "performer with relu": Variant(
        Performer,
        {"feature_map": "favor-relu", "features": 11},
        QKVO,
        lambda _: (HEADS * 11 * (HEAD + 1), 0),
        lambda _: (HEADS * 11 * (HEAD + 1), CONV),
    ),
}
SUMS |= {
    name: Variant(RFA, settings, QKVO + D + more, lambda _, size=size: (size, 0), lambda _, size=size: (size, CONV))
    # sigma has D numbers; the gate a weight and a bias
    for name, settings, more, size in (
        ("rfa", {}, 0, HEADS * 128 * (HEAD + 1)),
        ("rfa with a gate", {"gated": True}, GATE + HEADS, HEADS * 128 * (HEAD + 1)),
        ("rfa unnormalised", {"gated": True, "normalise": False, "directions": 10, "orthogonal": True}, GATE + HEADS + NORM, HEADS * 20 * HEAD),
    )
}
EXPONENTIAL_GATES = {
    # keys of D / 2, in all; q, k, v, o and the output gate are 4 D^2 together
    name: Variant(
        MLSTM,
        settings,
        4 * D * D + D + 2 * (GATE + HEADS),
        lambda _: (HEADS * (4 * (HEAD + 1) + 1), 0),
        lambda _: (HEADS * (HEAD * (HEAD + 1) + 1), CONV),
    )
    for name, settings in (("mlstm", {}), ("mlstm without a cap", {"soft_cap": None}))
}

DECAYS = {
    "retnet": Variant(RetNet, {}, 8 * D * D + 2 * HEAD, lambda _: (2 * MATRIX, 0), lambda _: (MATRIX, CONV)),
    "retnet of even decays": Variant(RetNet, {"decay_law": "linspace"}, 8 * D * D + 2 * HEAD, lambda _: (2 * MATRIX, 0), lambda _: (MATRIX, CONV)),
    "lightning": Variant(Lightning, {}, 5 * D * D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)),
    # the gate goes from D to 16 and from there, with a bias, to keys of D / 2 in all
    "gla": Variant(GLA, {}, 4 * D * D + NORM + 16 * D + 16 * D // 2 + D // 2, lambda _: (MATRIX // 2, 0), lambda _: (MATRIX, CONV)),
    "hgrn2": Variant(HGRN2, {}, 4 * D * D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)),
    # x, z and o of 2 D each, B and C of HEAD for all heads together; the convolution with its biases; a norm of 2 D; d with its two numbers a head; D
    "mamba2": Variant(
        Mamba2,
        {},
        6 * D * D + 2 * HEAD * D + 5 * (2 * D + 2 * HEAD) + 2 * D + GATE + 3 * HEADS,
        lambda _: (2 * MATRIX, 3 * (2 * D + 2 * HEAD)),
        lambda _: (MATRIX, CONV),
    ),
    "mamba2 of two groups": Variant(
        Mamba2,
        {"groups": 2},
        8 * D * D + 5 * 4 * D + 2 * D + GATE + 3 * HEADS,
        lambda _: (2 * MATRIX, 3 * 4 * D),
        lambda _: (MATRIX, CONV),
    ),
    # q, k, v and o, and a gate with its bias for each channel of keys of D / 2 and of values
    "dfw": Variant(DFW, {}, 3 * D * D + NORM + (D + 1) * (D // 2 + D), lambda _: (MATRIX // 2, 0), lambda _: (MATRIX, CONV)),
}

DELTA_RULE = {
    "deltanet": Variant(DeltaNet, {}, QKVO + FILTER + NORM + GATE, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV)),
    "deltanet with another activation": Variant(
        DeltaNet, {"qk_activation": "none", "feature_map": "relu"}, QKVO + FILTER + NORM + GATE, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV)
    ),
    "deltanet with neg_eigval": Variant(DeltaNet, {"neg_eigval": True}, QKVO + FILTER + NORM + GATE, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV)),
    "normalised deltanet": Variant(NormalisedDeltaNet, {}, QKVO + FILTER + NORM + GATE, lambda _: (MATRIX + D, CONV), lambda _: (MATRIX + D, CONV)),
    # keys of 0.75 D in all, values of 1.5 D; q, k, v, o and the output gate are 6 D^2 together
    "gated deltanet": Variant(
        GatedDeltaNet,
        {},
        6 * D * D + 4 * 3 * D + 12 + 2 * GATE + 2 * HEADS,
        lambda _: (HEADS * 6 * 12, 3 * HEADS * (6 + 6 + 12)),
        lambda _: (MATRIX, CONV),
    ),
    # two numbers more for each head
    "comba": Variant(
        Comba,
        {},
        6 * D * D + 4 * 3 * D + 12 + 2 * GATE + 4 * HEADS,
        lambda _: (HEADS * 6 * 12, 3 * HEADS * (6 + 6 + 12)),
        lambda _: (MATRIX, CONV),
    ),
    # keys, values, filters and betas twice
    "deltaproduct": Variant(
        DeltaProduct,
        {},
        (12 + 2 * 12 + 2 * 24 + 24 + 24) * D + 4 * (12 + 2 * 12 + 2 * 24) + 12 + 2 * GATE,
        lambda _: (HEADS * 6 * 12, 3 * (12 + 2 * 12 + 2 * 24)),
        lambda _: (MATRIX, 3 * 5 * D),
    ),
    "deltaproduct of three with positions": Variant(
        DeltaProduct,
        {"steps": 3, "positions": "rope"},
        (12 + 3 * 12 + 3 * 24 + 24 + 24) * D + 4 * (12 + 3 * 12 + 3 * 24) + 12 + 3 * GATE,
        lambda _: (HEADS * 6 * 12, 3 * (12 + 3 * 12 + 3 * 24)),
        lambda _: (MATRIX, 3 * 7 * D),
    ),
    "gated deltaproduct": Variant(
        GatedDeltaProduct,
        {},
        (12 + 2 * 12 + 2 * 24 + 24 + 24) * D + 4 * (12 + 2 * 12 + 2 * 24) + 12 + 3 * GATE + 2 * HEADS,
        lambda _: (HEADS * 6 * 12, 3 * (12 + 2 * 12 + 2 * 24)),
        lambda _: (MATRIX, 3 * 5 * D),
    ),
    # decay and output gate of rank HEAD; A_log for each head, dt_bias for each channel
    "kda": Variant(KDA, {}, QKVO + FILTER + NORM + GATE + 2 * (2 * D * HEAD) + HEADS + D, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV)),
    "kda with a safe decay": Variant(
        KDA, {"safe_decay": True}, QKVO + FILTER + NORM + GATE + 2 * (2 * D * HEAD) + HEADS + D, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV)
    ),
}

# q, k, v, output and gate; decay and bonus; a group norm
EAGLE = 5 * D * D + 2 * D + 2 * D
SHIFTED = {
    # receptance, key, value and output; three streams; decay and bonus; in the controlled form the convolution is on the layer's input alone
    "rwkv4": Variant(RWKV4, {}, 4 * D * D + 3 * D + 2 * D, lambda _: (3 * D, 0), lambda _: (3 * D, 3 * D), shift=D),
    "rwkv4 with a convolution": Variant(
        RWKV4, {"conv": 4, "output_norm": "rms"}, 4 * D * D + 3 * D + 2 * D + 4 * D + D, lambda _: (3 * D, 3 * D), lambda _: (3 * D, 3 * D), shift=D
    ),
    "rwkv5": Variant(RWKV5, {}, EAGLE + 4 * D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV), shift=D),
    "rwkv5 with a convolution": Variant(RWKV5, {"conv": 4}, EAGLE + 4 * D + FILTER, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV), shift=D),
    # five streams with a mix each and a first one for all, their maps of rank 32 and the decay's of rank 64
    "rwkv6": Variant(RWKV6, {}, EAGLE + 6 * D + 2 * 5 * 32 * D + 2 * 64 * D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV), shift=D),
    # q, k, v and output; decay, rate, k_k, k_a and r_k; a group norm; maps of rank 32 for decay, rate and gate
    "rwkv7": Variant(RWKV7, {}, 4 * D * D + 5 * D + 2 * D + 6 * D + 2 * 3 * 32 * D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV), shift=D),
}

OTHERS = {
    "base conv": Variant(BaseConv, {}, D * D + D + (KERNEL + 1) * D, lambda _: (0, (KERNEL - 1) * D), None),
    "lstm": Variant(LSTM, {}, 4 * (2 * D * D + D) + D * D, lambda _: (2 * D, 0), lambda _: (2 * D, 3 * D)),
}

VARIANTS = {**SOFTMAX, **SUMS, **DECAYS, **DELTA_RULE, **SHIFTED, **REVISITED, **EXPONENTIAL_GATES, **OTHERS}
QUICK = {"attention", "attention with a window", "base conv", "gated deltanet", "linear attention", "mamba2", "rwkv7"}
"""In every check; the others with the slow tests."""

CASES = [
    pytest.param((name, form), id=f"{name}-{form}", marks=() if name in QUICK else pytest.mark.slow)
    for form in ("native", "controlled")
    for name, variant in VARIANTS.items()
    if form == "native" or variant.controlled_state
]
DTYPES = {torch.float64: 1e-9, torch.float32: 1e-4}

Build = Callable[..., Mixer]


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
            torch.manual_seed(0)
            return randomise(variant.cls(variant.parsed(form), LayerInfo(0, 2, D))).to(dtype)

    return make


@pytest.fixture
def tokens(generator: torch.Generator) -> Callable[..., Tensor]:
    def make(length: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(B, length, D, dtype=torch.float64, generator=generator).to(dtype)

    return make


def tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple | list):
        for part in state:
            yield from tensors(part)
    else:
        assert state is None


def streamed(mixer: Mixer, x: Tensor, *points: int) -> Tensor:
    """x in the parts between `points`, one after the other."""
    state, parts = mixer.init_state(x.shape[0], capacity=x.shape[1]), []
    for start, end in itertools.pairwise((0, *points, x.shape[1])):
        out = mixer(x[:, start:end], state)
        parts.append(out.y)
        state = out.state
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items(), ids=["float64", "float32"])
@pytest.mark.parametrize("length", [7, 70])
@torch.no_grad()
def test_stopping_anywhere_and_carrying_on_changes_nothing(
    build: Build, tokens: Callable[..., Tensor], relative_error: Error, dtype: torch.dtype, tolerance: float, length: int
) -> None:
    mixer, x = build(dtype), tokens(length, dtype)
    whole = mixer(x).y
    assert whole.dtype == dtype
    assert whole.abs().mean() > 1e-3
    assert relative_error(streamed(mixer, x), whole) < tolerance
    assert relative_error(streamed(mixer, x, *range(1, length)), whole) < tolerance
    pick = random.Random(length)
    several = [sorted(pick.sample(range(1, length), count)) for count in (2, 3, 5)]
    single = [[point] for point in (range(1, length) if length < 10 else (*pick.sample(range(1, length), 4), 63, 64, 65))]
    for points in several + single:
        assert relative_error(streamed(mixer, x, *points), whole) < tolerance, points


@pytest.mark.parametrize("length", [1, 5, 70])
@torch.no_grad()
def test_a_prompt_leaves_the_state_that_it_leaves_after_an_empty_one(build: Build, tokens: Callable[..., Tensor], relative_error: Error, length: int) -> None:
    mixer, x = build(), tokens(length + 3)
    y, state, _ = mixer.prefill(x[:, :length], capacity=length + 3)
    expected_y, expected_state, _ = mixer(x[:, :length], mixer.init_state(B, capacity=length + 3))
    assert relative_error(y, expected_y) < 1e-9
    rest, expected = (mixer(x[:, length:], each) for each in (state, expected_state))
    assert relative_error(rest.y, expected.y) < 1e-9
    assert [(part.shape, part.dtype) for part in tensors(rest.state)] == [(part.shape, part.dtype) for part in tensors(expected.state)]


@pytest.mark.parametrize("parts", [[1] * 6, [3, 1, 2]])
@torch.no_grad()
def test_tokens_are_decoded_as_they_are_read(build: Build, tokens: Callable[..., Tensor], relative_error: Error, parts: list[int]) -> None:
    mixer, x = build(), tokens(11 + sum(parts))
    _, state, _ = mixer.prefill(x[:, :11], capacity=x.shape[1])
    expected = mixer(x[:, 11:], tree_map(lambda part: part.clone() if isinstance(part, Tensor) else part, state))
    found = []
    for part in x[:, 11:].split(parts, dim=1):
        again = mixer.decode(part, state).y  # of the same state, as a benchmark asks
        y, state, _ = mixer.decode(part, state)
        assert torch.equal(y, again)
        found.append(y)
    assert relative_error(torch.cat(found, dim=1), expected.y) < 1e-9
    rest = tokens(1)
    full = mixer.init_state(B, capacity=1)
    assert relative_error(mixer.decode(rest, full).y, mixer(rest).y) < 1e-9


@pytest.mark.parametrize("state", ["none", "fresh"])
@torch.no_grad()
def test_no_output_depends_on_a_later_token(build: Build, tokens: Callable[..., Tensor], state: str) -> None:
    mixer, x, length = build(torch.float32), tokens(70, torch.float32), 70

    def run(inputs: Tensor) -> Tensor:
        return mixer(inputs, None if state == "none" else mixer.init_state(B, capacity=length)).y

    whole = run(x)
    for t in (1, 5, 35, 63, 64, 65, 69):
        changed = torch.cat([x[:, :t], 3 * tokens(length - t, torch.float32)], dim=1)
        y = run(changed)
        assert torch.equal(y[:, :t], whole[:, :t])
        assert (y[:, t] != whole[:, t]).any()


@torch.no_grad()
def test_every_output_depends_on_every_earlier_token_within_reach(variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor]) -> None:
    mixer, x, length = build(), tokens(7), 7
    whole = mixer(x).y
    for t in range(length):
        changed = x.clone()
        changed[:, t] = -2 * changed[:, t] + 1
        moved = (mixer(changed).y - whole).abs().amax(dim=(0, 2)) > 1e-12
        reach = WINDOW + 3 * (form == "controlled") if "window" in variant.settings else KERNEL if variant.cls is BaseConv else length
        assert moved.tolist() == [t <= s < t + reach for s in range(length)]


@torch.no_grad()
def test_rows_of_a_batch_do_not_touch(build: Build, tokens: Callable[..., Tensor], relative_error: Error) -> None:
    mixer, x = build(), tokens(70)
    whole = mixer(x).y
    changed = torch.stack([x[0], 5 * x[1] + 1])
    y = mixer(changed).y
    assert relative_error(y[0], whole[0]) < 1e-12
    assert relative_error(y[1], whole[1]) > 1e-3
    for row in range(B):
        assert relative_error(mixer(x[row : row + 1]).y[0], whole[row]) < 1e-12
        assert relative_error(streamed(mixer, x[row : row + 1], 9)[0], streamed(mixer, x, 9)[row]) < 1e-12


@pytest.mark.parametrize("length", [1, 4])
def test_states_are_never_written_in_place(build: Build, tokens: Callable[..., Tensor], length: int) -> None:
    mixer, x = build(), tokens(5 + length)
    first = mixer.init_state(B, capacity=5 + length)
    second = mixer(x[:, :5], first).state
    for state, part in ((first, x[:, :5]), (second, x[:, 5:])):
        before = [part.clone() for part in tensors(state)]
        after = list(tensors(mixer(part, state).state))
        assert len(after) == len(before)
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(tensors(state), before, strict=True))
        assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))


@torch.no_grad()
def test_a_state_can_be_carried_on_twice(build: Build, tokens: Callable[..., Tensor]) -> None:
    mixer, x = build(), tokens(9)
    state = mixer(x[:, :6], mixer.init_state(B, capacity=9)).state
    once, other = mixer(x[:, 6:], state).y, mixer(-x[:, 6:], state).y
    assert torch.equal(mixer(x[:, 6:], state).y, once)
    assert not torch.equal(other, once)


def held(state: Any, seq_len: int) -> dict[str, int]:
    """Floats per sequence of what a state holds, by what they are."""
    parts = {name: part for name, part in state._asdict().items() if isinstance(part, Tensor)}
    assert all(part.shape[0] == B for part in parts.values())
    kind = {"memory": "recurrent", "conv": "convolution", "keys": "cache", "values": "cache", "left": "cache", "shift": "shift", "maximum": "recurrent"}
    counted = dict.fromkeys(("recurrent", "cache", "convolution", "shift"), 0)
    for name, part in parts.items():
        if part.is_floating_point():
            counted[kind[name]] += part.numel() // B
    return counted


@pytest.mark.parametrize("seq_len", [1, 3, 4, 70])
def test_state_floats_are_what_the_state_holds(variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor], seq_len: int) -> None:
    mixer = build()
    size = mixer.state_floats(seq_len)
    memory, convolution = (variant.native_state if form == "native" else variant.controlled_state)(seq_len)
    shift = variant.shift if form == "native" else 0
    assert (size.recurrent + size.cache, size.convolution, size.shift) == (memory, convolution, shift)
    assert size.total == memory + convolution + shift
    assert (size.cache > 0) == issubclass(variant.cls, Attention)
    assert held(mixer.init_state(B, capacity=seq_len), seq_len) == size._asdict()
    assert held(mixer(tokens(seq_len), mixer.init_state(B, capacity=seq_len)).state, seq_len) == size._asdict()


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_as_many_as_published(name: str) -> None:
    variant = VARIANTS[name]
    mixer = variant.cls(variant.parsed("native"), LayerInfo(0, 2, D))
    assert sum(parameter.numel() for parameter in mixer.parameters()) == variant.parameters


@torch.no_grad()
def test_only_a_cache_without_window_grows(variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor]) -> None:
    mixer = build()
    grows = issubclass(variant.cls, Attention) and "window" not in variant.settings
    short, long = mixer.state_floats(5).total, mixer.state_floats(500).total
    assert (long > short) if grows else (long == short)
    if not grows:
        state = mixer.init_state(B, capacity=5)
        shapes = [part.shape for part in tensors(state)]
        for _ in range(4):
            state = mixer(tokens(9), state).state
            assert [part.shape for part in tensors(state)] == shapes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_state_keeps_its_shapes_and_dtypes(build: Build, tokens: Callable[..., Tensor], dtype: torch.dtype) -> None:
    mixer, x = build(dtype), tokens(5, dtype)
    state = mixer.init_state(B, capacity=5)
    kinds = [(part.shape, part.dtype) for part in tensors(state)]
    for part in x.split([1, 4], dim=1):
        y, state, _ = mixer(part, state)
        assert y.dtype == dtype
        assert [(part.shape, part.dtype) for part in tensors(state)] == kinds


@torch.no_grad()
def test_a_full_cache_says_so_and_what_needs_none_runs_on(variant: Variant, build: Build, tokens: Callable[..., Tensor], relative_error: Error) -> None:
    mixer, x = build(), tokens(5)
    full = mixer(x[:, :4], mixer.init_state(B, capacity=4))
    if issubclass(variant.cls, Attention) and "window" not in variant.settings:
        with pytest.raises(RuntimeError, match="holds 4 tokens"):
            mixer(x, mixer.init_state(B, capacity=4))
        with pytest.raises(RuntimeError, match="holds 4 tokens"):
            mixer(x[:, 4:], full.state)
    else:
        assert relative_error(mixer(x[:, 4:], full.state).y, mixer(x).y[:, 4:]) < 1e-9


@torch.no_grad()
def test_a_window_wider_than_the_cache_does_not_lose_keys_in_silence(randomise: Callable[[Mixer], Mixer], tokens: Callable[..., Tensor]) -> None:
    mixer, x = randomise(Attention(Attention.Settings(heads=HEADS, window=4), LayerInfo(0, 2, D))).double(), tokens(5)
    state = mixer(x[:, :2], mixer.init_state(B, capacity=2)).state
    with pytest.raises(RuntimeError, match="holds 2 tokens"):
        mixer(x[:, 2:3], state)


@pytest.mark.parametrize("length", [3, 65])
def test_every_parameter_and_the_input_learn(build: Build, tokens: Callable[..., Tensor], generator: torch.Generator, length: int) -> None:
    mixer, x = build(), tokens(length).requires_grad_()
    y = mixer(x).y
    (y * torch.randn(y.shape, dtype=y.dtype, generator=generator)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in mixer.named_parameters()} | {"x": x.grad}
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 1e-12, name


@torch.no_grad()
def test_no_unwritten_memory_is_read(build: Build, tokens: Callable[..., Tensor], relative_error: Error, poisoned_memory: None) -> None:
    mixer, x = build(), tokens(11)
    assert relative_error(streamed(mixer, x, 1, 2, 6), mixer(x).y) < 1e-9


@torch.no_grad()
def test_a_fresh_layer_is_silent_but_for_what_it_adds_by_definition(variant: Variant, form: str, tokens: Callable[..., Tensor]) -> None:
    mixer = variant.cls(variant.parsed(form), LayerInfo(0, 2, D))
    assert mixer(tokens(5, torch.float32)).y.any() == (variant.cls is BaseConv)  # which adds its own input


@torch.no_grad()
def test_what_is_handed_on_passes_through(build: Build, tokens: Callable[..., Tensor]) -> None:
    handed = object()
    given = build()(tokens(3), None, handed).handed
    assert (given.handed if isinstance(given, FirstValue) else given) is handed


def test_rules_name_parameters_of_the_layer(build: Build) -> None:
    mixer = build()
    assert mixer.parameter_rules().keys() <= dict(mixer.named_parameters()).keys()
