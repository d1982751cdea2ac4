"""Values made by the linear map of keys: each variant that takes `share_kv` is the one in which the maps of
keys and of values are alike."""

from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor
from torch.func import functional_call

from linbench.common.errors import UserError
from linbench.experiments.registry import SHIPPED, registry
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.heads import share_input
from linbench.models.deltanet import DeltaNet
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.hgrn2 import HGRN2
from linbench.models.mamba2 import Mamba2
from linbench.models.mamba3 import Mamba3
from linbench.models.mesanet import MesaNet
from linbench.models.rwkv7 import RWKV7
from tests.helpers.cells import plan
from tests.helpers.every_variant import tensors
from tests.helpers.models import B, D, Error, Randomise, build_mixer, streamed

SECOND = LayerInfo(1, 2, D)
ALIKE: dict[str, Any] = {"expand_k": 1.0, "expand_v": 1.0, "silent": False}
MIXERS: dict[str, type[Mixer]] = {
    name: entry.cls
    for name, entry in registry("model").entries.items()
    if entry.source == SHIPPED
    and (field := entry.cls.Settings.model_fields.get("share_kv"))
    and field.annotation is bool
}
"""The variants in which the linear map of keys may make values, too."""
FORMS = [*MIXERS, *(f"controlled {name}" for name in MIXERS)]
each_form = pytest.mark.parametrize("form", FORMS)


def pair(form: str) -> tuple[Any, Any]:
    """Return a layer with one map for keys and values, and the same with two."""
    cls = MIXERS[form.removeprefix("controlled ")]
    settings = (cls.controlled or {}) if form.startswith("controlled") else {}
    settings = {**settings, **ALIKE} | ({"groups": None} if issubclass(cls, Mamba2 | Mamba3) else {})
    return build_mixer(cls, SECOND, **settings, share_kv=True), build_mixer(cls, SECOND, **settings)


def doubled(shared: Any) -> dict[str, Tensor]:
    """Return the weights of the layer with two maps with which it is `shared`, whose gradients they have."""
    weights = {**dict(shared.named_parameters()), **dict(shared.named_buffers())}
    q, k = weights["project.linear.weight"].split(shared.project.mapped)
    return weights | {"project.linear.weight": torch.cat([q, k, k])}


@each_form
@pytest.mark.parametrize("length", [1, 65])
def test_outputs_states_and_gradients_are_those_of_maps_that_are_alike(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str, length: int
) -> None:
    shared, apart = pair(form)
    randomise(shared)
    x = torch.randn(B, length, D, dtype=torch.float64, generator=generator).requires_grad_()
    wanted, found = [x, *shared.parameters()], []
    for out in (shared(x), functional_call(apart, doubled(shared), (x,))):
        numbers = torch.cat([each.flatten() for each in (out.y, *tensors(out.state))])
        loss = (numbers * torch.linspace(-1, 2, len(numbers), dtype=torch.float64).sin()).sum()
        found.append([numbers.detach(), *torch.autograd.grad(loss, wanted, materialize_grads=True)])
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= 1e-9 * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("name", ["deltanet", "rwkv7", "mesanet", "controlled gated_deltaproduct"])
@torch.no_grad()
def test_streams_are_the_whole(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, name: str
) -> None:
    shared = randomise(pair(name)[0])
    x = torch.randn(B, 100, D, dtype=torch.float64, generator=generator)
    expected = shared(x).y
    assert all(relative_error(y, expected) < 1e-9 for y in streamed(shared, x, prompt=90))


@each_form
def test_one_map_less_is_counted(form: str) -> None:
    shared, apart = pair(form)
    parameters, before = (sum(p.numel() for p in mixer.parameters()) for mixer in (shared, apart))
    assert parameters == before - shared.project.steps * D * D
    assert shared.state_floats(70) == apart.state_floats(70)
    assert shared.recurrence_flops(70) == apart.recurrence_flops(70)


@pytest.mark.parametrize("name", MIXERS)
def test_identities_are_what_they_were(name: str) -> None:
    settings = MIXERS[name].Settings
    assert "share_kv" not in settings().identity()
    assert settings(share_kv=True).identity()["share_kv"] is True
    first, second = (
        plan("mqar/quick", [model], device="cpu")[0].id for model in (name, f"{name}[share_kv=false]")
    )
    assert first == second


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (GatedDeltaNet, {}),
        (DeltaNet, {"heads": 4, "key_heads": 2}),
        (Mamba2, {"expand_v": 1.0}),
        (Mamba3, {"expand_v": 1.0, "groups": None, "rank": 2}),
        (HGRN2, {}),
        (DeltaNet, {"share_kv": "both"}),
    ],
    ids=["wider values", "shared keys", "one key", "several keys", "tied keys", "neither true nor false"],
)
def test_maps_that_cannot_be_one_are_refused(
    cls: type[Mixer], settings: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        build_mixer(cls, **{"share_kv": True} | settings)
    assert str(refused.value) == snapshot


def test_a_convolution_of_keys_alone_leaves_values_as_the_map_makes_them(generator: torch.Generator) -> None:
    mixer = build_mixer(MesaNet, share_kv=True)
    x = torch.randn(B, 9, D, dtype=torch.float64, generator=generator)
    _, k, v, _ = mixer.project(x, None)
    torch.testing.assert_close(v.flatten(2), x @ mixer.project.linear.weight[D:].T)
    assert not torch.allclose(k, v)


def test_the_one_map_of_rwkv7_starts_as_that_of_values() -> None:
    mixer = build_mixer(RWKV7, share_kv=True)
    q, k = mixer.project.linear.weight.detach().split(mixer.project.mapped)
    for part in (q, k):
        assert part.abs().max() == pytest.approx(0.5 * D**-0.5, rel=0.05)


@torch.no_grad()
def test_least_squares_from_keys_to_themselves_return_the_query(generator: torch.Generator) -> None:
    mixer = build_mixer(MesaNet, share_kv=True, conv=0, qk_norm="none", method="exact", decay="none")
    given = share_input(torch.randn(B, 40, D, dtype=torch.float64, generator=generator), mixer, mixer.readout)
    q, k, v, _ = mixer.project(given, None)
    assert torch.equal(k, v)
    o, _ = mixer.regress(q, k, v, None, ridge=torch.tensor(1e-9, dtype=torch.float64))
    torch.testing.assert_close(o[:, 20:], q[:, 20:], rtol=0, atol=1e-6)
