"""Looped layers: the stack of layers as a function that is applied several times."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.engine.cost import least_bytes
from linbench.experiments.cell import Cell
from linbench.models.attention import Attention
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import Mixer, StateSize
from linbench.models.deltanet import DeltaNet
from linbench.models.rwkv7 import RWKV7
from linbench.results.comparison import comparisons
from tests.helpers.cells import plan
from tests.helpers.every_variant import tensors

B, T, D, VOCAB, LOOPS = 2, 23, 16, 20, 3
PATTERNS: dict[str, tuple[list[type[Mixer]], dict[str, Any]]] = {
    "hybrid with canon layers": ([DeltaNet, Attention], {"canon": "ABCD"}),
    # the first layer's values go to the second, and its channel mixer has a state
    "rwkv7": ([RWKV7, RWKV7], {"channel_mixer": "own"}),
}
each_pattern = pytest.mark.parametrize("pattern", PATTERNS)


def build(pattern: str, loops: int) -> Backbone:
    mixers, settings = PATTERNS[pattern]
    layers = [Layer(mixer, mixer.Settings(heads=2)) for mixer in mixers]
    around = BackboneSettings(d_model=D, loops=loops, **settings)
    return Backbone(around, layers, IO(VOCAB, VOCAB), seed=0).double()


def pair(pattern: str, randomise: Any) -> tuple[Backbone, Backbone]:
    """Return a looped model and one that runs its layers once, with the same weights."""
    looped, once = randomise(build(pattern, LOOPS)), build(pattern, 1)
    once.load_state_dict(looped.state_dict())
    return looped, once


@pytest.fixture
def ids(generator: torch.Generator) -> Tensor:
    return torch.randint(VOCAB, (B, T), generator=generator)


@each_pattern
def test_loops_apply_the_layers_again_with_the_same_weights(
    ids: Tensor, randomise: Any, relative_error: Any, pattern: str
) -> None:
    looped, once = pair(pattern, randomise)
    embedding, once.embedding = once.embedding, nn.Identity()
    stream = embedding(ids)
    for _ in range(LOOPS):
        stream, _ = once.hidden(stream)
    found, _ = looped.hidden(ids)
    assert relative_error(found, stream) < 1e-12
    weight = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).sin().view_as(found)
    for output in (found, stream):
        (weight * output).sum().backward()
    for name, parameter in once.mixers.named_parameters():
        own = looped.mixers.get_parameter(name).grad
        assert parameter.grad is None if own is None else relative_error(own, parameter.grad) < 1e-9


@each_pattern
@torch.no_grad()
def test_streams_carry_a_state_for_each_loop(
    ids: Tensor, randomise: Any, relative_error: Any, pattern: str
) -> None:
    looped, _ = pair(pattern, randomise)
    whole, _ = looped.hidden(ids)
    for sizes in ([T - 1, 1], [5, 1, 10, 7]):
        states, parts = looped.init_states(B, capacity=T), []
        assert len(states) == LOOPS * len(looped.mixers)
        for part in ids.split(sizes, dim=1):
            x, states = looped.hidden(part, states)
            parts.append(x)
        assert relative_error(torch.cat(parts, dim=1), whole) < 1e-9
    held = sum(part.numel() for part in tensors(states) if part.is_floating_point()) // B
    size = looped.state_size(T)
    assert size is not None
    assert held == size.total


def test_weights_count_once_and_states_and_operations_for_each_loop(randomise: Any) -> None:
    looped, once = pair("hybrid with canon layers", randomise)
    assert looped.parameter_count() == once.parameter_count()
    assert looped.parameter_rules() == once.parameter_rules()
    assert looped.state_size(T) == StateSize(*(LOOPS * floats for floats in once.state_size(T) or ()))
    of_head = 2 * D * VOCAB * 4 / T
    assert (looped.flops_per_token(T, 4) or 0) - of_head == pytest.approx(
        LOOPS * ((once.flops_per_token(T, 4) or 0) - of_head)
    )


@torch.no_grad()
def test_first_tokens_have_a_share_in_each_loop(ids: Tensor, randomise: Any) -> None:
    looped, once = pair("hybrid with canon layers", randomise)
    shares = looped.first_token_shares(ids)
    assert [*shares] == [1, 3, 5]
    assert torch.equal(shares[1], once.first_token_shares(ids)[1])
    assert not torch.equal(shares[1], shares[3])


def planned(**settings: Any) -> Cell:
    given = {f"model.{name}": value for name, value in settings.items()}
    return plan("mqar/quick", ["deltanet"], device="cpu", settings=given)[0]


def test_models_without_loops_are_what_they_were() -> None:
    assert "loops" not in BackboneSettings().identity()
    assert planned().id == planned(loops=1).id != planned(loops=2).id


def test_costs_and_sizes_know_of_loops() -> None:
    one, two = planned(), planned(loops=2)
    assert (one.model.depth, two.model.depth) == (2, 4)
    tokens = two.protocol.batch_size * two.task.seq_len
    assert least_bytes(two) - least_bytes(one) == 2 * tokens * one.model.backbone.d_model * 2
    sized = planned(loops=2, recurrent_floats=2048)
    size = sized.model.sketch(sized.task).state_size(sized.task.seq_len)
    assert size is not None
    assert size.recurrent == pytest.approx(2048, rel=0.05)


def test_looped_models_may_stand_beside_others_in_the_controlled_form(a_result: Any) -> None:
    around = {}, {"loops": 2}
    found = [a_result(label=f"model {i}", around=each, form="controlled") for i, each in enumerate(around)]
    assert len(comparisons(found)) == 1


def test_no_loops_at_all_are_refused() -> None:
    with pytest.raises(UserError, match=r"^model\.loops = 0: "):
        planned(loops=0)
