"""Every variant, with its parameters and its state as published."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.models.abc import BoundedMemory
from linbench.models.atlas import Atlas
from linbench.models.attention import Attention
from linbench.models.attention_mamba import AttentionMamba
from linbench.models.attention_mamba2 import AttentionMamba2
from linbench.models.base import Mixer
from linbench.models.base_conv import BaseConv
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

B, D, HEADS = 2, 16, 2


class Variant(NamedTuple):
    """A mixer, the settings that make it this variant, how many parameters it has as published, and its state
    in either form: (memory, convolution) as a function of length, no controlled form where that is None."""

    cls: type[Mixer]
    settings: dict[str, Any]
    parameters: int
    native_state: Callable[[int], tuple[int, int]]
    controlled_state: Callable[[int], tuple[int, int]] | None
    shift: int = 0
    """Tokens of the shift as published; the controlled form has none."""

    def parsed(self, form: str) -> Any:
        around = {"heads": HEADS} if "heads" in self.cls.Settings.model_fields else {}
        return self.cls.Settings.parse(
            {**around, **((self.cls.controlled or {}) if form == "controlled" else {}), **self.settings},
            where="model",
        )


CONV = 3 * 3 * D  # three inputs of q, k and v
CACHE, WINDOW, KERNEL = 2 * D, 3, 3
HEAD = D // HEADS
MATRIX = HEADS * HEAD**2
# projections; a convolution on q, k and v; an output norm; a gate for each head
QKVO, FILTER, NORM, GATE = 4 * D * D, 4 * 3 * D, HEAD, D * HEADS

SOFTMAX = {
    "attention": Variant(Attention, {}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)),
    "attention without positions": Variant(
        Attention, {"positions": "none"}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)
    ),
    "attention with alibi": Variant(
        Attention, {"positions": "alibi"}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)
    ),
    "attention with a window": Variant(
        Attention,
        {"window": WINDOW},
        QKVO,
        lambda n: (min(n, WINDOW) * CACHE, 0),
        lambda n: (min(n, WINDOW) * CACHE, CONV),
    ),
    # one head of keys and values for both of queries
    "attention with one key": Variant(
        Attention,
        {"kv_heads": 1, "rope_fraction": 0.5},
        3 * D * D,
        lambda n: (n * CACHE // 2, 0),
        lambda n: (n * CACHE // 2, 3 * 2 * D),
    ),
}

REVISITED = {
    # Mamba as wide as the model, without its last map, and two norms
    "attention beside mamba": Variant(
        AttentionMamba,
        {},
        QKVO + 2 * D * D + 5 * D + 3 * D + 3 * 16 * D + D + 2 * D,
        lambda n: (n * CACHE + 16 * D, 3 * D),
        lambda n: (n * CACHE + 16 * D, CONV + 3 * D),
    ),
    # attention and Mamba-2, each as it is alone
    "attention beside mamba2": Variant(
        AttentionMamba2,
        {},
        QKVO + 6 * D * D + 2 * HEAD * D + 5 * (2 * D + 2 * HEAD) + 2 * D + GATE + 3 * HEADS,
        lambda n: (n * CACHE + 2 * MATRIX, 3 * (2 * D + 2 * HEAD)),
        lambda n: (n * CACHE + MATRIX, 2 * CONV),
    ),
    "fox": Variant(
        FoX,
        {},
        QKVO + GATE + HEADS,
        lambda n: (n * (CACHE + HEADS), 0),
        lambda n: (n * (CACHE + HEADS), CONV),
    ),
    "fox with a window and positions": Variant(
        FoX,
        {"window": WINDOW, "positions": "rope"},
        QKVO + GATE + HEADS,
        lambda n: (min(n, WINDOW) * (CACHE + HEADS), 0),
        lambda n: (min(n, WINDOW) * (CACHE + HEADS), CONV),
    ),
    "fox with alibi": Variant(
        FoX,
        {"positions": "alibi"},
        QKVO + GATE + HEADS,
        lambda n: (n * (CACHE + HEADS), 0),
        lambda n: (n * (CACHE + HEADS), CONV),
    ),
    "stick breaking": Variant(StickBreaking, {}, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)),
    # w of rank 5 or full, its filter of 3, and a beta with its bias for each head
    "path": Variant(
        PaTH,
        {"rank": 5},
        QKVO + 2 * 5 * D + 3 * D + GATE + HEADS,
        lambda n: (n * CACHE, 2 * D),
        lambda n: (n * CACHE, CONV + 2 * D),
    ),
    "path fox": Variant(
        PaTHFoX,
        {"rank": None, "direction_conv": 4},
        QKVO + D * D + 4 * D + 2 * (GATE + HEADS),
        lambda n: (n * (CACHE + HEADS), 3 * D),
        lambda n: (n * (CACHE + HEADS), CONV + 3 * D),
    ),
    **{
        name: Variant(
            DeltaFormer,
            settings,
            QKVO + gate,
            lambda n: (n * CACHE, 0),
            lambda n: (n * CACHE, CONV),
        )
        for name, settings, gate in (
            ("deltaformer", {}, GATE + HEADS),
            ("deltaformer by queries", {"sim": "qk", "strength": "one"}, 0),
        )
    },
    # w, and a matrix of keys by keys
    **{
        name: Variant(
            DeltaPositions,
            {"rank": 5, **settings},
            QKVO + 2 * 5 * D + 3 * D + gate,
            lambda n: (n * CACHE + MATRIX, 2 * D),
            lambda n: (n * CACHE + MATRIX, CONV + 2 * D),
        )
        for name, settings, gate in (
            ("delta positions", {}, 0),
            ("delta positions of learned strength", {"strength": "learned"}, GATE + HEADS),
        )
    },
    # a number of positions for the channels of one head
    "cope": Variant(
        CoPE, {"n_pos": 7}, QKVO + 7 * HEAD, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)
    ),
    "fox with one key": Variant(
        FoX,
        {"kv_heads": 1},
        3 * D * D + GATE + HEADS,
        lambda n: (n * (CACHE // 2 + HEADS), 0),
        lambda n: (n * (CACHE // 2 + HEADS), 3 * 2 * D),
    ),
    # a latent of D / 2 with its norm, HEAD / 2 = 4 dimensions that heads share
    "mla": Variant(
        MLA,
        {},
        D * HEADS * (HEAD + 4) + D * (D // 2 + 4) + D // 2 + D // 2 * 2 * D + D * D,
        lambda n: (n * (D // 2 + 4), 0),
        lambda n: (n * (D // 2 + 4), 3 * (HEADS * (HEAD + 4) + D // 2 + 4)),
    ),
    "mla with a window, of low rank": Variant(
        MLA,
        {"window": WINDOW, "latent": 3, "rope_dim": 2, "q_rank": 6},
        6 * D + 6 + 6 * HEADS * (HEAD + 2) + D * (3 + 2) + 3 + 3 * 2 * D + D * D,
        lambda n: (min(n, WINDOW) * (3 + 2), 0),
        lambda n: (min(n, WINDOW) * (3 + 2), 3 * (HEADS * (HEAD + 2) + 3 + 2)),
    ),
    # with small blocks a sequence of 7 tokens is read in full, and one of 70 is not
    **{
        name: Variant(MoBA, settings, QKVO, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV))
        for name, settings in (("moba", {}), ("moba of small blocks", {"block": 5, "blocks": 2}))
    },
    # a gate for each branch
    **{
        name: Variant(NSA, settings, QKVO + 3 * GATE, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV))
        for name, settings in (("nsa", {}), ("nsa of small blocks", {"block": 3, "blocks": 3, "near": 4}))
    },
    # z of 128, which makes q and k; values, gate and output of 2 D each
    "gau": Variant(
        GAU,
        {},
        128 * D + 4 * 128 + 6 * D * D,
        lambda n: (n * (128 + 2 * D), 0),
        lambda n: (n * (128 + D), 3 * D),
    ),
    "gau with a window": Variant(
        GAU,
        {"window": WINDOW, "key_dim": 6, "weights": "softmax"},  # a few keys may all have a weight of zero
        6 * D + 4 * 6 + 6 * D * D,
        lambda n: (min(n, WINDOW) * (6 + 2 * D), 0),
        lambda n: (min(n, WINDOW) * (6 + D), 3 * D),
    ),
    # a gate, and a norm of q and of k
    "gated attention": Variant(
        GatedAttention, {}, 5 * D * D + 2 * HEAD, lambda n: (n * CACHE, 0), lambda n: (n * CACHE, CONV)
    ),
}

SUMS = {
    "linear attention": Variant(
        LinearAttention, {}, QKVO, lambda _: (MATRIX + D, 0), lambda _: (MATRIX + D, CONV)
    ),
    "linear attention unnormalised": Variant(
        LinearAttention, {"normalise": False}, QKVO + NORM, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)
    ),
    "linear attention with positions": Variant(
        LinearAttention,
        {"normalise": False, "positions": "rope"},
        QKVO + NORM,
        lambda _: (MATRIX, 0),
        lambda _: (MATRIX, CONV),
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
    # how many times as many features as dimensions, and how many learned matrices for queries and as many for
    # keys
    for name, norm, times, learned in (
        ("dpfp-3", "l1", 6, 0),
        ("hedgehog", "l1", 2, 1),
        ("t2r", "none", 1, 1),
    )
}

SUMS["linear attention with hadamard"] = Variant(
    LinearAttention,
    {"feature_map": "hadamard", "normalise": False},
    QKVO + 4 * HEAD**2 + NORM,
    lambda _: (MATRIX, 0),
    lambda _: (MATRIX, CONV),
)

# with a gate, and a norm over all heads
SUMS["transnormer"] = Variant(TransNormer, {}, 5 * D * D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV))

SUMS |= {
    # 16 = 8 log 8, rounded down
    "performer": Variant(
        Performer, {}, QKVO, lambda _: (HEADS * 16 * (HEAD + 1), 0), lambda _: (HEADS * 16 * (HEAD + 1), CONV)
    ),
    "performer with relu": Variant(
        Performer,
        {"feature_map": "favor-relu", "features": 11},
        QKVO,
        lambda _: (HEADS * 11 * (HEAD + 1), 0),
        lambda _: (HEADS * 11 * (HEAD + 1), CONV),
    ),
}

SUMS |= {
    name: Variant(
        cls,
        {"feature_dim": dim},
        2 * D * HEADS * dim + 2 * D * D + more,
        lambda _, rows=rows: (HEADS * rows * (HEAD + 1), 0),
        lambda _, rows=rows, dim=dim: (HEADS * rows * (HEAD + 1), 3 * (2 * HEADS * dim + D)),
    )
    # rows of features; a scale and a shift
    for name, cls, dim, rows, more in (
        ("based", Based, 5, 21, 0),
        ("rebased", ReBased, 4, 10, 2 * 4),
        ("rebased with as many numbers as published", ReBased, 16, 136, 2 * 16),
    )
}

# keys of half the width; a swish gate, a norm, and what controls the slots
SUMS["abc"] = Variant(
    BoundedMemory,
    {},
    4 * D * D + NORM + D * D // 2,
    lambda _: (HEADS * HEAD // 2 * (HEAD // 2 + HEAD + 1), 0),
    lambda _: (HEADS * HEAD * (2 * HEAD + 1), CONV),
)
SUMS["abc of three slots"] = Variant(
    BoundedMemory,
    {"slots": 3, "positions": "none"},
    4 * D * D + NORM + D * HEADS * 3,
    lambda _: (HEADS * 3 * (HEAD // 2 + HEAD + 1), 0),
    lambda _: (HEADS * 3 * (2 * HEAD + 1), CONV),
)

SUMS |= {
    name: Variant(
        RFA, settings, QKVO + D + more, lambda _, size=size: (size, 0), lambda _, size=size: (size, CONV)
    )
    # sigma has D numbers; the gate a weight and a bias
    for name, settings, more, size in (
        ("rfa", {}, 0, HEADS * 128 * (HEAD + 1)),
        ("rfa with a gate", {"gated": True}, GATE + HEADS, HEADS * 128 * (HEAD + 1)),
        (
            "rfa unnormalised",
            {"gated": True, "normalise": False, "directions": 10, "orthogonal": True},
            GATE + HEADS + NORM,
            HEADS * 20 * HEAD,
        ),
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
    "retnet of even decays": Variant(
        RetNet,
        {"decay_law": "linspace"},
        8 * D * D + 2 * HEAD,
        lambda _: (2 * MATRIX, 0),
        lambda _: (MATRIX, CONV),
    ),
    "lightning": Variant(Lightning, {}, 5 * D * D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)),
    # the gate goes from D to 16 and from there, with a bias, to keys of D / 2 in all
    "gla": Variant(
        GLA,
        {},
        4 * D * D + NORM + 16 * D + 16 * D // 2 + D // 2,
        lambda _: (MATRIX // 2, 0),
        lambda _: (MATRIX, CONV),
    ),
    # an angle and its bias for each pair of channels of q and k, and the sum of angles
    "gla with angles that tokens choose": Variant(
        GLA,
        {"positions": "selective"},
        4 * D * D + NORM + 16 * D + 16 * D // 2 + D // 2 + (D + 1) * D // 4,
        lambda _: (MATRIX // 2 + D // 4, 0),
        lambda _: (MATRIX + D // 2, CONV),
    ),
    "hgrn2": Variant(HGRN2, {}, 4 * D * D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)),
    # with a bias for each decay
    "hgrn2 that starts open": Variant(
        HGRN2, {"forget_bias": 8}, 4 * D * D + D + D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV)
    ),
    # x, z and o of 2 D each, B and C of HEAD for all heads together; the convolution with its biases; a norm
    # of 2 D; d with its two numbers a head; D
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
    # x, z and o of 2 D each, B and C of HEAD for all heads together, with norms and a bias for each head;
    # a step with its bias, A and a share; angles of HEAD / 4 pairs; D. Beside the memory it keeps the last
    # token's key and x, and the angles
    "mamba3": Variant(
        Mamba3,
        {},
        6 * D * D + 2 * HEAD * (D + 1) + 2 * D + 3 * GATE + 2 * HEADS + D * HEAD // 4,
        lambda _: (2 * MATRIX + D + 2 * D + D // 4, 0),
        lambda _: (MATRIX + 2 * D + D // 4, CONV),
    ),
    # two B and C for each head, and for each rank weights of inputs, gates and outputs
    "mamba3 of two ranks": Variant(
        Mamba3,
        {"rank": 2, "groups": 2},
        6 * D * D + 4 * D * D + 2 * HEAD + 4 * D + 3 * GATE + 2 * HEADS + D * HEAD // 4 + 3 * 2 * 2 * D,
        lambda _: (2 * MATRIX + 2 * D + 2 * D + D // 4, 0),
        lambda _: (MATRIX + 2 * D + D + D // 4, CONV + 3 * 2 * D),
    ),
    "mamba3 without a trapezoid, with rotary positions": Variant(
        Mamba3,
        {"trapezoid": False, "rotation": "fixed", "rope_fraction": 1.0},
        6 * D * D + 2 * HEAD * (D + 1) + 2 * D + 2 * GATE + 2 * HEADS,
        lambda _: (2 * MATRIX + D // 2, 0),
        lambda _: (MATRIX + D // 2, CONV),
    ),
    # x, z and o of 2 D each; the convolution with its biases; a step of rank 1 with its bias; B, C and A of
    # 16; D
    **{
        name: Variant(
            Mamba,
            settings,
            6 * D * D + 5 * 2 * D + (2 * 2 * D + 2 * D) + 3 * 16 * 2 * D + 2 * D,
            lambda _: (16 * 2 * D, 3 * 2 * D),
            lambda _: (16 * D, 3 * D),
        )
        for name, settings in (("mamba", {}), ("mamba with neg_eigval", {"neg_eigval": True}))
    },
    # a step, D and 32 modes, with a decay, a frequency and a C of two numbers each; a map to 2 D with its
    # bias
    "s4d": Variant(
        S4D, {}, 2 * D + 4 * 32 * D + 2 * D * (D + 1), lambda _: (64 * D, 0), lambda _: (64 * D, 3 * D)
    ),
    "s4d of four states": Variant(
        S4D,
        {"states": 4, "modes": "inv"},
        2 * D + 4 * 2 * D + 2 * D * (D + 1),
        lambda _: (4 * D, 0),
        lambda _: (4 * D, 3 * D),
    ),
    # as S4D, and two complex numbers more for each mode
    "s4": Variant(
        S4, {}, 2 * D + 8 * 32 * D + 2 * D * (D + 1), lambda _: (64 * D, 0), lambda _: (64 * D, 3 * D)
    ),
    "s4 of four states": Variant(
        S4,
        {"states": 4},
        2 * D + 8 * 2 * D + 2 * D * (D + 1),
        lambda _: (4 * D, 0),
        lambda _: (4 * D, 3 * D),
    ),
    # three real numbers for each mode, its maps, which are complex; D, and a map to 2 D with its bias
    "lru": Variant(
        LRU, {}, 3 * D + 4 * D * D + D + 2 * D * (D + 1), lambda _: (2 * D, 0), lambda _: (2 * D, 3 * D)
    ),
    "lru of long memories": Variant(
        LRU,
        {"states": 6, "r_min": 0.9, "r_max": 0.999, "max_phase": 0.3},
        3 * 3 + 4 * 3 * D + D + 2 * D * (D + 1),
        lambda _: (6, 0),
        lambda _: (6, 3 * D),
    ),
    "s5": Variant(
        S5, {}, 3 * D // 2 + 2 * D * D + D + 2 * D * (D + 1), lambda _: (D, 0), lambda _: (D, 3 * D)
    ),
    "s5 of two blocks": Variant(
        S5,
        {"states": 12, "blocks": 2},
        3 * 6 + 4 * 6 * D + D + 2 * D * (D + 1),
        lambda _: (12, 0),
        lambda _: (12, 3 * D),
    ),
    # x, gate and output; the convolution with its biases; two gates of half a matrix with their biases; L
    "rg lru": Variant(
        RGLRU,
        {},
        3 * D * D + 5 * D + 2 * (D * D // 2 + D) + D,
        lambda _: (D, 3 * D),
        lambda _: (D, 3 * D),
    ),
    **{
        name: Variant(cls, settings, maps * D * (D + 1) + D * D, lambda _: (D, 0), lambda _: (D, 3 * D))
        for name, cls, settings, maps in (
            ("mingru", MinGRU, {}, 2),
            ("mingru of positive candidates", MinGRU, {"candidate": "positive"}, 2),
            ("minlstm", MinLSTM, {}, 3),
        )
    },
    # q, k, v and output with biases; taps and modes as many as states; three skips of D
    "h3": Variant(
        H3,
        {},
        4 * D * (D + 1) + 64 * D + D + 4 * 32 * D + 2 * D,
        lambda _: (64 * D, 63 * D),
        lambda _: (64 * D, 63 * D + 3 * D),
    ),
    "h3 with heads": Variant(
        H3,
        {"states": 6, "head_dim": 4},
        4 * D * (D + 1) + 6 * D + D + (1 + 4 * 3 + 1) * D // 4,
        lambda _: (6 * 4 * D, 5 * D),
        lambda _: (6 * 4 * D, 5 * D + 3 * D),
    ),
    # a norm over all heads, and a gate for each slot
    "gsa": Variant(GSA, {}, QKVO + D + D * D, lambda _: (2 * MATRIX, 0), lambda _: (2 * MATRIX, CONV)),
    "gsa of three open slots": Variant(
        GSA,
        {"slots": 3, "forget_bias": 4},
        QKVO + D + (D + 1) * HEADS * 3,
        lambda _: (3 * 2 * D, 0),
        lambda _: (3 * 2 * D, CONV),
    ),
    # norms of q and k, and of all heads; a map to slots, and a decay with its two numbers a head
    "raven": Variant(
        Raven,
        {},
        QKVO + 2 * HEAD + D + D * D + GATE + 2 * HEADS,
        lambda _: (2 * MATRIX, 0),
        lambda _: (2 * MATRIX, CONV),
    ),
    "raven of three slots": Variant(
        Raven,
        {"slots": 3, "active": 2},
        QKVO + 2 * HEAD + D + D * HEADS * 3 + GATE + 2 * HEADS,
        lambda _: (3 * 2 * D, 0),
        lambda _: (3 * 2 * D, CONV),
    ),
    # both gates, values and output with biases; the convolution with its biases; a network from 3 features
    # over three layers of sines, with their factors, to taps; D
    "hyena": Variant(
        Hyena,
        {},
        4 * D * (D + 1) + 4 * 3 * D + (3 + 2 * 64 + 3) * 64 + 64 * D + 64 + D,
        lambda n: (n * D, 2 * 3 * D),
        lambda n: (n * D, 3 * 3 * D),
    ),
    "hyena with a network of its own": Variant(
        Hyena,
        {"length": 30, "bands": 3, "hidden": 6, "inner": 0, "frequency": 3.0},
        4 * D * (D + 1) + 4 * 3 * D + (7 + 1) * 6 + 6 * D + 6 + D,
        lambda n: (n * D, 2 * 3 * D),
        lambda n: (n * D, 3 * 3 * D),
    ),
    # q, k, v and o, and a gate with its bias for each channel of keys of D / 2 and of values
    "dfw": Variant(
        DFW,
        {},
        3 * D * D + NORM + (D + 1) * (D // 2 + D),
        lambda _: (MATRIX // 2, 0),
        lambda _: (MATRIX, CONV),
    ),
}

DELTA_RULE = {
    "deltanet": Variant(
        DeltaNet, {}, QKVO + FILTER + NORM + GATE, lambda _: (MATRIX, CONV), lambda _: (MATRIX, CONV)
    ),
    "deltanet with another activation": Variant(
        DeltaNet,
        {"qk_activation": "none", "feature_map": "relu"},
        QKVO + FILTER + NORM + GATE,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
    ),
    "deltanet with neg_eigval": Variant(
        DeltaNet,
        {"neg_eigval": True},
        QKVO + FILTER + NORM + GATE,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
    ),
    "normalised deltanet": Variant(
        NormalisedDeltaNet,
        {},
        QKVO + FILTER + NORM + GATE,
        lambda _: (MATRIX + D, CONV),
        lambda _: (MATRIX + D, CONV),
    ),
    # keys of 0.75 D in all, values of 1.5 D; q, k, v, o and the output gate are 6 D^2 together
    "gated deltanet": Variant(
        GatedDeltaNet,
        {},
        6 * D * D + 4 * 3 * D + 12 + 2 * GATE + 2 * HEADS,
        lambda _: (HEADS * 6 * 12, 3 * HEADS * (6 + 6 + 12)),
        lambda _: (MATRIX, CONV),
    ),
    # keys, values, filters, betas and decays three times, and a router
    "mom of three": Variant(
        MoM,
        {"memories": 3},
        (12 + 3 * 12 + 3 * 24 + 24 + 24 + 3) * D + 4 * (12 + 3 * 12 + 3 * 24) + 12 + 6 * GATE + 2 * HEADS,
        lambda _: (3 * HEADS * 6 * 12, 3 * (12 + 3 * 12 + 3 * 24)),
        lambda _: (3 * MATRIX, 3 * 7 * D),
    ),
    "mom of three and one, with the same keys": Variant(
        MoM,
        {"memories": 3, "shared_memory": True, "single_kv": True},
        6 * D * D + 4 * 3 * D + 12 + 2 * GATE + 2 * HEADS + 3 * D,
        lambda _: (4 * HEADS * 6 * 12, 3 * HEADS * (6 + 6 + 12)),
        lambda _: (4 * MATRIX, CONV),
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
    "kda": Variant(
        KDA,
        {},
        QKVO + FILTER + NORM + GATE + 2 * (2 * D * HEAD) + HEADS + D,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
    ),
    "kda with a safe decay": Variant(
        KDA,
        {"safe_decay": True},
        QKVO + FILTER + NORM + GATE + 2 * (2 * D * HEAD) + HEADS + D,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
    ),
    "kda with signed decays": Variant(
        KDA,
        {"signed_decay": "spread", "neg_eigval": True},
        QKVO + FILTER + NORM + GATE + 2 * (2 * D * HEAD) + HEADS + D,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
    ),
    # as KDA's, with two gates for each channel in the place of beta
    "gated deltanet-2": Variant(
        GatedDeltaNet2,
        {},
        QKVO + FILTER + NORM + 2 * D * D + 2 * (2 * D * HEAD) + HEADS + D,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
    ),
}

# the host's, and for each level of a head a map and its scale; a memory for each level but the first
LOG_LINEAR = {
    f"log linear {host} of {levels} levels": Variant(
        cls,
        {"levels": levels},
        of_host.parameters + levels * (GATE + HEADS),
        lambda n, of_host=of_host: (
            max(1, (n - 1).bit_length()) * of_host.native_state(n)[0],
            of_host.native_state(n)[1],
        ),
        lambda n: (max(1, (n - 1).bit_length()) * MATRIX, CONV),
    )
    for host, cls, levels, of_host in (
        ("gated deltanet", LogLinearGDN, 15, DELTA_RULE["gated deltanet"]),
        ("gated deltanet", LogLinearGDN, 3, DELTA_RULE["gated deltanet"]),
        ("mamba2", LogLinearMamba2, 8, DECAYS["mamba2"]),
    )
}

# q, k, v, output and gate; decay and bonus; a group norm
EAGLE = 5 * D * D + 2 * D + 2 * D

SHIFTED = {
    # receptance, key, value and output; three streams; decay and bonus; in the controlled form the
    # convolution is on the layer's input alone
    "rwkv4": Variant(
        RWKV4, {}, 4 * D * D + 3 * D + 2 * D, lambda _: (3 * D, 0), lambda _: (3 * D, 3 * D), shift=D
    ),
    "rwkv4 with a convolution": Variant(
        RWKV4,
        {"conv": 4, "output_norm": "rms"},
        4 * D * D + 3 * D + 2 * D + 4 * D + D,
        lambda _: (3 * D, 3 * D),
        lambda _: (3 * D, 3 * D),
        shift=D,
    ),
    "rwkv5": Variant(RWKV5, {}, EAGLE + 4 * D, lambda _: (MATRIX, 0), lambda _: (MATRIX, CONV), shift=D),
    "rwkv5 with a convolution": Variant(
        RWKV5,
        {"conv": 4},
        EAGLE + 4 * D + FILTER,
        lambda _: (MATRIX, CONV),
        lambda _: (MATRIX, CONV),
        shift=D,
    ),
    # five streams with a mix each and a first one for all, their maps of rank 32 and the decay's of rank 64
    "rwkv6": Variant(
        RWKV6,
        {},
        EAGLE + 6 * D + 2 * 5 * 32 * D + 2 * 64 * D,
        lambda _: (MATRIX, 0),
        lambda _: (MATRIX, CONV),
        shift=D,
    ),
    # q, k, v and output; decay, rate, k_k, k_a and r_k; a group norm; maps of rank 32 for decay, rate and
    # gate
    "rwkv7": Variant(
        RWKV7,
        {},
        4 * D * D + 5 * D + 2 * D + 6 * D + 2 * 3 * 32 * D,
        lambda _: (MATRIX, 0),
        lambda _: (MATRIX, CONV),
        shift=D,
    ),
}

REGRESSION = {
    # filters of q and k, a forget gate and a strength with their biases, a ridge for each channel; a Gram
    # matrix beside the other
    **{
        name: Variant(
            MesaNet,
            settings,
            QKVO + 4 * 2 * D + NORM + gates * (GATE + HEADS) + D,
            lambda _: (2 * MATRIX, 3 * 2 * D),
            lambda _: (2 * MATRIX, CONV),
        )
        for name, settings, gates in (
            ("mesanet", {}, 2),
            ("mesanet without decay", {"decay": "none", "strength": "one", "method": "chebyshev"}, 0),
        )
    },
    # a ridge for each head
    "mesa layer": Variant(
        MesaLayer, {}, QKVO + HEADS, lambda _: (2 * MATRIX, 0), lambda _: (2 * MATRIX, CONV)
    ),
}

# a decay with its two numbers a head; b and c with their biases; an output gate
REGRESSION["gated kalmanet"] = Variant(
    GatedKalmaNet,
    {"steps": 6},
    QKVO + FILTER + NORM + D * D + GATE + 2 * HEADS + 2 * (GATE + HEADS),
    lambda _: (2 * MATRIX, CONV),
    lambda _: (2 * MATRIX, CONV),
)
REGRESSION["kaczmarz"] = DELTA_RULE["gated deltanet"]._replace(cls=Kaczmarz)
# a second decay with its two numbers a head, a step, f and d
REGRESSION["momentum deltanet"] = Variant(
    MomentumDeltaNet,
    {},
    DELTA_RULE["gated deltanet"].parameters + 2 * GATE + 2 * HEADS + 2 * HEADS,
    lambda _: (2 * HEADS * 6 * 12, 3 * HEADS * (6 + 6 + 12)),
    lambda _: (2 * MATRIX, CONV),
)
# a decay with its two numbers a head, a strength and a centre; a curvature for each channel of the keys
REGRESSION |= {
    name: Variant(
        cls,
        {},
        DELTA_RULE[host].parameters + 2 * GATE + 3 * HEADS,
        lambda _, keys=keys, values=values: (HEADS * keys * (values + 1), 3 * HEADS * (2 * keys + values)),
        lambda _: (MATRIX + D, CONV),
    )
    for name, cls, host, keys, values in (
        ("precond gdn", PrecondGDN, "gated deltanet", 6, 12),
        ("precond kda", PrecondKDA, "kda", HEAD, HEAD),
    )
}
# as Mamba's, without A
REGRESSION |= {
    name: Variant(
        Longhorn,
        settings,
        6 * D * D + 5 * 2 * D + (2 * 2 * D + 2 * D) + 2 * 16 * 2 * D + 2 * D,
        lambda _: (16 * 2 * D, 3 * 2 * D),
        lambda _: (16 * D, 3 * D),
    )
    for name, settings in (("longhorn", {}), ("longhorn along keys", {"erase": "key"}))
}

OTHERS = {
    "base conv": Variant(BaseConv, {}, D * D + D + (KERNEL + 1) * D, lambda _: (0, (KERNEL - 1) * D), None),
    "lstm": Variant(LSTM, {}, 4 * (2 * D * D + D) + D * D, lambda _: (2 * D, 0), lambda _: (2 * D, 3 * D)),
    "gru": Variant(GRU, {}, 3 * (2 * D * D + D) + D * D, lambda _: (D, 0), lambda _: (D, 3 * D)),
    "rnn": Variant(RNN, {}, 2 * D * D + D + D * D, lambda _: (D, 0), lambda _: (D, 3 * D)),
    # q, k, v and output with biases, three shifts and e; a length of a match for each symbol
    "rosa": Variant(
        ROSA,
        {},
        4 * D * (D + 1) + 4 * D,
        lambda n: (n * (2 * D + D // 4), 0),
        lambda n: (n * (2 * D + D // 4), 3 * D),
        shift=D,
    ),
    "rosa of single bits": Variant(
        ROSA,
        {"bits": 1},
        4 * D * (D + 1) + 4 * D,
        lambda n: (n * 3 * D, 0),
        lambda n: (n * 3 * D, 3 * D),
        shift=D,
    ),
}

# weights and biases of a linear memory, and of one with a hidden layer of 4 HEAD
LINEAR_MEMORY = HEADS * (HEAD + 1) * HEAD
DEEP_MEMORY = HEADS * (8 * HEAD**2 + 5 * HEAD)
INNER_NORM = 2 * D
CHUNK = 16
"""The window of LaCT."""
WINDOW_TOKEN = HEADS * (2 * HEAD + 1)
"""Key, value and rate of a token in the window of a memory."""
PAIRS = HEAD + HEAD * (HEAD + 1) // 2
"""Monomials of degree one and two."""

NETWORKS = {
    # a rate, a scale for each token of a mini-batch, a norm of all heads and one in the memory
    "ttt linear": Variant(
        TTTLinear,
        {"mini_batch": 3},
        QKVO + GATE + HEADS + 3 + 2 * D + INNER_NORM + LINEAR_MEMORY,
        lambda n: (2 * LINEAR_MEMORY, 0),
        lambda n: (2 * LINEAR_MEMORY, CONV),
    ),
    "ttt linear from zero, token by token": Variant(
        TTTLinear,
        {"mini_batch": 1, "initial": "zero", "inner_norm": False, "inner_residual": False, "qk_norm": "l2"},
        QKVO + GATE + HEADS + 1 + 2 * D,
        lambda n: (LINEAR_MEMORY, 0),
        lambda n: (LINEAR_MEMORY, CONV),
    ),
    "ttt mlp": Variant(
        TTTMLP,
        {"mini_batch": 3},
        QKVO + GATE + HEADS + 3 + 2 * D + INNER_NORM + DEEP_MEMORY,
        lambda n: (2 * DEEP_MEMORY, 0),
        lambda n: (2 * DEEP_MEMORY, CONV),
    ),
    # an MLP with 2 HEAD hidden units, three gates, an output gate; without a norm, since random gates forget
    # so much that the norm would divide by nearly nothing
    "titans": Variant(
        Titans,
        {"mini_batch": 4, "inner_norm": False},
        QKVO + FILTER + NORM + D * D + 4 * MATRIX + 3 * (GATE + HEADS),
        lambda n: (3 * 4 * MATRIX, CONV),
        lambda n: (3 * 4 * MATRIX, CONV),
    ),
    "titans, linear from zero, that never forget": Variant(
        Titans,
        {"mini_batch": 3, "network": "linear", "decay": False, "initial": "zero", "inner_norm": False},
        QKVO + FILTER + NORM + D * D + 2 * (GATE + HEADS),
        lambda n: (3 * MATRIX, CONV),
        lambda n: (3 * MATRIX, CONV),
    ),
    # as titans without momentum, but with step sizes and coefficients; a window of 4, itself included
    "omeganet": Variant(
        OmegaNet,
        {"mini_batch": 3, "inner_norm": False, "window": 4},
        QKVO + FILTER + NORM + D * D + 4 * MATRIX + 3 * (GATE + HEADS) + 2,
        lambda n: (2 * 4 * MATRIX + 3 * WINDOW_TOKEN, CONV),
        lambda n: (2 * 4 * MATRIX + 3 * WINDOW_TOKEN, CONV),
    ),
    "omeganet, linear, with products of channels": Variant(
        OmegaNet,
        {
            **{"mini_batch": 4, "network": "linear", "initial": "zero", "window": 2, "momentum": True},
            **{"inner_norm": False, "inner_residual": False, "feature_map": "monomials-2"},
        },
        QKVO + FILTER + NORM + D * D + 4 * (GATE + HEADS) + 2,
        lambda n: (3 * PAIRS * D + HEADS * (PAIRS + HEAD + 1), CONV),
        lambda n: (3 * PAIRS * D + HEADS * (PAIRS + HEAD + 1), CONV),
    ),
    "atlas": Variant(
        Atlas,
        {"mini_batch": 3, "inner_norm": False, "window": 3, "newton_schulz": 2},
        QKVO + FILTER + NORM + D * D + 4 * MATRIX + 4 * (GATE + HEADS) + 2,
        lambda n: (3 * 4 * MATRIX + 2 * WINDOW_TOKEN, CONV),
        lambda n: (3 * 4 * MATRIX + 2 * WINDOW_TOKEN, CONV),
    ),
    # as titans with a norm of either output, a scale of scores for each head, and a cache
    "titans mag": Variant(
        TitansMAG,
        {"mini_batch": 3, "inner_norm": False, "window": 4},
        QKVO + FILTER + 2 * NORM + HEADS + 4 * MATRIX + 3 * (GATE + HEADS),
        lambda n: (min(n, 4) * CACHE + 3 * 4 * MATRIX, CONV),
        lambda n: (min(n, 4) * CACHE + 3 * 4 * MATRIX, CONV),
    ),
    # as titans mag, with maps of what is recalled and of what attention reads, and a persistent token; two
    # copies of the memory, and queries, keys and values of a segment's tokens but its last
    "titans mac": Variant(
        TitansMAC,
        {"mini_batch": 3, "inner_norm": False, "persistent": 1},
        QKVO + FILTER + 2 * NORM + HEADS + 4 * MATRIX + 3 * (GATE + HEADS) + 5 * D * D + 2 * D,
        lambda n: (min(n, 2) * 3 * D + 2 * 4 * MATRIX, CONV),
        lambda n: (min(n, 2) * 3 * D + 2 * 4 * MATRIX, CONV),
    ),
    # three matrices; scales and shifts, a norm; a rate for each matrix of a head, and a gate of momentum
    "lact": Variant(
        LaCT,
        {"mini_batch": 2},
        QKVO + 3 * MATRIX + 4 * D + NORM + 4 * (GATE + HEADS),
        lambda n: (min(n, CHUNK) * CACHE + 3 * 3 * MATRIX + HEADS, 0),
        lambda n: (min(n, CHUNK) * CACHE + 3 * 3 * MATRIX + HEADS, CONV),
    ),
    "lact with muon and one wide head": Variant(
        LaCT,
        {"mini_batch": 3, "muon": True, "momentum": False, "fast_heads": 1, "fast_gate": True},
        QKVO + 3 * D * D + 4 * D + D + 4 * (D + 1),
        lambda n: (min(n, CHUNK) * CACHE + 2 * 3 * D * D, 0),
        lambda n: (min(n, CHUNK) * CACHE + 2 * 3 * D * D, CONV),
    ),
}

VARIANTS = {
    **SOFTMAX,
    **SUMS,
    **DECAYS,
    **DELTA_RULE,
    **LOG_LINEAR,
    **SHIFTED,
    **REVISITED,
    **EXPONENTIAL_GATES,
    **REGRESSION,
    **NETWORKS,
    **OTHERS,
}
QUICK = {
    "attention",
    "attention with a window",
    "base conv",
    "gated deltanet",
    "linear attention",
    "mamba2",
    "rwkv7",
}
"""Variants of every check; the others are tested with the slow tests."""

FORMS = [
    (name, form)
    for form in ("native", "controlled")
    for name, variant in VARIANTS.items()
    if form == "native" or variant.controlled_state
]
"""Every entry in its published form and, if it has one, in the controlled form."""

_FIRST = {variant.cls: name for name, variant in reversed(VARIANTS.items())}
CASES = [
    pytest.param((name, form), id=f"{name}-{form}", marks=() if name in QUICK else pytest.mark.slow)
    for name, form in FORMS
    if form == "native" or name == _FIRST[VARIANTS[name].cls]
]
"""Entries that laws are tested on: all in their published form, the first of each class in both."""

GROWING = Attention | Hyena | LogLinear | ROSA
"""Layers whose state grows with the sequence, unless they have a window."""

DTYPES = {torch.float64: 1e-9, torch.float32: 1e-4}
"""The dtypes that are computed in, and the largest error in each."""

Build = Callable[..., Mixer]
Error = Callable[[Tensor, Tensor], float]


def tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple | list):
        for part in state:
            yield from tensors(part)
    else:
        assert state is None
