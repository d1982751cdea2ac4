from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.tasks.base import IGNORE, Batch, Mean, Prediction
from linbench.tasks.blocks.overwriting import ASK, FIRST_KEY, PAD, SEP, SET
from linbench.tasks.variable_overwrite import VariableOverwrite

ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "padding": {"noises": 0},
    "no room to spare": {"seq_len": 34},
    "set": {"statement": "set", "noise": 0.5, "seq_len": 80},
    "fused": {"statement": "fused", "seq_len": 32, "noise": 0.5},
    "blockwise": {"schedule": "blockwise", "variables": 6, "seq_len": 80},
    "sequential": {"schedule": "sequential", "overwrites": (1, 2)},
    "decoys": {"noise": 0.75, "noise_kind": "decoy", "keys": 6, "seq_len": 96},
    "mentions": {"noise": 0.75, "noise_kind": "mention", "seq_len": 96},
    "fused mentions": {"statement": "fused", "noise": 0.75, "noise_kind": "mention", "seq_len": 32, "noises": 0},
    "midstream": {"midstream": 9, "seq_len": 80},
    "midstream fused among decoys": {"midstream": 5, "statement": "fused", "noise": 0.5, "noise_kind": "decoy"},
    "few values": {"values": 5, "midstream": 3, "noise": 0.5, "noise_kind": "decoy", "seq_len": 80},
    "n-back": {"control": "n_back", "n": 3, "overwrites": (0, 2, 2, 4)},
    "return all": {"control": "return_all", "seq_len": 80},
    "return all fused": {"control": "return_all", "statement": "fused", "seq_len": 40},
    "reset": {"reset": 2, "seq_len": 128},
    "reset, return all, sequential, sets": {"reset": 1, "control": "return_all", "statement": "set", "schedule": "sequential", "seq_len": 160},
    "reset fused blockwise": {"reset": 1, "statement": "fused", "schedule": "blockwise", "seq_len": 64},
}
Probability = Callable[..., float]


def build(**values: Any) -> VariableOverwrite:
    return VariableOverwrite(VariableOverwrite.Settings.parse(values, where="task"))


def sample(task: VariableOverwrite, count: int, **more: Any) -> Batch:
    return task.sample(torch.arange(count), **{"seed": 0, "split": "train", **more})


@pytest.fixture(params=SETTINGS)
def task(request: pytest.FixtureRequest) -> VariableOverwrite:
    return build(**SETTINGS[request.param])


class Said(NamedTuple):
    """A statement as it is read: where its key stands, its kind, its key and its value or, of a question, how far back."""

    at: int
    kind: str
    key: int = -1
    other: int = -1


def read(task: VariableOverwrite, inputs: Tensor) -> list[Said]:
    """The statements of one sequence, token by token; all else must be filler."""
    s = task.settings
    tokens = inputs.tolist()
    reset = s.reset_mark if s.reset else -1
    older = {mark: back for back, mark in enumerate(s.marks) if back}

    def of(token: int) -> str:
        bounds = ((FIRST_KEY, s.first_value, "key"), (s.first_value, s.first_noise, "value"), (s.first_noise, s.first_noise + s.noises, "filler"))
        return next((name for low, high, name in bounds if low <= token < high), "filler" if token == PAD and not s.noises else "mark")

    def fused(t: int) -> Said | None:
        a, b = tokens[t]
        if of(a) == "key":
            kind = "write" if of(b) == "value" else "mention" if b == SEP else "ask"
            assert kind != "ask" or (b in older or b == PAD)
            return Said(t, kind, a, older.get(b, 0) if kind == "ask" else b)
        if a == reset:
            assert b == PAD
            return Said(t, "reset")
        assert of(a) == of(b) == "filler"
        return None

    def apart(t: int) -> tuple[Said | None, int]:
        here, rest = tokens[t], tokens[t + 1 : t + 4]
        if here == SET:
            assert (s.statement, of(rest[0]), of(rest[1]), rest[2]) == ("set", "key", "value", SEP)
            return Said(t + 1, "write", rest[0], rest[1]), 4
        if of(here) == "key":
            assert (s.statement, of(rest[0])) == ("pair", "value")
            return Said(t, "write", here, rest[0]), 2
        if here == SEP:
            assert (of(rest[0]), rest[1]) == ("key", SEP)
            return Said(t + 1, "mention", rest[0]), 3
        if here == ASK or here in older:
            assert (of(rest[0]), of(rest[1])) == ("key", "filler")
            return Said(t + 1, "ask", rest[0], older.get(here, 0)), 3
        if here == reset:
            return Said(t, "reset"), 1
        assert of(here) == "filler"
        return None, 1

    found, t = [], 0
    while t < len(tokens):
        said, length = (fused(t), 1) if s.width > 1 else apart(t)
        found += [said] if said else []
        t += length
    return found


def test_labels_slices_and_facts_are_those_of_the_sequence_as_it_is_read(task: VariableOverwrite) -> None:
    s = task.settings
    batch = sample(task, 16)
    for row in range(16):
        said = read(task, batch.inputs[row])
        assert Counter(x.kind for x in said if x.kind not in {"write", "mention"}) == Counter({"ask": task.answers, **({"reset": s.reset} if s.reset else {})})
        assert sum(x.kind == "write" for x in said) == s.writes + s.decoys
        assert sum(x.kind == "mention" for x in said) == (s.noise_statements if s.noise_kind == "mention" else 0)
        found = {}
        for number, question in enumerate(said):
            if question.kind == "ask":
                before = [x for x in said[:number] if x.kind in {"write", "reset"}]
                own = [x for x in before if x.kind == "write" and x.key == question.key][::-1]
                back = s.n - 1 if s.control == "n_back" else question.other
                assert not any(x.kind == "reset" and x.at > own[-1].at for x in before), "asked for is what was written after the last reset"
                found[question.at] = {
                    "target": own[back].other,
                    "overwrites": len(own) - 1,
                    "doublings": (question.at - own[back].at).bit_length() - 1,
                    "writes_between": sum(x.kind == "write" and x.key != question.key and x.at > own[back].at for x in before),
                    "history": [x.other for x in own] + [IGNORE] * (max(s.overwrites) + 1 - len(own)),
                }
        assert sorted(found) == sorted(batch.positions[row].tolist())
        for n, at in enumerate(batch.positions[row].tolist()):
            labels = {name: int(x[row, n]) for name, x in batch.slices.items()}
            assert {"target": int(batch.targets[row, n]), **labels, "history": batch.facts["history"][row, n].tolist()} == found[at]


def written(task: VariableOverwrite, batch: Batch) -> list[list[Said]]:
    return [[x for x in read(task, row) if x.kind == "write"] for row in batch.inputs]


def test_every_count_of_overwrites_is_in_every_example_and_keys_and_values_differ() -> None:
    task = build(variables=6, overwrites=(0, 1, 2, 4), values=17, seq_len=96)
    for writes in written(task, sample(task, 50)):
        assert sorted(Counter(x.key for x in writes).values()) == [1, 1, 2, 2, 3, 5]
        assert len({x.other for x in writes}) == len(writes) == 14


def test_where_values_are_too_few_those_of_a_key_differ(chi_squared: Probability) -> None:
    task = build(variables=2, overwrites=(1, 2), values=3, seq_len=32)
    triples: Counter[tuple[int, ...]] = Counter()
    for writes in written(task, sample(task, 1200)):
        of = {key: [x.other - task.settings.first_value for x in writes if x.key == key] for key in {x.key for x in writes}}
        two, three = sorted(of.values(), key=len)
        assert len(set(two)) == 2
        assert len(set(three)) == 3
        triples[*two, *three] += 1
    assert len(triples) == 36
    assert chi_squared(torch.tensor(list(triples.values())), torch.full((36,), 1200 / 36)) > ALPHA


@pytest.mark.parametrize(
    ("schedule", "orders"),
    [
        ("interleaved", {"abb", "bab", "bba"}),
        ("blockwise", {"abb", "bab"}),
        ("sequential", {"abb", "bba"}),
    ],
)
def test_schedules(chi_squared: Probability, schedule: str, orders: set[str]) -> None:
    task = build(variables=2, overwrites=(0, 1), schedule=schedule, seq_len=16)
    found: Counter[str] = Counter()
    for writes in written(task, sample(task, 1200)):
        times = Counter(x.key for x in writes)
        found["".join("ab"[times[x.key] - 1] for x in writes)] += 1
    assert found.keys() == orders
    assert chi_squared(torch.tensor(list(found.values())), torch.full((len(orders),), 1200 / len(orders))) > ALPHA


def test_any_key_is_overwritten_often_and_asked_for_at_any_time(chi_squared: Probability) -> None:
    task = build(variables=2, overwrites=(0, 3), keys=5, seq_len=24)
    batch = sample(task, 4000)
    keys = batch.inputs.gather(1, batch.positions) - FIRST_KEY
    assert chi_squared((5 * keys[:, 0] + keys[:, 1]).bincount(minlength=25)[[i for i in range(25) if i % 6]], torch.full((20,), 200.0)) > ALPHA
    first = batch.positions.argmin(dim=1)
    assert chi_squared(first.bincount(minlength=2), torch.full((2,), 2000.0)) > ALPHA


def test_filler_is_noise_and_inert_noise_is_more_of_it(chi_squared: Probability) -> None:
    task = build(noises=7, noise=1.0, seq_len=64)
    tokens = sample(task, 300).inputs
    assert chi_squared(tokens[tokens >= task.settings.first_noise].bincount()[-7:], torch.full((7,), 300 * 34 / 7)) > ALPHA
    assert build(noise=1.0).settings.needed == build().settings.needed + 2 * 11


@pytest.mark.parametrize(("which", "inert"), [("base", 196), ("hard", 870)])
def test_how_much_noise_there_is_follows_from_the_length_and_inert_statements_move_it_to_the_writes(which: str, inert: int) -> None:
    moved = []
    for noise in (0.0, 0.25, 1.0):
        task = build(**{**VariableOverwrite.presets[which].task, "noise": noise})
        batch = sample(task, 64)
        is_noise = batch.inputs >= task.settings.first_noise
        assert (is_noise.sum(dim=1) == inert).all()
        first_question = batch.positions.min(dim=1, keepdim=True).values
        moved.append(float((is_noise & (torch.arange(task.seq_len) < first_question)).sum(dim=1).double().mean()))
    assert moved[0] + 5 < moved[1] < moved[2] - 5
    decoys = build(**{**VariableOverwrite.presets[which].task, "noise": 1.0, "noise_kind": "decoy"})
    assert (sample(decoys, 64).inputs >= decoys.settings.first_noise).sum(dim=1).max() == inert - 2 * decoys.settings.decoys


def test_decoys_are_keys_that_nobody_asks_for_and_mentions_are_of_those_asked() -> None:
    for kind, asked_for in (("decoy", False), ("mention", True)):
        task = build(noise=1.0, noise_kind=kind, keys=8, seq_len=96)
        batch = sample(task, 60)
        named, alike = set(), 0
        for row in range(60):
            said = read(task, batch.inputs[row])
            asked = {x.key for x in said if x.kind == "ask"}
            noise = [x.key for x in said if x.kind == "mention" or (x.kind == "write" and x.key not in asked)]
            assert len(noise) == 11
            assert all((key in asked) == asked_for for key in noise)
            named |= set(noise)
            alike += len(set(noise)) == 1
        assert len(named) == 8
        assert not alike


def test_questions_between_writes_are_of_any_variable_written_by_then(chi_squared: Probability) -> None:
    task = build(variables=3, overwrites=(0, 0, 1), midstream=1, seq_len=32)
    after: Counter[int] = Counter()
    which: dict[int, Counter[int]] = {1: Counter(), 2: Counter(), 3: Counter()}
    batch = sample(task, 1200)
    for row, at in zip(batch.inputs, batch.positions[:, 0].tolist(), strict=True):
        said = read(task, row)
        question = next(x for x in said if x.at == at)
        before = list(dict.fromkeys(x.key for x in said if x.kind == "write" and x.at < at))
        after[sum(x.kind == "write" and x.at < at for x in said)] += 1
        which[len(before)][before.index(question.key)] += 1
    assert chi_squared(torch.tensor([after[1], after[2], after[3]]), torch.full((3,), 400.0)) > ALPHA, "between, so not after the last"
    for known in (2, 3):
        counts = torch.tensor([which[known][i] for i in range(known)])
        assert chi_squared(counts, torch.full((known,), float(counts.sum()) / known)) > ALPHA


def test_resets_come_after_whole_rounds_of_other_keys() -> None:
    task = build(reset=2, seq_len=128)
    for row in sample(task, 30).inputs:
        said = read(task, row)
        rounds = "".join({"write": "w", "reset": "|", "ask": ""}[x.kind] for x in said).split("|")
        assert [len(x) for x in rounds] == [11, 11, 11]
        assert len({x.key for x in said if x.kind == "write"}) == 12


def test_a_longer_sequence_has_the_same_statements() -> None:
    task = build(noise=0.5)
    longer = build(**{**task.settings.model_dump(), **task.longer(4)})
    assert (longer.seq_len, longer.settings.counts) == (256, task.settings.counts)


@pytest.mark.parametrize("control", [{}, {"control": "n_back"}, {"control": "return_all", "seq_len": 96}])
def test_chance_is_what_the_last_value_of_all_gets(control: dict[str, Any]) -> None:
    """Of those that a mark may mean, the one whose write came last."""
    task = build(variables=5, **control)
    batch = sample(task, 200)
    right = 0
    for row in range(200):
        said = read(task, batch.inputs[row])
        backs = [next(x.other for x in said if x.at == at) for at in batch.positions[row].tolist()]
        for back in set(backs):
            due = [target for target, its in zip(batch.targets[row].tolist(), backs, strict=True) if its == back]
            latest = max((x for x in said if x.kind == "write" and x.other in due), key=lambda x: x.at)
            right += due.count(latest.other)
    assert right / batch.targets.numel() == pytest.approx(task.chance())
    assert task.chance() == {"n_back": 1 / 3, "return_all": 5 / 12}.get(task.settings.control, 1 / 5)


def hand_made() -> tuple[VariableOverwrite, Batch]:
    """Key 4 is given 20, 21, 22, 23, key 5 is given 35: both are asked for at the end, key 4 before that."""
    task = build(variables=2, overwrites=(3, 0), keys=16, values=16, noises=2, midstream=1, seq_len=24)
    assert task.settings.first_value == 20
    tokens = [4, 20, 4, 21, 5, 35, ASK, 4, 36, 4, 22, 4, 23, ASK, 4, 36, ASK, 5, 36, 37, 37, 36, 36, 37]
    history = torch.tensor([[[21, 20, IGNORE, IGNORE], [23, 22, 21, 20], [35, IGNORE, IGNORE, IGNORE]]])
    slices = {"overwrites": [1, 3, 0], "doublings": [2, 1, 3], "writes_between": [1, 0, 2]}
    targets = torch.tensor([[21, 23, 35]])
    return task, Batch(torch.tensor([tokens]), torch.tensor([[7, 14, 17]]), targets, {k: torch.tensor([v]) for k, v in slices.items()}, {"history": history})


def means_of(task: VariableOverwrite, batch: Batch, answers: list[int], logits: Tensor | None = None) -> dict[str, list[float]]:
    prediction = Prediction(torch.tensor([answers]), torch.zeros(1, 3), logits)
    return {name: mean.value.double()[0].tolist() for name, mean in task.means(batch, prediction).items()}


@pytest.mark.parametrize(
    ("answers", "kinds"),
    [
        ([21, 23, 35], ["accuracy"] * 3),
        ([20, 22, 4], ["stale_previous stale_first", "stale_previous", "alien"]),
        ([35, 20, 23], ["cross", "stale_first", "cross"]),
        ([22, 21, 36], ["alien", "stale_middle", "alien"]),  # 22 had not been written by then
        ([23, 35, 0], ["alien", "cross", "alien"]),
    ],
)
def test_every_answer_has_an_origin(answers: list[int], kinds: list[str]) -> None:
    task, batch = hand_made()
    assert torch.equal(task.solve(batch), batch.targets)
    found = means_of(task, batch, answers)
    for n, kind in enumerate(kinds):
        true = {name for name in ("accuracy", "stale_previous", "stale_first", "stale_middle", "cross", "alien") if found[name][n]}
        assert true == set(kind.split())
        assert found["stale"][n] == ("stale" in kind)


def test_origins_add_up(task: VariableOverwrite) -> None:
    batch = sample(task, 64, split="test")
    noise = torch.Generator().manual_seed(0)
    answers = torch.randint(task.io.vocab_out or 0, batch.targets.shape, generator=noise)
    history = batch.facts["history"]
    old = history.gather(2, torch.randint(history.shape[2], (*batch.targets.shape, 1), generator=noise))[:, :, 0].clamp(min=0)
    which = torch.randint(3, batch.targets.shape, generator=noise)
    answers = torch.where(which == 0, old, torch.where(which == 1, batch.targets[:, torch.randperm(task.answers, generator=noise)], answers))
    means = task.means(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert torch.equal(sum(means[name].value.long() for name in ("accuracy", "stale", "cross", "alien")), torch.ones_like(answers))
    assert ("stale_newer" in means) == (task.settings.control != "none")
    parts = sum(mean.value.long() for name, mean in means.items() if name.startswith("stale_") and name != "stale_excess")
    assert torch.equal(parts.clamp(max=1), means["stale"].value.long())
    assert {"accuracy", "stale", "cross", "alien"} <= {name.partition("/")[0] for name in task.score(batch, Prediction(answers, torch.zeros(answers.shape)))}


def ratio(mean: Mean) -> float:
    assert mean.weight is not None
    return float(mean.value.double().sum() / mean.weight.sum())


@pytest.mark.parametrize("name", ["defaults", "few values", "decoys", "midstream", "return all"])
def test_errors_at_random_have_no_excess_of_stale_values(name: str) -> None:
    """Every value of the context but the right one, each once, is answered: so the excess is exactly 1."""
    task = build(**SETTINGS[name])
    stale = weight = 0.0
    for row in range(6):
        batch = task.sample(torch.tensor([row]), seed=0, split="test")
        candidates = {x.other for x in read(task, batch.inputs[0]) if x.kind == "write"}
        for candidate in sorted(candidates):
            means = task.means(batch, Prediction(torch.full_like(batch.targets, candidate), torch.zeros(batch.targets.shape)))
            counts = ~means["alien"].value & (batch.targets != candidate)  # by then
            excess = means["stale_excess"]
            assert excess.weight is not None
            stale, weight = stale + float(excess.value[counts].double().sum()), weight + float(excess.weight[counts].sum())
    assert stale / weight == pytest.approx(1)


def test_excess_of_stale_values_by_hand() -> None:
    task, batch = hand_made()
    found = task.means(batch, Prediction(torch.tensor([[20, 35, 23]]), torch.zeros(1, 3)))
    assert ratio(found["stale_excess"]) == pytest.approx(1 / (1 / 2 + 3 / 4 + 0))
    assert found["informed_chance"].value[0].tolist() == pytest.approx([1 / 3, 1 / 5, 1 / 5])


def test_weight_on_old_values_and_margin_by_hand() -> None:
    task, batch = hand_made()
    logits = torch.zeros(1, 3, task.io.vocab_out or 0)
    assert not {"margin", "weight_on_old_0", "recalled"} & means_of(task, batch, [0, 0, 0]).keys()
    logits[0, 1, [23, 22, 21]] = torch.tensor([50.0, 50.0, 49.0])
    logits[0, 0, 20] = 2.0
    found = task.means(batch, Prediction(batch.targets, torch.zeros(1, 3), logits))
    e = torch.e
    for j, mass in enumerate([1 / (2 + 1 / e), 1 / (2 + 1 / e), 1 / (2 * e + 1), 0.0]):
        mean = found[f"weight_on_old_{j}"]
        assert mean.weight is not None
        assert float(mean.value[0, 1]) == pytest.approx(mass, abs=1e-6)
        assert mean.weight[0].tolist() == [float(j <= r) for r in (1, 3, 0)]
        assert not mean.value[mean.weight == 0].any()
    assert "weight_on_old_4" not in found
    margin = found["margin"]
    assert margin.weight is not None
    assert margin.value[0].tolist() == [-2.0, 0.0, 0.0]
    assert margin.weight[0].tolist() == [1.0, 1.0, 0.0]


def test_the_curve_of_old_values_reaches_as_far_as_there_are_overwrites() -> None:
    task = build(variables=2, overwrites=(0, 17), seq_len=64)
    batch = sample(task, 5)
    logits = torch.full((*batch.targets.shape, task.io.vocab_out or 0), -50.0).scatter(2, batch.facts["history"][:, :, 17:].clamp(min=0), 50.0)
    found = task.score(batch, Prediction(logits.argmax(dim=2), torch.zeros(batch.targets.shape), logits))
    curve = {j: (round(float(x), 6), float(n)) for j in range(18) for x, n in [found[f"weight_on_old_{j}"]]}
    assert curve == {0: (0.0, 10.0), **dict.fromkeys(range(1, 17), (0.0, 5.0)), 17: (5.0, 5.0)}
    assert "weight_on_old_18" not in found


def test_values_known_without_their_order_are_recalled() -> None:
    task = build(control="return_all", seq_len=80)
    batch = sample(task, 20)
    held = batch.facts["history"].clamp(min=0)
    oldest_first = torch.arange(1.0, 6.0).expand(held.shape)
    logits = torch.zeros(*batch.targets.shape, task.io.vocab_out or 0).scatter(2, held, oldest_first)
    logits[:, :, PAD] = 0
    known = task.score(batch, Prediction(logits.argmax(dim=2), torch.zeros(batch.targets.shape), logits))["recalled"]
    none = task.score(batch, Prediction(logits.argmax(dim=2), torch.zeros(batch.targets.shape), -logits))["recalled"]
    assert float(known[0]) == float(known[1]) == 20 * 11
    assert float(none[0]) == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"overwrites": (0, 1, 2, 4, 8)}, ["5 counts", "variables must be at least 5, not 4"]),
        ({"overwrites": (0, -1)}, ["counts from 0 on, not -1"]),
        ({"overwrites": ()}, ["task.overwrites"]),
        ({"variables": 1, "overwrites": (3,)}, ["task.variables = 1", "greater than or equal to 2"]),
        ({"values": 4}, ["5 different values", "values must be at least 5, not 4"]),
        ({"keys": 3}, ["4 variables have", "keys must be at least 4, not 3"]),
        ({"keys": 4, "noise": 1.0, "noise_kind": "decoy"}, ["4 variables and a decoy", "keys must be at least 5, not 4"]),
        ({"keys": 4, "reset": 1}, ["8 variables", "keys must be at least 8"]),
        ({"noises": 0, "noise": 0.5}, ["noises must be at least 1 or noise 0"]),
        ({"midstream": 1, "reset": 1}, ["control none and reset 0"]),
        ({"midstream": 1, "control": "n_back"}, ["control none and reset 0"]),
        ({"control": "n_back", "n": 5}, ["n = 5", "at least two variables with 5 values", "leave 1"]),
        ({"seq_len": 33}, ["11 writes", "4 questions", "take 34 places", "seq_len must be at least 34, not 33"]),
        ({"schedule": "random"}, ["task.schedule = random", "'blockwise'"]),
    ],
)
def test_impossible_settings_are_refused_with_what_is_allowed(values: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        build(**values)
    message = str(refused.value)
    assert all(part in message for part in said), message
    assert "\n" not in message
    assert message.endswith(".")
    assert not message.endswith("..")


def test_counts_are_understood_from_a_command_line() -> None:
    assert build(overwrites="0,2", variables="4").settings == build(overwrites=(0, 2)).settings
    assert build(overwrites="3").settings.overwrites == (3,)


def test_the_vocabulary_has_what_is_needed_and_no_more() -> None:
    assert build().io.vocab_in == 4 + 64 + 64 + 64
    assert build(reset=1, seq_len=128).io.vocab_in == 197
    assert build(control="return_all", seq_len=128).io.vocab_in == 196 + 4


@pytest.mark.parametrize("which", VariableOverwrite.presets)
def test_explain_has_questions_and_is_short(which: str) -> None:
    task = build(**VariableOverwrite.presets[which].task)
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    at, n = batch.positions[1].min(dim=0)
    assert f"at position {int(at)}" in text
    assert f"the answer is {int(batch.targets[1, n])}" in text
    said = [x for x in read(task, batch.inputs[1]) if x.kind in {"write", "reset"}][-40:]
    assert " ".join("RESET" if x.kind == "reset" else f"{x.key}={x.other}" for x in said) in text
    assert len(text) <= 1500
