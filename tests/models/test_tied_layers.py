"""Tied layers: one set of weights that stands in several places of a model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.engine.stack import Stack
from linbench.models.attention import Attention
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import StateSize
from linbench.models.deltanet import DeltaNet
from linbench.results.comparison import comparisons
from tests.helpers.cells import plan

B, T, D, VOCAB = 2, 13, 16, 20
MIXERS = [DeltaNet, Attention, DeltaNet, Attention]


def build(tied: str, *, seed: int = 0, **settings: Any) -> Backbone:
    layers = [Layer(mixer, mixer.Settings(heads=2)) for mixer in MIXERS]
    return Backbone(BackboneSettings(d_model=D, tied=tied, **settings), layers, IO(VOCAB, VOCAB), seed=seed)


def pair(randomise: Any, **settings: Any) -> tuple[Backbone, Backbone]:
    """A model whose attention is tied, and one of the same weights in which nothing is."""
    tied, apart = randomise(build("attention", **settings)).double(), build("none", **settings).double()
    apart.load_state_dict(tied.state_dict())
    return tied, apart


@pytest.fixture
def ids(generator: torch.Generator) -> Tensor:
    return torch.randint(VOCAB, (B, T), generator=generator)


@pytest.mark.parametrize("settings", [{}, {"canon": "ABCD", "loops": 2}, {"channel_mixer": "none"}], ids=str)
def test_tied_layers_compute_what_equal_layers_do(
    ids: Tensor, randomise: Any, relative_error: Any, settings: dict[str, Any]
) -> None:
    tied, apart = pair(randomise, **settings)
    assert tied.mixers[1] is tied.mixers[3]
    assert tied.mixer_norms[1] is tied.mixer_norms[3]
    outputs = [model.hidden(ids)[0] for model in (tied, apart)]
    assert torch.equal(*outputs)
    weight = torch.linspace(-1, 2, outputs[0].numel(), dtype=torch.float64).sin().view_as(outputs[0])
    for output in outputs:
        (weight * output).sum().backward()
    of_apart = dict(apart.named_parameters())
    for name, parameter in tied.named_parameters():
        parts = [of_apart[name].grad]
        if name.split(".")[1] == "1":
            parts.append(of_apart[name.replace(".1.", ".3.", 1)].grad)
        elif name.startswith("canons.") and name.split(".")[1][1:] == "1":
            parts.append(of_apart[name.replace("1.", "3.", 1)].grad)
        if parameter.grad is not None:
            assert relative_error(parameter.grad, sum(part for part in parts if part is not None)) < 1e-9


@torch.no_grad()
def test_weights_count_once_and_states_and_operations_for_each_place(ids: Tensor, randomise: Any) -> None:
    tied, apart = pair(randomise, canon="ABCD")
    shared = [tied.mixers[1], tied.mixer_norms[1], tied.channel_mixers["1"], tied.channel_norms["1"]]
    shared += [tied.canons["A1"], tied.canons["C1"]]
    once = sum(parameter.numel() for part in shared for parameter in part.parameters())
    assert tied.parameter_count() == apart.parameter_count() - once
    assert tied.state_size(T) == apart.state_size(T) != StateSize()
    assert tied.flops_per_token(T, 1) == apart.flops_per_token(T, 1)
    assert [*tied.first_token_shares(ids)] == [*apart.first_token_shares(ids)] == [1, 3]
    assert tied.parameter_rules().keys() == dict(tied.named_parameters()).keys()


@torch.no_grad()
def test_each_place_carries_a_state_of_its_own(ids: Tensor, randomise: Any, relative_error: Any) -> None:
    tied, _ = pair(randomise)
    whole, _ = tied.hidden(ids)
    states, parts = tied.init_states(B, capacity=T), []
    for part in ids.split([4, 1, 8], dim=1):
        x, states = tied.hidden(part, states)
        parts.append(x)
    assert relative_error(torch.cat(parts, dim=1), whole) < 1e-9
    assert not torch.equal(states[1].mixer.keys, states[3].mixer.keys)


def test_replicas_of_tied_models_are_one_program(ids: Tensor, randomise: Any, relative_error: Any) -> None:
    models = [randomise(build("attention", seed=seed)).double() for seed in range(2)]
    positions = torch.arange(T).expand(B, T)
    expected = torch.stack([model(ids, positions, ids) for model in models])
    leaves = [dict(model.named_parameters()) for model in models]
    wanted = [torch.autograd.grad(loss, [*own.values()]) for loss, own in zip(expected, leaves, strict=True)]
    stack = Stack.of(models)
    losses = stack(ids.expand(2, B, T), positions.expand(2, B, T), ids.expand(2, B, T))
    assert relative_error(losses, expected) < 1e-12
    stack.differentiate(losses)
    (flat,) = stack.flats
    for i, gradient in enumerate(flat.views(flat.gradients).values()):
        assert relative_error(gradient, torch.stack([of_one[i] for of_one in wanted])) < 1e-9


def test_models_without_ties_are_what_they_were() -> None:
    assert "tied" not in BackboneSettings().identity()
    plain, none, tied = (
        plan("mqar/quick", ["2xattention"], device="cpu", settings=settings)[0].id
        for settings in ({}, {"model.tied": "none"}, {"model.tied": "attention"})
    )
    assert plain == none != tied


def test_tied_models_may_stand_beside_others_in_the_controlled_form(a_result: Any) -> None:
    around = {}, {"tied": "attention"}
    found = [a_result(label=f"model {i}", around=each, form="controlled") for i, each in enumerate(around)]
    assert len(comparisons(found)) == 1


def test_only_equal_layers_are_tied() -> None:
    for model, tied in (("attention+deltanet", "gla"), ("attention+attention[window=4]", "attention")):
        with pytest.raises(UserError, match=r"model\.tied"):
            plan("mqar/quick", [model], device="cpu", settings={"model.tied": tied})
