"""Layers that break a law which a layer must keep to be trained, and some that break none."""

from tests.helpers.faulty_mixers import FRAME

MORE = '''
import os, random, time
import numpy as np


class Same(nn.Module):
    """A convolution that pads both sides."""
    def __init__(self, d_model):
        super().__init__()
        self.conv = nn.Conv1d(d_model, d_model, 3, padding="same")

    def forward(self, x):
        return self.conv(x.mT).mT


class SilentAtFirst(Same):
    """The same, behind a factor that starts at zero."""
    def __init__(self, d_model):
        super().__init__(d_model)
        self.factor = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.factor * super().forward(x)


class Faint(Same):
    """The same, behind a factor that starts so small that float32 would not show it."""
    def forward(self, x):
        return x + 1e-7 * super().forward(x)


class RowsFirst(nn.Module):
    """A GRU that takes rows of the batch for tokens."""
    def __init__(self, d_model):
        super().__init__()
        self.gru = nn.GRU(d_model, d_model)

    def forward(self, x):
        return self.gru(x)


class TokensFirst(RowsFirst):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.gru.batch_first = True


class Batched(nn.Module):
    """Statistics over rows alone."""
    def forward(self, x):
        return x - x.mean(dim=0, keepdim=True)


class OwnNorm(nn.Module):
    """A norm of each token."""
    def __init__(self, d_model):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        return self.norm(x)


class Draws(nn.Module):
    """In training and out of it, with other generators than torch's."""
    def forward(self, x):
        return x * random.random() + np.random.rand()


class Counts(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.calls * x


class Overflowing(nn.Module):
    def forward(self, x):
        return x / 0


class Short(DeltaNet):
    name = "short"
    def forward(self, x, state=None, cross_layer=None):
        y, state, cross_layer = super().forward(x, state, cross_layer)
        return Out(y[:, :1], state, cross_layer)


class Built(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear, self.factor = nn.Linear(dim, dim), float(np.random.default_rng().random())
    def forward(self, x):
        return self.linear(x) * (1 + self.factor)


class Dies(nn.Module):
    """In another process than the one that trains."""
    def forward(self, x):
        if "LINBENCH_WORKER" in os.environ:
            os._exit(3)
        return x


class Hangs(nn.Module):
    def forward(self, x):
        if "LINBENCH_WORKER" in os.environ:
            time.sleep(600)
        return x
'''

LAYERS = FRAME + MORE
