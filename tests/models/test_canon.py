"""Canon layers at their four sites: by hand, streamed, counted, and refused where there is no place."""

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.experiments.registry import registry
from linbench.models.backbone import Backbone, BackboneSettings, Layer, kernel_families
from linbench.models.base import Mixer
from linbench.models.blocks.convolution import ShortConvolution
from tests.helpers.cells import plan
from tests.helpers.every_variant import tensors

B, D, HEADS, VOCAB, HIDDEN = 2, 16, 2, 20, 48
HEAD = D // HEADS
SITES = ["".join(some) for n in range(1, 5) for some in itertools.combinations("ABCD", n)]


def build(name: str, canon: str, layers: int = 2, channel_mixer: str = "swiglu", **settings: Any) -> Backbone:
    cls: type[Mixer] = registry("model").find(name).cls
    heads = {"heads": HEADS} if "heads" in cls.Settings.model_fields else {}
    layer = Layer(cls, cls.Settings(**{**heads, **settings}))
    around = BackboneSettings.parse(
        {"d_model": D, "canon": canon, "channel_mixer": channel_mixer}, where="model"
    )
    return Backbone(around, [layer] * layers, IO(VOCAB, VOCAB), seed=0).double()


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def canon(x: Tensor, weight: Tensor) -> Tensor:
    """x_t + sum_{i<4} w_i * x_{t-i}, with the weights of the oldest token first."""
    rows = []
    for t in range(x.shape[1]):
        rows.append(x[:, t] + sum(weight[3 - i] * x[:, t - i] for i in range(4) if t >= i))
    return torch.stack(rows, dim=1)


def by_hand(model: Backbone, x: Tensor, sites: str) -> Tensor:
    """The residual stream after all layers of attention without positions, with a norm of q and k or none."""
    weights = dict(model.named_parameters())
    for i in range(len(model.mixers)):
        h = norm(x, weights[f"mixer_norms.{i}.weight"])
        h = canon(h, weights[f"canons.A{i}.conv.weight"]) if "A" in sites else h
        q, k, v = (h @ w.T for w in weights[f"mixers.{i}.project.linear.weight"].split(D))
        if f"mixers.{i}.project.q_norm.weight" in weights:
            q = norm(q.unflatten(-1, (HEADS, HEAD)), weights[f"mixers.{i}.project.q_norm.weight"]).flatten(2)
            k = norm(k.unflatten(-1, (HEADS, HEAD)), weights[f"mixers.{i}.project.k_norm.weight"]).flatten(2)
        if "B" in sites:
            both = canon(torch.cat([q, k, v], dim=-1), weights[f"mixers.{i}.project.canon.conv.weight"])
            q, k, v = both.split(D, dim=-1)
        q, k, v = (each.unflatten(-1, (HEADS, HEAD)).transpose(1, 2) for each in (q, k, v))
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        o = (q @ k.mT / math.sqrt(HEAD)).masked_fill(later, -torch.inf).softmax(-1) @ v
        x = x + o.transpose(1, 2).flatten(2) @ weights[f"mixers.{i}.readout.linear.weight"].T
        h = norm(x, weights[f"channel_norms.{i}.weight"])
        h = canon(h, weights[f"canons.C{i}.conv.weight"]) if "C" in sites else h
        h = h @ weights[f"channel_mixers.{i}.up.weight"].T
        h = canon(h, weights[f"channel_mixers.{i}.canon.conv.weight"]) if "D" in sites else h
        gate, value = h.chunk(2, dim=-1)
        x = x + (F.silu(gate) * value) @ weights[f"channel_mixers.{i}.down.weight"].T
    return x


@pytest.mark.slow
@pytest.mark.parametrize("sites", SITES)
@pytest.mark.parametrize("qk_norm", ["none", "rms"])
@pytest.mark.parametrize("length", [1, 65])
def test_it_is_as_written_by_hand(
    generator: torch.Generator, randomise: Any, relative_error: Any, sites: str, qk_norm: str, length: int
) -> None:
    """Every gradient is, too; a norm of q and k comes before B."""
    model = randomise(build("attention", sites, positions="none", qk_norm=qk_norm))
    ids = torch.randint(VOCAB, (B, length), generator=generator)
    used = [p for name, p in model.named_parameters() if not name.startswith(("head", "final_norm"))]
    found, expected = model.hidden(ids)[0], by_hand(model, model.embedding.weight[ids], sites)
    assert relative_error(found, expected) < 1e-12
    weight = torch.randn(found.shape, dtype=torch.float64, generator=generator)
    grads, by_loop = (torch.autograd.grad((each * weight).sum(), used) for each in (found, expected))
    for one, other in zip(grads, by_loop, strict=True):
        assert (one - other).abs().max() <= 1e-10 * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize(
    "name", ["attention", "deltanet", "linear_attention", "rwkv7", "deltaproduct", "mlstm", "mamba2"]
)
@torch.no_grad()
def test_streams_are_the_whole_and_their_state_is_counted(
    generator: torch.Generator, randomise: Any, relative_error: Any, name: str
) -> None:
    model, plain = randomise(build(name, "ABCD")), build(name, "none")
    ids = torch.randint(VOCAB, (B, 65), generator=generator)
    whole = model.hidden(ids)[0]
    for sizes in ([65], [1] * 65, [2, 1, 30, 32]):
        states, parts = model.init_states(B, capacity=65), []
        for part in ids.split(sizes, dim=1):
            y, states = model.hidden(part, states)
            parts.append(y)
        assert relative_error(torch.cat(parts, dim=1), whole) < 1e-9
        held = sum(part.numel() for part in tensors(states) if part.is_floating_point()) // B
        size = model.state_size(65)
        assert size is not None
        assert held == size.total
    before = plain.state_size(65)
    assert before is not None
    project = model.mixers[0].project
    channels = project.widths[0] + project.widths[1] + project.widths[2]
    more = size.convolution - before.convolution
    assert more == 2 * 3 * (D + channels + D + 2 * HIDDEN)
    assert size._replace(convolution=before.convolution) == before


@torch.no_grad()
def test_no_token_sees_a_later_one(generator: torch.Generator, randomise: Any) -> None:
    model = randomise(build("attention", "ABCD"))
    ids = torch.randint(VOCAB, (B, 20), generator=generator)
    whole = model.hidden(ids)[0]
    for t in (1, 5, 19):
        changed = torch.cat([ids[:, :t], (ids[:, t:] + 1) % VOCAB], dim=1)
        assert torch.equal(model.hidden(changed)[0][:, :t], whole[:, :t])


def test_keys_of_unit_length_keep_it_behind_a_canon_layer(generator: torch.Generator, randomise: Any) -> None:
    """B stands before the l2 norm, without which a delta rule may diverge."""
    mixer = randomise(build("deltanet", "B")).mixers[0]
    x = torch.randn(B, 9, D, dtype=torch.float64, generator=generator)
    _, k, _, _ = mixer.project(x, None)
    torch.testing.assert_close(k.norm(dim=-1), torch.ones_like(k[..., 0]), rtol=1e-4, atol=0)


def test_models_without_are_what_they_were() -> None:
    plain, all_sites = build("attention", "none"), build("attention", "ABCD")
    assert not any("canon" in name for name in plain.state_dict())
    for name, weight in plain.state_dict().items():
        assert torch.equal(weight, all_sites.state_dict()[name])
    assert "canon" not in BackboneSettings().identity()
    assert BackboneSettings(canon="AC").identity()["canon"] == "AC"
    first, same, other = (
        plan("mqar/quick", ["deltanet"], device="cpu", settings=settings)[0].id
        for settings in ({}, {"model.canon": "none"}, {"model.canon": "A"})
    )
    assert first == same != other
    assert "short_convolution" in kernel_families(BackboneSettings(canon="A"), ())
    assert "short_convolution" not in kernel_families(BackboneSettings(), ())


def test_filters_have_no_weight_decay_and_count_as_operations() -> None:
    model, plain = build("attention", "ABCD"), build("attention", "none")
    filters = [name for name, part in model.named_modules() if isinstance(part, ShortConvolution)]
    assert len(filters) == 2 * 4
    rules = model.parameter_rules()
    assert all(rules[f"{name}.weight"].decay is False for name in filters)
    more = (model.flops_per_token(10, 1) or 0) - (plain.flops_per_token(10, 1) or 0)
    assert more == 2 * 2 * 4 * (D + 3 * D + D + 2 * HIDDEN)
    assert model.parameter_count() - plain.parameter_count() == more / 2


REFUSED: dict[str, dict[str, Any]] = {
    "other letters": {"name": "attention", "canon": "AE"},
    "another order": {"name": "attention", "canon": "BA"},
    "nothing": {"name": "attention", "canon": ""},
    "no heads": {"name": "h3", "canon": "AB"},
    "keys tied to decays": {"name": "hgrn2", "canon": "B"},
    "latents": {"name": "mla", "canon": "B"},
    "no channel mixer": {"name": "mamba", "canon": "AC", "channel_mixer": "own"},
    "another channel mixer": {"name": "attention", "canon": "ABCD", "channel_mixer": "rwkv7"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_sites_that_are_not_there_are_refused(case: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        build(**REFUSED[case])
    assert str(refused.value) == snapshot
