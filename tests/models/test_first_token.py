"""The share of its weights that a layer gives to the first token."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.task_io import IO
from linbench.models.attention import Attention
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import Mixer
from linbench.models.deltanet import DeltaNet
from linbench.models.fox import FoX
from linbench.models.gated_attention import GatedAttention
from linbench.models.gau import GAU
from linbench.models.mla import MLA
from tests.helpers.models import HEADS, B, D, Randomise, build_mixer

T = 12
FORMS: dict[str, tuple[type[Mixer], dict[str, Any]]] = {
    "attention": (Attention, {}),
    "one key for all heads": (Attention, {"kv_heads": 1, "rope_fraction": 0.5}),
    "controlled": (Attention, dict(Attention.controlled or {})),
    "alibi": (Attention, {"positions": "alibi"}),
    "fox": (FoX, {}),
    "gated": (GatedAttention, {}),
    "mla": (MLA, {}),
    "gau": (GAU, {}),
}


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_it_is_the_mean_weight_of_the_first_token(x: Tensor, randomise: Randomise, form: str) -> None:
    """All weights are read with one value for each token, a dimension of its own."""
    cls, settings = FORMS[form]
    mixer: Any = randomise(build_mixer(cls, **settings))
    new = mixer._project_tokens(x, None)
    sums = None if new.log_forget_sum is None else (new.log_forget_sum, new.log_forget_sum)
    apart = torch.eye(T, dtype=torch.float64)[:, None].expand(B, T, new.k.shape[2], T)
    weights = mixer.read(new, new.k, apart, None, sums)  # [B, T, H, S]
    assert not weights.transpose(1, 2).triu(1).any()
    total = weights.sum(dim=-1)
    if cls is not GAU:
        torch.testing.assert_close(total, torch.ones_like(total))
    share = mixer.first_token_share(x)
    assert share.shape == (1 if cls is GAU else HEADS,)
    expected = (weights[..., 0] / total.clamp(min=1e-9))[:, 1:].mean(dim=(0, 1))
    torch.testing.assert_close(share.double(), expected, rtol=1e-5, atol=1e-7)


@torch.no_grad()
def test_alike_keys_share_evenly(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(Attention))
    mixer.project.linear.weight[:D] = 0  # no query asks for anything
    even = sum(1 / (t + 1) for t in range(1, T)) / (T - 1)
    assert mixer.first_token_share(x).tolist() == pytest.approx([even] * HEADS)


@torch.no_grad()
def test_a_sink_takes_all(x: Tensor, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(Attention, positions="none"))
    mixer.project.linear.weight[: 2 * D] = 0
    mixer.project.linear.weight[: 2 * D, 0] = 1  # all channels of q and k are the input's first
    x[..., 0] = 1
    x[:, 0, 0] = 100
    score = 100 * math.sqrt(D / HEADS)
    assert score > 50
    assert mixer.first_token_share(x).tolist() == pytest.approx([1.0] * HEADS)


@torch.no_grad()
def test_a_model_tells_of_the_layers_that_have_weights(randomise: Any, generator: torch.Generator) -> None:
    layers = [Layer(cls, cls.Settings(heads=HEADS)) for cls in (DeltaNet, Attention, FoX)]
    model = randomise(Backbone(BackboneSettings(d_model=D), layers, IO(20, 20), seed=0)).double()
    ids = torch.randint(20, (B, T), generator=generator)
    before = model.hidden(ids)[0]
    shares = model.first_token_shares(ids)
    assert [*shares] == [1, 2]
    stream = model.embedding(ids)
    for i in range(2):  # by hand, up to the layer of attention
        normed = model.mixer_norms[i](stream)
        if i == 1:
            torch.testing.assert_close(shares[1], model.mixers[1].first_token_share(normed))
        stream = stream + model.mixers[i](normed).y
        stream = stream + model.channel_mixers[str(i)](model.channel_norms[str(i)](stream))[0]
    assert torch.equal(model.hidden(ids)[0], before)
    assert not any(mixer._forward_pre_hooks for mixer in model.mixers)
