"""Maps from the residual stream into heads and back, the same for every variant with q, k and v."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.kernels.norms import ACTIVATIONS, Activation
from linbench.models.base import LayerInfo
from linbench.models.blocks.canon import Canon
from linbench.models.blocks.convolution import ShortConvolution
from linbench.models.blocks.feature_maps import FeatureMap, FeatureMapName, feature_map
from linbench.models.blocks.init import BranchSettings, zero_init
from linbench.models.blocks.key_norms import key_norm
from linbench.models.blocks.linear import Linear, LowRank, SharedInput, linear
from linbench.models.blocks.norms import (
    AllLayerNorm,
    GroupRMSNorm,
    HeadLayerNorm,
    RMSNorm,
)

QKNorm = Literal["none", "l1", "l2", "rms", "rms_centred"]
OutputNorm = Literal["none", "rms", "rms_all", "layer"]


class ConvStates(NamedTuple):
    """State of a projection with a canon layer.

    conv: of the short convolution [B, kernel-1, C], None without one. canon: of the canon layer [B, 3, C].
    """

    conv: Tensor | None
    canon: Tensor


NO_CONVOLUTION: Any = Field(
    0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
)
"""The setting `conv` of variants that were published without a short convolution."""

NO_QK_NORM: Any = Field("none", description="norm of q and k per head, the last thing before the recurrence")
"""The setting `qk_norm` of variants that were published without a norm of q and k."""

OUTPUT_NORM: Any = Field(
    "rms",
    description=(
        "norm of the output: rms per head, one weight vector for all; rms_all over all heads together; layer"
        " per head, weights per channel"
    ),
)


class HeadSettings(BranchSettings):
    """Settings of everything around a recurrence with heads.

    Each variant's defaults are the published ones; `CONTROLLED` has the same values for all variants.
    """

    heads: int = Field(2, ge=1, description="number of heads")
    head_dim: int | None = Field(
        None, ge=1, description="key dimension of a head; null is expand_k * d_model / heads"
    )
    expand_k: float = Field(1.0, gt=0, description="total key width over d_model")
    expand_v: float = Field(
        1.0,
        gt=0,
        description=(
            "total value width over d_model; with head_dim given, expand_v / expand_k * head_dim per head"
        ),
    )
    conv: int = Field(
        4, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    qk_activation: Literal["silu", "none"] = Field(
        "silu",
        description="what follows the convolution on q and k; none leaves them to feature_map; v has SiLU",
    )
    feature_map: FeatureMapName = Field("identity", description="applied to q and k, before the norm")
    qk_norm: QKNorm = Field(
        "l2",
        description=(
            "norm of q and k per head, the last thing before the recurrence; l1 makes positive features sum"
            " to one; rms has one weight vector for all heads, rms_centred weights 1 + w with decay of w"
        ),
    )
    output_norm: OutputNorm = OUTPUT_NORM
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "none", description="gate computed from the layer's input, after the norm"
    )


FAMILIES = ("norms", "short_convolution")
"""Kernel families that these blocks use."""

CONTROLLED: dict[str, Any] = {
    "expand_k": 1.0,
    "expand_v": 1.0,
    "conv": 4,
    "qk_activation": "silu",
    "qk_norm": "l2",
    "output_norm": "rms",
    "output_gate": "none",
}
"""The controlled form: the same surroundings for all variants.

Only the recurrence and the feature map that belongs to it differ.
"""

Elementwise = Callable[[Tensor], Tensor]


def head_dims(settings: HeadSettings, d_model: int) -> tuple[int, int]:
    """Return key and value dimension of one head.

    Raises:
        UserError: if these are not whole numbers.
    """
    ratio = settings.expand_v / settings.expand_k
    key = settings.head_dim or settings.expand_k * d_model / settings.heads
    value = key * ratio
    if key != int(key) or value != int(value):
        raise UserError(
            f"model.heads = {settings.heads} splits d_model = {d_model} (expand_k {settings.expand_k},"
            f" expand_v {settings.expand_v}) into heads of {key:g} and {value:g}; choose heads, head_dim or"
            " d_model so that both are whole numbers."
        )
    return int(key), int(value)


def inner_width(expand: float, d_model: int) -> int:
    """Return the inner width of a mixer without heads.

    Raises:
        UserError: if it is not a whole number.
    """
    width = round(expand * d_model, 9)
    if width != int(width):
        raise UserError(
            f"model.expand = {expand} makes a layer of width {width:g} inside of d_model = {d_model}; choose"
            " one that makes it whole."
        )
    return int(width)


def share_input(x: Tensor, mixer: nn.Module, readout: "Readout") -> SharedInput:
    """Wrap a mixer's input for all its linear maps except the last, so that they are computed together."""
    maps = [module for module in mixer.modules() if isinstance(module, Linear)]
    return SharedInput(x, [each for each in maps if each is not readout.linear])


class HeadProjection(nn.Module):
    """Map x to q [B, T, Hq, K], k [B, steps T, Hk, K] and v [B, steps T, Hv, V], each with H heads or fewer.

    A linear map is followed by a short convolution with SiLU, the feature map and a norm. There are no
    biases, except in the convolution if it has them. K counts features, of which a map may make more than a
    head has dimensions. A canon layer at site B follows the norm, as published, but stands before feature map
    and norm where q and k shall keep their length: with l1 and l2.

    Args:
        settings: of the heads.
        layer: place of the layer.
        make_feature_map: builds the map from a head's dimension; None: the map that the settings name.
        key_heads: heads of q and k, which divide H, where several heads of values share them; None is H.
        head_dim: dimension of q and k of a head, before the feature map; None is what the settings say.
        kv_heads: heads of k and v, which divide H, where several heads of queries share them (2305.13245);
            None is H.
        steps: keys and values per token. In a token's channels the steps follow each other, each with all
            heads.
        rank: queries and keys of each of their heads, side by side: q [B, T, Hq rank, K], and k alike.
        conv_bias: whether the convolution has biases.
        conv_v: whether it covers v, too; otherwise it is on q and k, and v is a linear map.
        share_kv: whether one linear map makes both k and v, which are as wide.
    """

    takes_canon: ClassVar[bool] = True
    """True if there are q, k and v for a canon layer at site B."""

    def __init__(
        self,
        settings: HeadSettings,
        layer: LayerInfo,
        *,
        make_feature_map: Callable[[int], FeatureMap] | None = None,
        key_heads: int | None = None,
        head_dim: int | None = None,
        kv_heads: int | None = None,
        steps: int = 1,
        rank: int = 1,
        conv_bias: bool = False,
        conv_v: bool = True,
        share_kv: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.steps = settings.heads, steps
        queries, self.value_heads = key_heads or self.heads, kv_heads or self.heads
        self.query_heads, self.key_heads = rank * queries, rank * min(queries, self.value_heads)
        key_dim, self.value_dim = head_dims(settings, layer.d_model)
        self.head_dim = head_dim or key_dim
        self.widths = [
            self.query_heads * self.head_dim,
            steps * self.key_heads * self.head_dim,
            steps * self.value_heads * self.value_dim,
        ]
        self.mapped = self.widths[:2] if share_kv else self.widths
        self.linear = Linear(layer.d_model, sum(self.mapped))
        self.convolved = self.widths if conv_v else self.widths[:2]
        # the l2 norm follows the convolution directly, so one kernel computes both
        l2_in_convolution = (
            bool(settings.conv)
            and settings.feature_map == "identity"
            and settings.qk_norm == "l2"
            and not conv_bias
            and "B" not in layer.canon
        )
        self.silu_on_v = bool(settings.conv) and conv_v and settings.qk_activation == "none"
        self.conv: ShortConvolution | None = None
        if settings.conv:
            self.conv = ShortConvolution(
                sum(self.convolved),
                settings.conv,
                activation=None if settings.qk_activation == "none" else "silu",
                l2_heads=(sum(self.widths[:2]), self.head_dim) if l2_in_convolution else None,
                parts=self.convolved,
                bias=conv_bias,
            )
        if make_feature_map is None:
            self.feature_map = feature_map(settings.feature_map, self.head_dim)
        else:
            self.feature_map = make_feature_map(self.head_dim)
        self.key_dim = self.feature_map.width
        if settings.qk_norm == "l1" and not self.feature_map.positive:
            raise UserError(
                f"model.qk_norm = l1 needs features that are not negative, and model.feature_map ="
                f" {settings.feature_map} makes negative ones; choose another norm or feature map."
            )
        norm = "none" if l2_in_convolution else settings.qk_norm
        self.q_norm, self.k_norm = (key_norm(norm, self.key_dim) for _ in range(2))
        self.canon_first = settings.qk_norm in ("l1", "l2")
        width = self.head_dim if self.canon_first else self.key_dim
        channels = (self.query_heads + steps * self.key_heads) * width + self.widths[2]
        self.canon = Canon(channels) if "B" in layer.canon and self.takes_canon else None

    def forward(
        self, x: Tensor | SharedInput | tuple[Tensor, ...], conv: Any
    ) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Return q, k, v and the state of the convolution, with a canon layer of both (`ConvStates`).

        Args:
            x: [B, T, D], or three inputs: those of q, of k and of v.
            conv: state of the convolution.
        """
        if self.canon is None:
            q, k, v, conv = self.project_and_convolve(x, conv)
            q, k = self.feature_map(q, k)
            return self.q_norm(q), self.k_norm(k), v, conv
        states: Any = (None, None) if conv is None else conv
        before, canon = states
        q, k, v, after = self.project_and_convolve(x, before)
        if self.canon_first:
            q, k, v, canon = self.canon.of_heads(q, k, v, canon)
        q, k = self.feature_map(q, k)
        q, k = self.q_norm(q), self.k_norm(k)
        if not self.canon_first:
            q, k, v, canon = self.canon.of_heads(q, k, v, canon)
        return q, k, v, ConvStates(after, canon)

    def project_and_convolve(
        self, x: Tensor | SharedInput | tuple[Tensor, ...], conv: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return what `forward` returns, before the feature map and the norm that follows it."""
        parts: tuple[Any, ...]
        if isinstance(x, tuple):
            weights = self._of_q_k_v(self.linear.weight, dim=0)
            parts = tuple(linear(each, [weight])[0] for each, weight in zip(x, weights, strict=True))
        elif self.conv is None or self.mapped is not self.widths:
            parts = self._of_q_k_v(self.linear(x))
        elif self.convolved is self.widths:
            parts = (self.linear(x),)  # the convolution splits it
        else:
            parts = torch.split(self.linear(x), [sum(self.convolved), self.widths[2]], dim=-1)
        if self.conv is not None:
            rest = () if self.convolved is self.widths else parts[-1:]
            given = parts[: len(parts) - len(rest)]
            together = given[0] if len(given) == 1 else torch.cat(given, dim=-1)
            convolved, conv = self.conv(together, conv)
            parts = (*convolved, *rest)
        q = parts[0].unflatten(-1, (-1, self.head_dim))
        k = parts[1].unflatten(-1, (-1, self.head_dim))
        v = parts[2].unflatten(-1, (-1, self.value_dim))
        if self.silu_on_v:
            v = F.silu(v)
        if self.steps > 1:  # [B, T, steps Hk, K] -> [B, T steps, Hk, K]
            k, v = (each.unflatten(2, (self.steps, -1)).flatten(1, 2) for each in (k, v))
        return q, k, v, conv

    def _of_q_k_v(self, x: Tensor, dim: int = -1) -> tuple[Tensor, ...]:
        parts: tuple[Tensor, ...] = torch.split(x, self.mapped, dim)
        return parts if self.mapped is self.widths else (*parts, parts[1])

    def init_state(self, batch: int) -> Any:
        """Return zeros for the convolution; None without one; with a canon layer for both."""
        conv = None if self.conv is None else self.linear.weight.new_zeros(batch, *self.conv.state_shape)
        return conv if self.canon is None else ConvStates(conv, self.canon.init_state(batch))

    def state_floats(self) -> int:
        """Return the floats that the convolution and the canon layer carry."""
        conv = 0 if self.conv is None else self.conv.state_shape[0] * self.conv.state_shape[1]
        return conv if self.canon is None else conv + self.canon.state_floats()

    def feature_flops(self) -> int:
        """Return operations per token of the feature map's matrix products."""
        return (self.query_heads + self.steps * self.key_heads) * self.feature_map.flops


class Readout(nn.Module):
    """Map o [B, T, H, V] to y [B, T, D]: norm, then gate, then a linear map that starts at zero, if silent.

    There are no biases, except in a norm that has them.

    Args:
        settings: of the heads.
        layer: place of the layer.
        gate_rank: rank of the gate's map; None: a full matrix.
        eps: of a layer norm with weights per channel.
        groups: number of groups that "rms_groups" norms separately.
    """

    def __init__(
        self,
        settings: HeadSettings,
        layer: LayerInfo,
        *,
        gate_rank: int | None = None,
        eps: float = 1e-5,
        groups: int = 1,
    ) -> None:
        super().__init__()
        _, value_dim = head_dims(settings, layer.d_model)
        width = settings.heads * value_dim
        norms: dict[str, Callable[[], nn.Module | None]] = {
            "none": lambda: None,
            "rms": lambda: RMSNorm(value_dim),
            "rms_all": lambda: RMSNorm(width),
            "rms_groups": lambda: GroupRMSNorm(width, groups),
            "layer": lambda: HeadLayerNorm(settings.heads, value_dim, eps),
            "layer_all": lambda: AllLayerNorm(width, eps),
        }
        self.norm = norms[settings.output_norm]()
        self.joined_heads = isinstance(self.norm, GroupRMSNorm) or settings.output_norm in (
            "rms_all",
            "layer_all",
        )
        self.gate: Linear | LowRank | None = None
        if settings.output_gate != "none":
            self.gate = (
                Linear(layer.d_model, width)
                if gate_rank is None
                else LowRank(layer.d_model, gate_rank, width)
            )
        self.activation: Activation | None = None if settings.output_gate == "none" else settings.output_gate
        self.linear = zero_init(Linear(width, layer.d_model), silent=settings.silent)

    def forward(self, o: Tensor, x: Tensor | SharedInput, added: Tensor | None = None) -> Tensor:
        """Return y [B, T, D].

        Args:
            o: [B, T, H, V].
            x: the layer's input [B, T, D], from which the gate is computed.
            added: shaped as o, added between norm and gate.
        """
        return self.norm_gate_project(o, None if self.gate is None else self.gate(x), added)

    def norm_gate_project(self, o: Tensor, gate: Tensor | None = None, added: Tensor | None = None) -> Tensor:
        """Return y [B, T, D] for a gate [B, T, H V] before its activation.

        Without an activation the gate is a plain factor.
        """
        y: Tensor = self.linear(self.norm_and_gate(o, gate, added))
        return y

    def norm_and_gate(self, o: Tensor, gate: Tensor | None = None, added: Tensor | None = None) -> Tensor:
        """Return what the last map reads [..., H V] for o [..., H, V], and arguments as there."""
        o = o.flatten(-2) if self.joined_heads else o
        gate = None if gate is None else gate.view(o.shape)
        if added is None and self.norm is not None and (gate is None or self.activation is not None):
            # the gate follows the norm directly, so one kernel computes both
            o = self.norm(o, gate, None if gate is None else self.activation)
        else:
            if self.norm is not None:
                o = self.norm(o)
            if added is not None:
                o = o + added.reshape(o.shape)
            if gate is not None:
                o = o * (gate if self.activation is None else ACTIVATIONS[self.activation](gate))
        return o if self.joined_heads else o.flatten(-2)
