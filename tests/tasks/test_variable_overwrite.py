from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch
from linbench.tasks.blocks.overwriting import FIRST_KEY
from linbench.tasks.variable_overwrite import VariableOverwrite
from tests.helpers.tasks import assert_refused, sample, task_fixture
from tests.helpers.variable_overwrite import SETTINGS, Said, build, read

ALPHA = 1e-3

Probability = Callable[..., float]


task = task_fixture(VariableOverwrite, SETTINGS)


def test_labels_slices_and_facts_are_those_of_the_sequence_as_it_is_read(task: VariableOverwrite) -> None:
    s = task.settings
    batch = sample(task, 16)
    for row in range(16):
        said = read(task, batch.inputs[row])
        assert Counter(x.kind for x in said if x.kind not in {"write", "mention"}) == Counter(
            {"ask": task.answers, **({"reset": s.reset} if s.reset else {})}
        )
        assert sum(x.kind == "write" for x in said) == s.writes + s.decoys
        assert sum(x.kind == "mention" for x in said) == (
            s.noise_statements if s.noise_kind == "mention" else 0
        )
        found = {}
        for number, question in enumerate(said):
            if question.kind == "ask":
                before = [x for x in said[:number] if x.kind in {"write", "reset"}]
                own = [x for x in before if x.kind == "write" and x.key == question.key][::-1]
                back = s.n - 1 if s.control == "n_back" else question.other
                assert not any(x.kind == "reset" and x.at > own[-1].at for x in before), (
                    "asked for is what was written after the last reset"
                )
                found[question.at] = {
                    "target": own[back].other,
                    "overwrites": len(own) - 1,
                    "doublings": (question.at - own[back].at).bit_length() - 1,
                    "writes_between": sum(
                        x.kind == "write" and x.key != question.key and x.at > own[back].at for x in before
                    ),
                    "history": [x.other for x in own] + [IGNORE] * (max(s.overwrites) + 1 - len(own)),
                }
        assert sorted(found) == sorted(batch.positions[row].tolist())
        for n, at in enumerate(batch.positions[row].tolist()):
            labels = {name: int(x[row, n]) for name, x in batch.slices.items()}
            assert {
                "target": int(batch.targets[row, n]),
                **labels,
                "history": batch.facts["history"][row, n].tolist(),
            } == found[at]


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
        of = {
            key: [x.other - task.settings.first_value for x in writes if x.key == key]
            for key in {x.key for x in writes}
        }
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
    assert (
        chi_squared(torch.tensor(list(found.values())), torch.full((len(orders),), 1200 / len(orders)))
        > ALPHA
    )


def test_any_key_is_overwritten_often_and_asked_for_at_any_time(chi_squared: Probability) -> None:
    task = build(variables=2, overwrites=(0, 3), keys=5, seq_len=24)
    batch = sample(task, 4000)
    keys = batch.inputs.gather(1, batch.positions) - FIRST_KEY
    assert (
        chi_squared(
            (5 * keys[:, 0] + keys[:, 1]).bincount(minlength=25)[[i for i in range(25) if i % 6]],
            torch.full((20,), 200.0),
        )
        > ALPHA
    )
    first = batch.positions.argmin(dim=1)
    assert chi_squared(first.bincount(minlength=2), torch.full((2,), 2000.0)) > ALPHA


def test_filler_is_noise_and_inert_noise_is_more_of_it(chi_squared: Probability) -> None:
    task = build(noises=7, noise=1.0, seq_len=64)
    tokens = sample(task, 300).inputs
    assert (
        chi_squared(
            tokens[tokens >= task.settings.first_noise].bincount()[-7:], torch.full((7,), 300 * 34 / 7)
        )
        > ALPHA
    )
    assert build(noise=1.0).settings.needed == build().settings.needed + 2 * 11


@pytest.mark.parametrize(("which", "inert"), [("base", 196), ("hard", 870)])
def test_how_much_noise_there_is_follows_from_the_length_and_inert_statements_move_it_to_the_writes(
    which: str, inert: int
) -> None:
    moved = []
    for noise in (0.0, 0.25, 1.0):
        task = build(**{**VariableOverwrite.presets[which].task, "noise": noise})
        batch = sample(task, 64)
        is_noise = batch.inputs >= task.settings.first_noise
        assert (is_noise.sum(dim=1) == inert).all()
        first_question = batch.positions.min(dim=1, keepdim=True).values
        moved.append(
            float((is_noise & (torch.arange(task.seq_len) < first_question)).sum(dim=1).double().mean())
        )
    assert moved[0] + 5 < moved[1] < moved[2] - 5
    decoys = build(**{**VariableOverwrite.presets[which].task, "noise": 1.0, "noise_kind": "decoy"})
    assert (sample(decoys, 64).inputs >= decoys.settings.first_noise).sum(
        dim=1
    ).max() == inert - 2 * decoys.settings.decoys


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
    assert chi_squared(torch.tensor([after[1], after[2], after[3]]), torch.full((3,), 400.0)) > ALPHA, (
        "between, so not after the last"
    )
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
    """Chance names, among the keys that a mark may mean, the value of the one that was written last."""
    task = build(variables=5, **control)
    batch = sample(task, 200)
    right = 0
    for row in range(200):
        said = read(task, batch.inputs[row])
        backs = [next(x.other for x in said if x.at == at) for at in batch.positions[row].tolist()]
        for back in set(backs):
            due = [
                target for target, its in zip(batch.targets[row].tolist(), backs, strict=True) if its == back
            ]
            latest = max((x for x in said if x.kind == "write" and x.other in due), key=lambda x: x.at)
            right += due.count(latest.other)
    assert right / batch.targets.numel() == pytest.approx(task.chance())
    assert task.chance() == {"n_back": 1 / 3, "return_all": 5 / 12}.get(task.settings.control, 1 / 5)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"overwrites": (0, 1, 2, 4, 8)}, "5 overwrites variables 4"),
        ({"overwrites": (0, -1)}, "overwrites 0 1"),
        ({"overwrites": ()}, "overwrites 0 1 2"),
        ({"variables": 1, "overwrites": (3,)}, "variables 1 2"),
        ({"values": 4}, "4 overwrites 5 values"),
        ({"keys": 3}, "4 variables keys 3"),
        ({"keys": 4, "noise": 1.0, "noise_kind": "decoy"}, "4 variables keys 5"),
        ({"keys": 4, "reset": 1}, "8 variables keys 4"),
        ({"noises": 0, "noise": 0.5}, "noise noises 1 0"),
        ({"midstream": 1, "reset": 1}, "midstream control reset 0"),
        ({"midstream": 1, "control": "n_back"}, "midstream control reset 0"),
        ({"control": "n_back", "n": 5}, "control n_back n 5 variables values overwrites 1"),
        ({"seq_len": 33}, "11 0 noise 4 34 seq_len 33"),
        ({"schedule": "random"}, "schedule"),
        ({"parts": 2, "shared": 2}, "shared parts 2"),
        ({"parts": 2, "cluster": 3}, "parts 2 3 variables cluster 6 4"),
        ({"parts": 2, "cluster": 2, "statement": "fused"}, "parts 2 statement reset 0"),
        ({"parts": 2, "cluster": 2, "reset": 1, "seq_len": 256}, "parts 2 statement reset 0"),
        ({"parts": 2, "cluster": 2, "keys": 7}, "4 variables 8 parts keys 7"),
        (
            {"parts": 2, "cluster": 2, "keys": 8, "noise": 1.0, "noise_kind": "decoy", "seq_len": 128},
            "4 variables 8 parts keys 9",
        ),
        ({"parts": 2, "cluster": 2, "seq_len": 48}, "11 0 noise 4 49 seq_len 48"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(VariableOverwrite, values, facts)


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
    keys = [",".join(map(str, x.key)) if task.settings.parts > 1 else str(x.key) for x in said]
    shown = ["RESET" if x.kind == "reset" else f"{key}={x.other}" for key, x in zip(keys, said, strict=True)]
    assert " ".join(shown) in text
    assert len(text) <= 1500
