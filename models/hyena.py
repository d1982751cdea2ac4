"""Hyena: a long filter between two products of channels, made by a small network of positions."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import without_autocast
from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import InputConvolution
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import BranchSettings, zero_init
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.long_convolution import ImplicitFilter, long_convolution
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.positions import require_places
from linbench.models.learner import Learner


class HyenaSettings(BranchSettings):
    """Settings of Hyena.

    Published: a convolution of kernel 3 with biases and no activation, a skip around the filter, no norm.
    """

    length: int = Field(
        512,
        ge=2,
        description="tokens over which the filter's time goes from 0 to 1; published as the longest sequence",
    )
    bands: int = Field(1, ge=1, description="frequencies of time that the filter's network reads")
    hidden: int = Field(64, ge=1, description="width of the filter's network")
    inner: int = Field(2, ge=0, description="maps of the filter's network between its first and its last")
    frequency: float = Field(
        1.0,
        gt=0,
        description="factor in the network's sines at first: 1 in recall experiments, 10 or 14 elsewhere",
    )
    conv: int = Field(
        3, ge=0, le=4, description="kernel of the short convolution on both gates and values; 0 is none"
    )
    conv_bias: bool = Field(True, description="whether the short convolution has biases")
    conv_activation: Literal["none", "silu"] = Field(
        "none", description="activation after the short convolution"
    )
    skip: bool = Field(True, description="whether values go past the filter")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")


class HyenaState(NamedTuple):
    """State of Hyena.

    values: the products x1 * v of all tokens so far, with zeros in unused places [B, S, D]. seen: number of
    tokens so far [B]. conv: what the short convolution remembers [B, kernel-1, 3 D], None without one.
    """

    values: Tensor
    seen: Tensor
    conv: Tensor | None


class Hyena(Mixer):
    """Hyena: a long filter between two products of channels, made by a small network of positions.

        y_t = W_o (x2_t * (sum_{s <= t} h_{t-s} z_s + D * z_t)),  z_t = x1_t * v_t
        x1, x2, v = conv(W x)
        h_s = network(s) e^{-r s}   for each channel

    The network has sines between its maps and reads time and a sine and a cosine of it; rates r are fixed.
    Poli et al. 2023, arXiv:2302.10866, of order 2.

    State: a cache of D floats per token seen; the short convolution keeps 2 inputs of 3 D. A filter that a
    network makes has no recurrence, so the sum is taken anew at each token, and so are the taps.

    Known for: language models without attention, from filters as long as the sequence that cost few
    parameters. Products with x1 and x2 depend on the tokens, but how old a token is that the filter reads
    does not: recall of many pairs needs a width that grows with their number (arXiv:2312.04927).

    Differences: time is measured in `length` tokens, and a longer sequence reads taps beyond it, where the
    source refuses. The lowest frequency of time is 1e-4, as in its code. The source trains the network at a
    rate of its own, 0.001, and without weight decay; here it and D have no decay, and the common rate. W_o
    starts at zero (docs/decisions/0002). In the controlled form there is no skip, and the convolution is that
    of other variants' queries, keys and values.
    """

    name = "hyena"
    kernel_families = FAMILIES
    generation = "gates and decay"
    causality = "rounding"
    learner = Learner(
        loss="none: every product of two inputs is written alike",
        memory="every product of two inputs",
        optimiser="none: inputs are summed",
        retention="keeps all; a fixed filter weighs them by their age",
    )
    Settings = HyenaSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        "conv": 4, "conv_bias": False, "conv_activation": "silu", "skip": False, "output_norm": "rms",
    }  # fmt: skip

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width = layer.d_model
        activation = None if settings.conv_activation == "none" else settings.conv_activation
        self.project = Affine(width, 3 * width)
        self.conv = InputConvolution(3 * width, settings.conv, bias=settings.conv_bias, activation=activation)
        shape = settings.model_dump(include={"length", "bands", "hidden", "inner", "frequency"})
        self.filter = ImplicitFilter(width, **shape)
        self.skip = nn.Parameter(nn.init.normal_(torch.empty(width))) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Affine(width, width), silent=settings.silent)

    def forward(self, x: Tensor, state: HyenaState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says.

        Raises:
            RuntimeError: if a cache gets more tokens than its capacity.
        """
        return self._mix(x, state, cross_layer, in_place=False)

    def decode(self, x: Tensor, state: HyenaState, cross_layer: Any = None) -> Out:
        """Mix the next tokens as `Mixer.decode` says, writing into the cache in place."""
        return self._mix(x, state, cross_layer, in_place=True)

    def _mix(self, x: Tensor, state: HyenaState | None, cross_layer: Any, *, in_place: bool) -> Out:
        read, conv = self.conv(self.project(x), state and state.conv)
        x1, x2, v = read.chunk(3, dim=-1)
        z = x1 * v
        with without_autocast(x):
            if state is None:
                o, after = self.sum_all(z), None
            else:
                o, after = self.sum_on(z, state, in_place=in_place)
                after = after._replace(conv=conv)
        if self.skip is not None:
            o = o + self.skip * z
        y = x2 * o.to(x2.dtype)
        return Out(self.linear(y if self.norm is None else self.norm(y)), after, cross_layer)

    def sum_all(self, z: Tensor) -> Tensor:
        """Return sum_{s <= t} h_{t-s} z_s for z [B, T, D] from the first token on, in at least float32."""
        z = z.to(at_least_float32(z.dtype))
        return long_convolution(z, self.filter(z.shape[1], z.dtype))

    def sum_on(self, z: Tensor, state: HyenaState, *, in_place: bool) -> tuple[Tensor, HyenaState]:
        """Return the same for the tokens after those of `state`, and the state with them."""
        places, length = state.values.shape[1], z.shape[1]
        at = state.seen[:, None] + torch.arange(length, device=z.device)
        require_places(at, places)
        scatter = Tensor.scatter_ if in_place else Tensor.scatter
        index = at[..., None].expand_as(z)
        values = scatter(state.values, 1, index, z.to(state.values.dtype))
        after = state._replace(values=values, seen=state.seen + length)
        if length > 1:
            return self.sum_all(values).gather(1, index), after
        dtype = at_least_float32(z.dtype)
        age = (at - torch.arange(places, device=z.device)).clamp(min=0)  # unused places hold zeros
        taps = self.filter(places, dtype).T[age]
        return (taps * values.to(dtype)).sum(dim=1, keepdim=True), after

    def init_state(self, batch: int, *, capacity: int) -> HyenaState:
        """Return an empty cache of `capacity` places."""
        weight = self.linear.weight
        seen = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        values = weight.new_zeros(batch, capacity, self.layer.d_model)
        return HyenaState(values, seen, self.conv.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return D for each of `seq_len` tokens, and (kernel - 1) 3 D for the convolution."""
        return StateSize(cache=seq_len * self.layer.d_model, convolution=self.conv.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the mean over a sequence: token t sums t + 1 products; both gates and the skip.

        The network that makes the taps counts among the linear maps, with one tap for each token.
        """
        return self.layer.d_model * (seq_len + 1 + 2.0 + 2.0 * (self.skip is not None))

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the filter and the skip."""
        return {
            name: Rule(decay=False)
            for name, _ in self.named_parameters()
            if name.startswith("filter.") or name == "skip"
        }
