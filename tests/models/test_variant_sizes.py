"""Every variant: parameters and state as published, the state in shapes that stay."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.models.abc import BoundedMemory
from linbench.models.atlas import Atlas
from linbench.models.attention import Attention
from linbench.models.attention_mamba import AttentionMamba
from linbench.models.attention_mamba2 import AttentionMamba2
from linbench.models.base import LayerInfo, Mixer
from linbench.models.based import Based
from linbench.models.blocks.levels import LogLinear
from linbench.models.comba import Comba
from linbench.models.cope import CoPE
from linbench.models.delta_positions import DeltaPositions
from linbench.models.deltaformer import DeltaFormer
from linbench.models.deltanet import DeltaNet
from linbench.models.deltaproduct import DeltaProduct
from linbench.models.dfw import DFW
from linbench.models.fox import FoX
from linbench.models.gated_attention import GatedAttention
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.gated_deltanet2 import GatedDeltaNet2
from linbench.models.gated_deltaproduct import GatedDeltaProduct
from linbench.models.gated_kalmanet import GatedKalmaNet
from linbench.models.gau import GAU
from linbench.models.gla import GLA
from linbench.models.gru import GRU
from linbench.models.gsa import GSA
from linbench.models.h3 import H3
from linbench.models.hgrn2 import HGRN2
from linbench.models.hyena import Hyena
from linbench.models.kaczmarz import Kaczmarz
from linbench.models.kda import KDA
from linbench.models.lact import LaCT
from linbench.models.lightning import Lightning
from linbench.models.linear_attention import LinearAttention
from linbench.models.log_linear_gdn import LogLinearGDN
from linbench.models.log_linear_mamba2 import LogLinearMamba2
from linbench.models.longhorn import Longhorn
from linbench.models.lru import LRU
from linbench.models.lstm import LSTM
from linbench.models.mamba import Mamba
from linbench.models.mamba2 import Mamba2
from linbench.models.mamba3 import Mamba3
from linbench.models.mesa_layer import MesaLayer
from linbench.models.mesanet import MesaNet
from linbench.models.mingru import MinGRU
from linbench.models.minlstm import MinLSTM
from linbench.models.mla import MLA
from linbench.models.mlstm import MLSTM
from linbench.models.moba import MoBA
from linbench.models.mom import MoM
from linbench.models.momentum_deltanet import MomentumDeltaNet
from linbench.models.normalised_deltanet import NormalisedDeltaNet
from linbench.models.nsa import NSA
from linbench.models.omeganet import OmegaNet
from linbench.models.path import PaTH
from linbench.models.path_fox import PaTHFoX
from linbench.models.performer import Performer
from linbench.models.precond_gdn import PrecondGDN
from linbench.models.precond_kda import PrecondKDA
from linbench.models.raven import Raven
from linbench.models.rebased import ReBased
from linbench.models.retnet import RetNet
from linbench.models.rfa import RFA
from linbench.models.rg_lru import RGLRU
from linbench.models.rnn import RNN
from linbench.models.rosa import ROSA
from linbench.models.rwkv4 import RWKV4
from linbench.models.rwkv5 import RWKV5
from linbench.models.rwkv6 import RWKV6
from linbench.models.rwkv7 import RWKV7
from linbench.models.s4 import S4
from linbench.models.s4d import S4D
from linbench.models.s5 import S5
from linbench.models.stick_breaking import StickBreaking
from linbench.models.titans import Titans
from linbench.models.titans_mac import TitansMAC
from linbench.models.titans_mag import TitansMAG
from linbench.models.transnormer import TransNormer
from linbench.models.ttt_linear import TTTLinear
from linbench.models.ttt_mlp import TTTMLP
from tests.helpers.every_variant import (
    DEEP_MEMORY,
    FILTER,
    FORMS,
    GATE,
    GROWING,
    HEAD,
    HEADS,
    INNER_NORM,
    LINEAR_MEMORY,
    MATRIX,
    NORM,
    QKVO,
    VARIANTS,
    B,
    Build,
    D,
    Variant,
    tensors,
)


def held(mixer: Mixer, state: Any) -> dict[str, int]:
    """Floats per sequence of what a state holds, by what they are."""
    parts = {name: part for name, part in state._asdict().items() if isinstance(part, Tensor)}
    nested = [part for part in state if hasattr(part, "_asdict")]  # the state of a mixer beside this one
    assert all(part.shape[0] == B for part in parts.values())
    kind = {
        "memory": "recurrent",
        "levels": "recurrent",
        "maximum": "recurrent",
        "runs": "recurrent",
        "conv": "convolution",
        "taps": "convolution",
        "keys": "recurrent" if isinstance(mixer, PaTH) else "cache",  # which every token reflects
        "values": "cache",
        **dict.fromkeys("qkv", "cache"),
        **dict.fromkeys(("key", "value", "angle"), "recurrent"),
        "log_left": "cache",
        "directions": "convolution",
        "shift": "shift",
    }
    counted = dict.fromkeys(("recurrent", "cache", "convolution", "shift"), 0)
    for name, part in parts.items():
        if part.is_floating_point():
            counted[kind[name]] += part.numel() // B
    for own in (held(mixer, part) for part in nested):
        counted = {name: count + own[name] for name, count in counted.items()}
    return counted


@pytest.mark.parametrize("seq_len", [1, 3, 4, 70])
def test_state_floats_are_what_the_state_holds(
    variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor], seq_len: int
) -> None:
    mixer = build()
    size = mixer.state_floats(seq_len)
    memory, convolution = (variant.native_state if form == "native" else variant.controlled_state)(seq_len)
    shift = variant.shift if form == "native" else 0
    assert (size.recurrent + size.cache, size.convolution, size.shift) == (memory, convolution, shift)
    assert size.total == memory + convolution + shift
    assert (size.cache > 0) == (
        issubclass(variant.cls, GROWING | TitansMAC) and not issubclass(variant.cls, LogLinear)
    )
    assert held(mixer, mixer.init_state(B, capacity=seq_len)) == size._asdict()
    assert held(mixer, mixer(tokens(seq_len), mixer.init_state(B, capacity=seq_len)).state) == size._asdict()


SURROUNDINGS = QKVO + FILTER + NORM
"""Parameters of the controlled form, the same for all with heads; beside them stands what the recurrence
brings."""


def surroundings(settings: Any) -> int:
    """Parameters of the controlled form where heads may share keys and values."""
    shared = 1 - (settings.kv_heads or HEADS) / HEADS
    return SURROUNDINGS - round(shared * (2 * D * D + 4 * 2 * D))


AROUND_INPUT = 4 * D + D
"""Parameters of the controlled form without heads: a convolution on the input, a norm over all channels."""

DECAY = GATE + 2 * HEADS
"""A decay for each head, with its two numbers."""


def omega(s: Any) -> int:
    """Parameters of OmegaNet and Atlas: those of Titans, a gate more and the coefficients of features."""
    memory = s.inner_norm * INNER_NORM + 4 * (s.network == "mlp") * MATRIX
    return int(SURROUNDINGS + memory + (2 + s.momentum + s.decay) * (GATE + HEADS) + 2)


CONTROLLED: dict[type[Mixer], Callable[[Any], int]] = {
    Attention: lambda s: surroundings(s) + HEADS,  # a scale of the scores for each head
    # Mamba without its last map, and two norms; Mamba-2 with surroundings of its own
    AttentionMamba: lambda s: SURROUNDINGS + HEADS + D * D + 4 * D + (2 * D + D) + 3 * 16 * D + 2 * D,
    AttentionMamba2: lambda s: 2 * SURROUNDINGS + HEADS + DECAY,
    FoX: lambda s: surroundings(s) + HEADS + GATE + HEADS,
    # queries and what is kept, with filters; keys and values of the latent; both norms and the scale
    MLA: lambda s: (
        (D * HEADS * (HEAD + 4) if s.q_rank is None else 6 * D + 6 + 6 * HEADS * (HEAD + 2))
        + (D * (s.latent or D // 2) + D * (s.rope_dim or 4))
        + 4 * (HEADS * (HEAD + (s.rope_dim or 4)) + (s.latent or D // 2) + (s.rope_dim or 4))
        + ((s.latent or D // 2) * (1 + 2 * D) + D * D + NORM + HEADS)
    ),
    GAU: lambda s: AROUND_INPUT + s.key_dim * (D + 4) + 2 * D * D,
    GatedAttention: lambda s: SURROUNDINGS + HEADS + D * D,
    StickBreaking: lambda s: SURROUNDINGS + HEADS,
    MoBA: lambda s: surroundings(s) + HEADS,
    NSA: lambda s: surroundings(s) + HEADS + 3 * GATE,
    CoPE: lambda s: SURROUNDINGS + HEADS + s.n_pos * HEAD,
    PaTH: lambda s: SURROUNDINGS + HEADS + 2 * s.rank * D + 3 * D + GATE + HEADS,
    PaTHFoX: lambda s: SURROUNDINGS + HEADS + D * D + 4 * D + 2 * (GATE + HEADS),
    DeltaFormer: lambda s: SURROUNDINGS + HEADS + (s.strength == "sigmoid") * (GATE + HEADS),
    DeltaPositions: lambda s: (
        SURROUNDINGS + HEADS + 2 * s.rank * D + 3 * D + (s.strength == "learned") * (GATE + HEADS)
    ),
    LinearAttention: lambda s: (
        SURROUNDINGS + {"hedgehog": 2, "t2r": 2, "hadamard": 4}.get(s.feature_map, 0) * HEAD**2
    ),
    TransNormer: lambda s: SURROUNDINGS,
    Performer: lambda s: SURROUNDINGS,
    # queries and keys, with filters, as wide as their features need
    Based: lambda s: SURROUNDINGS + 2 * (D + 4) * (HEADS * s.feature_dim - D),
    ReBased: lambda s: SURROUNDINGS + 2 * (D + 4) * (HEADS * s.feature_dim - D) + 2 * s.feature_dim,
    # a scale of the scores for each head; a map to slots
    BoundedMemory: lambda s: SURROUNDINGS + HEADS + D * HEADS * (s.slots or HEAD),
    GSA: lambda s: SURROUNDINGS + HEADS + (D + (s.forget_bias is not None)) * HEADS * (s.slots or HEAD),
    Raven: lambda s: SURROUNDINGS + HEADS + D * HEADS * (s.slots or HEAD) + DECAY,
    RFA: lambda s: SURROUNDINGS + D + s.gated * (GATE + HEADS),
    MLSTM: lambda s: SURROUNDINGS + 2 * (GATE + HEADS),
    RetNet: lambda s: SURROUNDINGS,
    Lightning: lambda s: SURROUNDINGS,
    GLA: lambda s: SURROUNDINGS + 2 * 16 * D + D + (s.positions == "selective") * (D + 1) * D // 2,
    HGRN2: lambda s: SURROUNDINGS + D * (s.forget_bias is not None),
    Longhorn: lambda s: AROUND_INPUT + 2 * D * D + (2 * D + D) + 2 * 16 * D,  # as Mamba, without A
    Mamba: lambda s: AROUND_INPUT + 2 * D * D + (2 * D + D) + 3 * 16 * D,  # a step of rank 1; B, C and A
    Mamba2: lambda s: SURROUNDINGS + DECAY,
    # a step with its bias and A; a share; angles; with ranks more of q and k, and weights of each
    Mamba3: lambda s: (
        (SURROUNDINGS + (2 + s.trapezoid) * GATE + HEADS + (s.rotation == "token") * D * HEAD // 4)
        + (s.rank - 1) * (2 * D * (D + 4) + 2 * s.rank * D)
    ),
    DFW: lambda s: SURROUNDINGS + 2 * (D + 1) * D,
    DeltaNet: lambda s: SURROUNDINGS + GATE,
    NormalisedDeltaNet: lambda s: SURROUNDINGS + GATE,
    GatedDeltaNet: lambda s: SURROUNDINGS + GATE + DECAY,
    # keys, values and gates of each memory, and a router
    MoM: lambda s: (
        (SURROUNDINGS + GATE + DECAY + s.memories * D)
        + (not s.single_kv) * (s.all_memories - 1) * ((D + 4) * 2 * D + 2 * GATE)
    ),
    LogLinearGDN: lambda s: SURROUNDINGS + GATE + DECAY + s.levels * (GATE + HEADS),
    LogLinearMamba2: lambda s: SURROUNDINGS + DECAY + s.levels * (GATE + HEADS),
    Kaczmarz: lambda s: SURROUNDINGS + GATE + DECAY,
    MomentumDeltaNet: lambda s: SURROUNDINGS + 2 * GATE + 2 * DECAY + 2 * HEADS,
    GatedKalmaNet: lambda s: SURROUNDINGS + DECAY + 2 * (GATE + HEADS),
    Comba: lambda s: SURROUNDINGS + GATE + DECAY + 2 * HEADS,
    # a key, a value and a beta for each step, with filters
    DeltaProduct: lambda s: SURROUNDINGS + (s.steps - 1) * (D + 4) * 2 * D + s.steps * GATE,
    GatedDeltaProduct: lambda s: SURROUNDINGS + (s.steps - 1) * (D + 4) * 2 * D + s.steps * GATE + DECAY,
    KDA: lambda s: SURROUNDINGS + GATE + 2 * D * HEAD + HEADS + D,
    GatedDeltaNet2: lambda s: SURROUNDINGS + 2 * D * D + 2 * D * HEAD + HEADS + D,
    PrecondGDN: lambda s: SURROUNDINGS + 2 * (GATE + DECAY) + HEADS,
    PrecondKDA: lambda s: SURROUNDINGS + (GATE + 2 * D * HEAD + HEADS + D) + (GATE + DECAY) + HEADS,
    MesaLayer: lambda s: SURROUNDINGS + HEADS,
    MesaNet: lambda s: (
        SURROUNDINGS + ((s.decay == "sigmoid") + (s.strength == "sigmoid")) * (GATE + HEADS) + D
    ),
    RWKV4: lambda s: AROUND_INPUT + 3 * D * D + 2 * D,  # no receptance
    RWKV5: lambda s: SURROUNDINGS + 2 * D,
    RWKV6: lambda s: SURROUNDINGS + 2 * D + 2 * 64 * D,
    RWKV7: lambda s: SURROUNDINGS + 4 * D + 2 * (2 * 32 * D),
    # taps; and modes of heads, as S4D's
    H3: lambda s: AROUND_INPUT + 4 * D * (D + 1) + s.states * D + (1 + 2 * s.states) * D // s.head_dim,
    Hyena: lambda s: (
        (4 * D * (D + 1) + 4 * 3 * D + D)
        + ((1 + 2 * s.bands + 1) + s.inner * (s.hidden + 1) + D + 1) * s.hidden
    ),
    # a step; of each mode a decay, a frequency and two numbers of C
    S4D: lambda s: AROUND_INPUT + D * D + D + 2 * s.states * D,
    S4: lambda s: AROUND_INPUT + D * D + D + 4 * s.states * D,
    # of each mode three numbers and complex maps
    LRU: lambda s: AROUND_INPUT + D * D + (s.states or 2 * D) // 2 * (3 + 4 * D),
    S5: lambda s: AROUND_INPUT + D * D + (s.states or D) // 2 * (3 + 4 * D),
    RGLRU: lambda s: AROUND_INPUT + 2 * D * D + 2 * (D * D // s.blocks + D) + D,
    MinGRU: lambda s: AROUND_INPUT + 2 * D * (D + 1) + D * D,
    MinLSTM: lambda s: AROUND_INPUT + 3 * D * (D + 1) + D * D,
    LSTM: lambda s: AROUND_INPUT + 4 * (2 * D * D + D) + D * D,
    GRU: lambda s: AROUND_INPUT + 3 * (2 * D * D + D) + D * D,
    RNN: lambda s: AROUND_INPUT + 2 * D * D + D + D * D,
    ROSA: lambda s: AROUND_INPUT + 4 * D * (D + 1) + D,
    TTTLinear: lambda s: (
        SURROUNDINGS
        + (GATE + HEADS + s.mini_batch)
        + s.inner_norm * INNER_NORM
        + (s.initial == "learned") * LINEAR_MEMORY
    ),
    Titans: lambda s: (
        (SURROUNDINGS + s.inner_norm * INNER_NORM + 4 * (s.network == "mlp") * MATRIX)
        + (1 + s.momentum + s.decay) * (GATE + HEADS)
    ),
    TitansMAG: lambda s: (
        (SURROUNDINGS + 2 * NORM + HEADS + s.inner_norm * INNER_NORM + 4 * (s.network == "mlp") * MATRIX)
        + (1 + s.momentum + s.decay) * (GATE + HEADS)
    ),
    TitansMAC: lambda s: (
        (SURROUNDINGS + 2 * NORM + HEADS + s.inner_norm * INNER_NORM + 4 * (s.network == "mlp") * MATRIX)
        + ((1 + s.momentum + s.decay) * (GATE + HEADS) + 5 * D * D + s.persistent * 2 * D)
    ),
    OmegaNet: lambda s: omega(s),
    Atlas: lambda s: omega(s),
    LaCT: lambda s: (
        (SURROUNDINGS + HEADS + 4 * D)
        + (3 * MATRIX + NORM if s.fast_heads is None else 3 * D * D + D)
        + (3 + s.momentum + s.fast_gate) * (D + 1) * (s.fast_heads or HEADS)
    ),
    TTTMLP: lambda s: SURROUNDINGS + GATE + HEADS + s.mini_batch + INNER_NORM + DEEP_MEMORY,
}
"""The number of parameters of each variant, by its settings."""

LATER = {
    (HGRN2, "native"): D,  # the bound of each channel of the keys
    (HGRN2, "controlled"): D,
    # how much of the first layer's values comes in: a number for each channel, and a map of rank 32
    (RWKV7, "native"): D + 2 * 32 * D,
}
"""Parameters that a later layer has more than the first."""


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_parameters_are_as_many_as_declared(name: str, form: str, index: int) -> None:
    variant = VARIANTS[name]
    settings = variant.parsed(form)
    expected = variant.parameters if form == "native" else CONTROLLED[variant.cls](settings)
    mixer = variant.cls(settings, LayerInfo(index, 3, D))
    assert sum(parameter.numel() for parameter in mixer.parameters()) == expected + (
        LATER.get((variant.cls, form), 0) if index else 0
    )


@torch.no_grad()
def test_only_a_cache_without_window_and_a_memory_of_levels_grow(
    variant: Variant, form: str, build: Build, tokens: Callable[..., Tensor]
) -> None:
    mixer = build()
    grows = issubclass(variant.cls, GROWING) and "window" not in variant.settings
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
def test_a_state_keeps_its_shapes_and_dtypes(
    build: Build, tokens: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    mixer, x = build(dtype), tokens(5, dtype)
    state = mixer.init_state(B, capacity=5)
    kinds = [(part.shape, part.dtype) for part in tensors(state)]
    for part in x.split([1, 4], dim=1):
        y, state, _ = mixer(part, state)
        assert y.dtype == dtype
        assert [(part.shape, part.dtype) for part in tensors(state)] == kinds
