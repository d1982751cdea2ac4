"""Mixers that break a law each, and some that break none."""

FRAME = """
import os
import time

import torch
from torch import nn
from linbench.kernels.operators import choose_backend
from linbench.models.base import Mixer, Out, StateSize
from linbench.models.deltanet import DeltaNet
from linbench.models.rwkv7 import RWKV7


class Leaks(DeltaNet):
    name = "leaks"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y / y.norm(dim=1, keepdim=True), state, cross_layer)


class Forgets(DeltaNet):
    name = "forgets"
    def forward(self, x, state=None, cross_layer=None):
        state = state and state._replace(conv=torch.zeros_like(state.conv))
        return super().forward(x, state, cross_layer)


class Drifts(DeltaNet):
    name = "drifts"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        time = torch.arange(x.shape[1], dtype=x.dtype)
        return Out(y * 1.01 ** time[:, None], state, cross_layer)


class Touches(DeltaNet):
    name = "touches"
    def forward(self, x, state=None, cross_layer=None):
        return super().forward(x - 0.1 * x.mean(dim=0, keepdim=True), state, cross_layer)


class Understates(DeltaNet):
    name = "understates"
    def state_floats(self, seq_len):
        return StateSize(recurrent=super().state_floats(seq_len).recurrent)


class Overflows(DeltaNet):
    name = "overflows"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y * x.mean(dim=-1, keepdim=True).exp(), state, cross_layer)


class Rolls(DeltaNet):
    name = "rolls"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y + 0.01 * torch.rand(()).to(y.dtype), state, cross_layer)


class Detaches(DeltaNet):
    name = "detaches"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y * (1 + x.detach().mean(dim=-1, keepdim=True)), state, cross_layer)


class LeaksLate(DeltaNet):
    name = "leaks late"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        early, late = y[:, :128], y[:, 128:]
        if late.shape[1]:
            y = torch.cat([early + late.mean(dim=1, keepdim=True), late], dim=1)
        return Out(y, state, cross_layer)


class LeaksBehind(DeltaNet):
    name = "leaks behind"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y + self.layer.index * y.mean(dim=1, keepdim=True), state, cross_layer)


class HandsOnTheFuture(RWKV7):
    name = "hands on the future"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y, state, cross_layer._replace(v=cross_layer.v.flip(1)))


class ForgetsBehind(DeltaNet):
    name = "forgets behind"
    def forward(self, x, state=None, cross_layer=None):
        if state and self.layer.index:
            state = state._replace(memory=torch.zeros_like(state.memory))
        return super().forward(x, state, cross_layer)


class FormsDiffer(DeltaNet):
    name = "forms differ"
    def recur(self, x, q, k, v, memory):
        o, memory = super().recur(x, q, k, v, memory)
        fast = choose_backend("auto", ("reference", "fast"), q, otherwise="fast") == "fast"
        return (1 + self.layer.index * fast) * o, memory


class Decodes(DeltaNet):
    name = "decodes"
    def decode(self, x, state, cross_layer=None):
        y, state, cross_layer = super().decode(x, state, cross_layer)
        return Out(2 * y, state, cross_layer)


class Prefills(DeltaNet):
    name = "prefills"
    def prefill(self, x, *, capacity, cross_layer=None):
        y, _, cross_layer = self(x, None, cross_layer)
        return Out(y, self.init_state(len(x), capacity=capacity), cross_layer)


class Writes(DeltaNet):
    name = "writes"
    def forward(self, x, state=None, cross_layer=None):
        out = super().forward(x, state, cross_layer)
        if state is not None:
            state.memory.copy_(out.state.memory)
        return out


class Misplaces(DeltaNet):
    name = "misplaces"
    def __init__(self, settings, layer):
        super().__init__(settings, layer)
        if layer.index:
            raise ValueError("only the first, please")


class Normed(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(self.norm(x.flatten(0, 1)).view_as(x))


class Centred(nn.Module):
    "By a mean of earlier batches, and with dropout: sound, though no two calls in training give the same."
    def __init__(self, d_model):
        super().__init__()
        self.linear, self.dropout = nn.Linear(d_model, d_model), nn.Dropout(0.2)
        self.register_buffer("mean", torch.zeros(d_model))

    def forward(self, x):
        y = self.dropout(self.linear(x - self.mean))
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(dim=(0, 1))
        return y


class Skips(nn.Module):
    "Nearly always in training, as stochastic depth does."
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x) * (torch.rand(()) < (0.01 if self.training else 1)).to(x.dtype)


class Unbuildable(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        raise ValueError("not today")

    def forward(self, x):
        return x


class Aborts(nn.Module):
    def __init__(self, d_model):
        super().__init__()
    def forward(self, x):
        os.abort()


class Hangs(nn.Module):
    def __init__(self, d_model):
        super().__init__()
    def forward(self, x):
        time.sleep(1000)


class NotFinite(nn.Module):
    def __init__(self, d_model):
        super().__init__()
    def forward(self, x):
        return x.cumsum(dim=1).log()


class Shortens(nn.Module):
    def __init__(self, d_model):
        super().__init__()
    def forward(self, x):
        return x[:, :-1]


class RaisesLate(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.map = nn.Linear(d_model, d_model)
    def forward(self, x):
        if x.shape[1] > 65:
            raise ValueError("no such luck")
        return self.map(x)


class Raises(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        raise ValueError("no such luck")


class Plain(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.linear(x).cumsum(dim=1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]


class NormsInFloat(Plain):
    "As Qwen3-Next and others do: float32 inside, whatever comes in."
    def forward(self, x):
        h = x.float()
        return super().forward((h * torch.rsqrt(h.square().mean(dim=-1, keepdim=True) + 1e-6)).to(x.dtype))


class OnlyFloat(Plain):
    "Bound to float32."
    def forward(self, x):
        return super().forward(x.float())


class InHalf(Plain):
    def forward(self, x):
        return super().forward(x.bfloat16().to(x.dtype))


class Unused(Plain):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.bias_of_old = nn.Parameter(torch.zeros(d_model))


class Convolves(Plain):
    "A causal convolution by FFT, which rounds over all places alike."
    def forward(self, x):
        size = 2 * x.shape[1]
        kernel = torch.exp(-torch.arange(x.shape[1], dtype=x.dtype) / 8)
        spectrum = torch.fft.rfft(self.linear(x), n=size, dim=1) * torch.fft.rfft(kernel, n=size)[:, None]
        return torch.fft.irfft(spectrum, n=size, dim=1)[:, :x.shape[1]]


class Swings(nn.Module):
    "So fast a function of a parameter that most steps miss its slope."
    def __init__(self, d_model):
        super().__init__()
        self.angle = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * torch.sin(3000 * self.angle)


class DetachesFloat(NormsInFloat):
    def forward(self, x):
        return super().forward(x) * (1 + x.detach().mean(dim=-1, keepdim=True))


class TouchesFloat(NormsInFloat):
    def forward(self, x):
        return super().forward(x - 1e-3 * x.mean(dim=0, keepdim=True))


class LeaksFloat(OnlyFloat):
    def forward(self, x):
        return super().forward(x - 1e-3 * x.mean(dim=1, keepdim=True))


class NoGradient(Plain):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)
"""

CAUGHT = {
    "Leaks": "causality",
    "Forgets": "streaming",
    "Drifts": "ten times as long",
    "Touches": "batch neighbours",
    "Understates": "state size",
    "Overflows": "extreme inputs",
    "Rolls": "determinism",
    "Detaches": "gradients",
    "LeaksLate": "causality",
    "LeaksBehind": "causality",
    "HandsOnTheFuture": "causality",
    "ForgetsBehind": "streaming",
    "FormsDiffer": "chunkwise form",
    "Decodes": "streaming",
    "Prefills": "streaming",
    "Writes": "streaming",
    "Misplaces": "construction",
    "DetachesFloat": "gradients",
    "TouchesFloat": "batch neighbours",
    "LeaksFloat": "causality",
    "NoGradient": "gradients",
}
