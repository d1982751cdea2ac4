from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from linbench.common.task_io import IO
from linbench.engine.stack import Stack
from linbench.models.attention import Attention
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.base import LayerInfo, Mixer, Rule, StateSize
from linbench.models.deltanet import DeltaNet
from linbench.models.gated_deltanet import GatedDeltaNet
from linbench.models.linear_attention import LinearAttention

B, T, D, VOCAB = 2, 23, 16, 20
PATTERNS: dict[str, list[type[Mixer]]] = {
    "deltanet": [DeltaNet],
    "3xgated+attention": [GatedDeltaNet, GatedDeltaNet, GatedDeltaNet, Attention],
    "all": [LinearAttention, Attention, DeltaNet, GatedDeltaNet],
}
Error = Callable[[Tensor, Tensor], float]
Randomise = Callable[[Backbone], Backbone]


def build(
    mixers: Sequence[type[Mixer]],
    *,
    seed: int = 0,
    io: IO | None = None,
    layer: dict[str, Any] | None = None,
    **settings: Any,
) -> Backbone:
    layers = [Layer(mixer, mixer.Settings(heads=2, **(layer or {}))) for mixer in mixers]
    return Backbone(BackboneSettings(d_model=D, **settings), layers, io or IO(VOCAB, VOCAB), seed=seed)


@pytest.fixture
def ids(generator: torch.Generator) -> Tensor:
    return torch.randint(VOCAB, (B, T), generator=generator)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("channel_mixer", ["swiglu", "none", "identity"])
@torch.no_grad()
def test_logits_are_those_of_the_whole_sequence_at_the_positions(
    ids: Tensor,
    randomise: Randomise,
    relative_error: Error,
    generator: torch.Generator,
    pattern: str,
    channel_mixer: str,
) -> None:
    model = randomise(build(PATTERNS[pattern], channel_mixer=channel_mixer)).double()
    everywhere = model(ids, torch.arange(T).expand(B, T))
    assert everywhere.shape == (B, T, VOCAB)
    positions = torch.randint(T, (B, 6), generator=generator)
    logits = model(ids, positions)
    assert logits.shape == (B, 6, VOCAB)
    for row in range(B):
        assert relative_error(logits[row], everywhere[row, positions[row]]) < 1e-12


@pytest.mark.parametrize("pattern", PATTERNS)
@torch.no_grad()
def test_states_carried_through_all_layers_equal_the_whole(
    ids: Tensor, randomise: Randomise, relative_error: Error, pattern: str
) -> None:
    model = randomise(build(PATTERNS[pattern])).double()
    whole, _ = model.hidden(ids)
    assert relative_error(whole, model.embedding(ids)) > 1e-2
    for sizes in ([T], [1] * T, [5, 1, 10, 7], [22, 1]):
        states, parts = model.init_states(B, capacity=T), []
        assert len(states) == len(PATTERNS[pattern])
        for part in ids.split(sizes, dim=1):
            x, states = model.hidden(part, states)
            parts.append(x)
        assert relative_error(torch.cat(parts, dim=1), whole) < 1e-9


@torch.no_grad()
def test_a_prefix_is_blind_to_what_follows(ids: Tensor, randomise: Randomise) -> None:
    model = randomise(build(PATTERNS["all"]))
    whole, _ = model.hidden(ids)
    for t in (1, 11, 22):
        changed = torch.cat([ids[:, :t], (ids[:, t:] + 1) % VOCAB], dim=1)
        x, _ = model.hidden(changed)
        assert torch.equal(x[:, :t], whole[:, :t])
        assert not torch.equal(x[:, t:], whole[:, t:])


def by_hand(model: Backbone, x: Tensor, channel_mixer: str) -> Tensor:
    """Logits everywhere from the embedded inputs [B, T, D]; only the mixers are called."""

    def norm(part: nn.Module, x: Tensor) -> Tensor:
        if isinstance(part, nn.LayerNorm):
            x = x - x.mean(-1, keepdim=True)
            return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * part.weight + part.bias
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * part.weight

    for i, mixer in enumerate(model.mixers):
        x = x + mixer(norm(model.mixer_norms[i], x)).y
        if channel_mixer == "identity":
            x = x + norm(model.channel_norms[str(i)], x)
        elif channel_mixer == "swiglu":
            gate, value = (
                norm(model.channel_norms[str(i)], x) @ model.channel_mixers[str(i)].up.weight.T
            ).chunk(2, dim=-1)
            x = x + (gate * gate.sigmoid() * value) @ model.channel_mixers[str(i)].down.weight.T
    return norm(model.final_norm, x) @ model.head.weight.T


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("channel_mixer", ["swiglu", "none", "identity"])
@torch.no_grad()
def test_what_surrounds_the_mixers_is_as_written_by_hand(
    ids: Tensor, randomise: Randomise, relative_error: Error, norm: str, channel_mixer: str
) -> None:
    model = randomise(build([DeltaNet, Attention], norm=norm, channel_mixer=channel_mixer)).double()
    logits = model(ids, torch.arange(T).expand(B, T))
    assert relative_error(logits, by_hand(model, model.embedding.weight[ids], channel_mixer)) < 1e-12
    assert sum(isinstance(part, nn.LayerNorm) for part in model.modules()) == (
        0 if norm == "rms" else 3 if channel_mixer == "none" else 5
    )


@torch.no_grad()
def test_what_is_not_asked_for_changes_no_bit(ids: Tensor, randomise: Randomise) -> None:
    model = randomise(build([DeltaNet, Attention])).train()
    before, x = torch.get_rng_state(), model.embedding(ids)
    for i, mixer in enumerate(model.mixers):
        x = x + mixer(model.mixer_norms[i](x)).y
        x = x + model.channel_mixers[str(i)](model.channel_norms[str(i)](x))[0]
    assert torch.equal(model.hidden(ids)[0], x)
    assert torch.equal(torch.get_rng_state(), before)
    plain, dropping = (
        build([DeltaNet, Attention]).state_dict(),
        build([DeltaNet, Attention], embedding_dropout=0.5, norm="rms").state_dict(),
    )
    assert plain.keys() == dropping.keys()
    assert all(torch.equal(plain[name], dropping[name]) for name in plain)


@torch.no_grad()
def test_dropout_is_of_the_embedded_inputs_and_only_in_training(
    relative_error: Error, generator: torch.Generator
) -> None:
    model = build([], embedding_dropout=0.25)
    ids = torch.randint(VOCAB, (40, T), generator=generator)
    x = model.embedding(ids)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dropped = model.train().hidden(ids)[0]
    kept = dropped != 0
    assert relative_error(dropped[kept], (x / 0.75)[kept]) < 1e-6
    assert 1 - kept.double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(model.eval().hidden(ids)[0], x)


def test_replicas_of_a_stack_drop_out_apart_and_learn(ids: Tensor) -> None:
    models = [
        build([DeltaNet], embedding_dropout=0.3, norm="layer", channel_mixer="identity") for _ in range(3)
    ]
    stack, positions = Stack.of(models), torch.arange(T).expand(3, B, T)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second, third = stack(ids.expand(3, B, T), positions)
        assert not torch.equal(first, second)
        assert not torch.equal(first, third)
        stack(ids.expand(3, B, T), positions, ids.expand(3, B, T)).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in stack.parameters.values())
    models[0].eval()
    one, other, _ = stack(ids.expand(3, B, T), positions)
    assert torch.equal(one, other)


@torch.no_grad()
def test_several_ids_per_token_are_summed(ids: Tensor, randomise: Randomise, relative_error: Error) -> None:
    several = torch.stack([ids, ids.flip(1), (ids + 3) % VOCAB], dim=2)
    bare = build([])
    expected = sum(F.embedding(part, bare.embedding.weight) for part in several.unbind(2))
    assert relative_error(bare.hidden(several)[0], expected) < 1e-6
    model = randomise(build(PATTERNS["all"])).double()
    one, _ = model.hidden(ids[:, :, None])
    assert torch.equal(one, model.hidden(ids)[0])
    assert relative_error(model.hidden(several[:, :, [2, 0, 1]])[0], model.hidden(several)[0]) < 1e-9
    assert model(several, torch.zeros(B, 1, dtype=torch.int64)).shape == (B, 1, VOCAB)


@torch.no_grad()
def test_a_fresh_model_passes_the_embedding_through(ids: Tensor) -> None:
    model = build(PATTERNS["all"])
    assert torch.equal(model.hidden(ids)[0], model.embedding(ids))


def test_layers_are_told_their_place() -> None:
    model = build(PATTERNS["all"])
    assert [mixer.layer for mixer in model.mixers] == [LayerInfo(index, 4, D) for index in range(4)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_weights_are_a_function_of_the_seed(pattern: str) -> None:
    first, again, other = (build(PATTERNS[pattern], seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [
        name
        for name in first
        if name.endswith(
            (
                "project.linear.weight",
                "project.conv.weight",
                "embedding.weight",
                "up.weight",
                "A_log",
                "dt_bias",
            )
        )
    ]
    assert len(drawn) >= 2 * len(PATTERNS[pattern])
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def test_layers_of_one_kind_start_differently() -> None:
    model = build([DeltaNet, DeltaNet])
    assert not torch.equal(model.mixers[0].project.linear.weight, model.mixers[1].project.linear.weight)
    assert not torch.equal(model.channel_mixers["0"].up.weight, model.channel_mixers["1"].up.weight)


def test_no_part_starts_differently_for_what_the_others_are() -> None:
    model, changed, longer = (
        build([DeltaNet, GatedDeltaNet]).state_dict(),
        build([DeltaNet, Attention]).state_dict(),
        build([DeltaNet] * 3).state_dict(),
    )
    for name in model:
        if not name.startswith("mixers.1."):
            assert torch.equal(model[name], changed[name]), name
            assert torch.equal(model[name], longer[name]), name


def test_building_leaves_the_global_random_state_and_does_not_read_it() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        first = build(PATTERNS["all"]).state_dict()
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(6)
        second = build(PATTERNS["all"]).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


HIDDEN = 48  # 8/3 of 16 is 42.7; the next multiple of 8
OF_MIXER = {"deltanet": 4 * D * D + 4 * 3 * D + D // 2 + 2 * D, "attention": 4 * D * D}


@pytest.mark.parametrize(
    ("tie", "vocab_out", "heads"),
    [(True, VOCAB, 0), (False, VOCAB, VOCAB * D), (True, 7, 7 * D)],
    ids=["tied", "untied", "cannot be tied"],
)
def test_parameter_count(tie: bool, vocab_out: int, heads: int) -> None:
    model = build([DeltaNet, Attention], io=IO(VOCAB, vocab_out), tie_embeddings=tie)
    channel = 3 * D * HIDDEN + D
    assert model.parameter_count() == VOCAB * D + heads + D + sum(OF_MIXER.values()) + 2 * (D + channel)
    assert model.parameter_count() == sum(p.numel() for p in model.parameters())
    assert (model.head.weight is model.embedding.weight) == (heads == 0)
    without = build([DeltaNet, Attention], io=IO(VOCAB, vocab_out), tie_embeddings=tie, channel_mixer="none")
    assert model.parameter_count() - without.parameter_count() == 2 * channel
    identity = build(
        [DeltaNet, Attention],
        io=IO(VOCAB, vocab_out),
        tie_embeddings=tie,
        channel_mixer="identity",
        norm="layer",
    )
    assert identity.parameter_count() - without.parameter_count() == 2 * D + 5 * D


def test_flops_per_token_worked_by_hand() -> None:
    model = build([DeltaNet], io=IO(VOCAB, 10))
    projections = 2 * (D * 3 * D + 4 * 3 * D + 2 * D + D * D)
    recurrence = 2 * 8 * 8 * 6
    channel = 2 * 3 * D * HIDDEN
    head = 2 * D * 10 * 3 / 12
    assert model.flops_per_token(12, 3) == pytest.approx(projections + recurrence + channel + head)


@pytest.mark.parametrize(
    ("window", "keys"), [(None, (1 + 2 + 3 + 4) / 4), (2, (1 + 2 + 2 + 2) / 4), (9, (1 + 2 + 3 + 4) / 4)]
)
def test_flops_of_attention_count_the_keys_that_are_seen(window: int | None, keys: float) -> None:
    model = build([Attention], layer={"window": window}, channel_mixer="none")
    assert model.flops_per_token(4, 0) == pytest.approx(2 * 4 * D * D + 2 * 2 * D * keys)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("channel_mixer", ["swiglu", "none", "identity"])
def test_flops_of_linear_layers_are_those_that_torch_counts(
    ids: Tensor, pattern: str, channel_mixer: str
) -> None:
    model = build(PATTERNS[pattern], channel_mixer=channel_mixer)
    answers = 6
    with FlopCounterMode(display=False, depth=99) as counter, torch.no_grad():
        model(ids, torch.zeros(B, answers, dtype=torch.int64))
    products = (torch.ops.aten.mm, torch.ops.aten.addmm)
    counted = sum(counter.get_flop_counts()["Backbone"].get(name, 0) for name in products)
    convolutions = sum(2 * p.numel() for name, p in model.named_parameters() if name.endswith("conv.weight"))
    recurrences = sum(mixer.recurrence_flops(T) for mixer in model.mixers)
    stated = B * T * (model.flops_per_token(T, answers) - convolutions - recurrences)
    assert counted > 0
    assert stated == pytest.approx(counted, rel=0.05)


def test_state_size_is_the_sum_over_layers() -> None:
    model = build([DeltaNet, Attention])
    assert model.state_size(T) == StateSize(recurrent=2 * 8 * 8, cache=2 * D * T, convolution=3 * 3 * D)


class Undeclared(DeltaNet):
    """A layer that does not say what it needs."""

    def state_floats(self, seq_len: int) -> None:
        return None

    def recurrence_flops(self, seq_len: int) -> None:
        return None


def test_one_undeclared_layer_makes_the_sum_unknown() -> None:
    model = build([DeltaNet, Undeclared])
    assert model.state_size(T) is None
    assert model.flops_per_token(T, 1) is None


def test_rules_name_every_parameter_and_spare_what_must_not_decay() -> None:
    model = build([GatedDeltaNet, Attention, DeltaNet], layer={"qk_norm": "l2", "conv": 4})
    rules = model.parameter_rules()
    assert rules.keys() == dict(model.named_parameters()).keys()
    spared = {name for name, rule in rules.items() if rule.decay is False}
    convolutions = {f"mixers.{i}.project.conv.weight" for i in range(3)}
    assert spared == convolutions | {"mixers.0.decay.A_log", "mixers.0.decay.dt_bias", "mixers.1.scale"}
    assert all(rule == Rule() for name, rule in rules.items() if name not in spared)


def test_norms_and_filters_of_heads_do_not_decay_though_they_are_matrices() -> None:
    model = build([DeltaNet, Attention], layer={"output_norm": "layer", "conv": 4})
    matrices = [name for name, x in model.named_parameters() if x.dim() > 1]
    spared = {
        name for name, rule in model.parameter_rules().items() if name in matrices and rule.decay is False
    }
    assert spared == {name for name in matrices if "norm" in name or "conv" in name}
    assert len(spared) >= 6


def test_vectors_in_and_vectors_out() -> None:
    model = build([DeltaNet], io=IO(None, None, d_in=5, d_out=3))
    inputs, positions = (
        torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[1, 5], [0, 2]]),
    )
    found = model(inputs, positions)
    assert found.shape == (2, 2, 3)
    assert torch.equal(
        found,
        model.head(
            model.final_norm(model.hidden(inputs)[0].gather(1, positions[:, :, None].expand(-1, -1, D)))
        ),
    )
    targets = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(1))
    assert model(inputs, positions, targets).item() == pytest.approx((found - targets).square().mean().item())
    other = inputs.clone()
    other[0, 2:] += 1
    assert torch.equal(model(other, positions)[0, 0], found[0, 0])
    assert not torch.equal(model(other, positions)[0, 1], found[0, 1])


def test_a_code_is_read_from_the_last_token_alone(randomise: Callable[[nn.Module], nn.Module]) -> None:
    model = randomise(build([DeltaNet], io=IO(VOCAB, VOCAB, readout="code")))
    inputs = torch.randint(VOCAB, (2, 6), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(6).expand(2, 6)
    found = model(inputs, positions)
    assert found.shape == (2, 6, VOCAB)
    assert not torch.equal(found[:, 0], found[:, 1]), "places are told apart"
    assert torch.allclose(model(inputs, positions.flip(1)), found.flip(1))
    stream = model.hidden(inputs)[0]
    assert torch.allclose(found, model.head(model.final_norm(model.decoder(stream[:, -1], positions))))
    targets = torch.randint(VOCAB, (2, 6), generator=torch.Generator().manual_seed(1))
    assert model(inputs, positions, targets).item() == pytest.approx(
        F.cross_entropy(found.flatten(0, 1), targets.flatten()).item(), rel=1e-5
    )
