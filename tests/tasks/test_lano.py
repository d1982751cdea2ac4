from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.lano import BAYES, Lano
from tests.helpers.tasks import assert_refused, build_task, sample, solved, task_fixture

SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "packed": {"pack": True, "seq_len": 70},
    "cfg3j": {"grammar": "cfg3j", "start": 3, "seq_len": 82},
    "shorter than a sentence": {"start": 0, "seq_len": 20, "pack": True},
}

build = partial(build_task, Lano)

task = task_fixture(Lano, SETTINGS)


def mean(task: Lano, batch: Batch, prediction: Prediction, name: str) -> float:
    value, weight = task.score(batch, prediction)[name]
    return float(value / weight)


def predicted(logits: Tensor, batch: Batch) -> Prediction:
    return Prediction(logits.argmax(dim=2), torch.zeros(batch.positions.shape), logits)


def test_structure(task: Lano) -> None:
    s = task.settings
    batch = sample(task, 30)
    for row in range(30):
        tokens, targets = batch.inputs[row].tolist(), batch.targets[row].tolist()
        assert tokens[0] == 0
        end = len(tokens) if s.pack else [*tokens, 0].index(0, 1)
        assert s.pack or not any(tokens[end:])
        assert targets[: end - 1] == tokens[1:end]
        assert s.pack or targets[end - 1] == 0
        assert targets[end:] == [IGNORE] * (len(tokens) - end)
        begun, places = 0, []
        for at, token in enumerate(tokens[:end]):
            begun = at if token == 0 else begun
            places.append(at - begun)
        assert batch.slices["place"][row, :end].tolist() == places
        for length in [at - 1 for at, token in enumerate(tokens) if token == 0 and 0 < at <= end][:1]:
            assert s.shortest <= length <= s.longest
        ended, levels = batch.slices["ended"][row].tolist(), len(s.rules.levels)
        assert [end == levels for end in ended] == [target == 0 for target in targets]
        assert [end for end, at in zip(ended, places, strict=False) if at == 0] == [0] * places.count(0)
    assert batch.positions.tolist() == [list(range(s.seq_len))] * 30
    assert task.io == IO(4, 4)


def test_a_short_row_of_rules_is_cut_into_its_parts() -> None:
    """Every second or third token of a sentence begins a part of the lowest level, which has two or three."""
    batch = sample(build(), 100)
    for ended, targets in zip(batch.slices["ended"].tolist(), batch.targets.tolist(), strict=True):
        length = targets.index(0)
        begins = [at for at in range(length) if at == 0 or ended[at]] + [length]
        assert {after - at for at, after in pairwise(begins)} <= {2, 3}
        assert max(ended[:length]) == 2


def test_the_law_is_known_where_examples_are_scored_and_the_solver_attains_it(task: Lano) -> None:
    trained = sample(task, 2)
    assert not trained.facts
    assert task.means(trained, solved(task, trained)).keys() == {"accuracy", "nll"}
    batch = sample(task, 40, "test")
    law = batch.facts["law"]
    due = batch.is_answer
    assert torch.allclose(law.sum(dim=2)[due], torch.ones(int(due.sum())))
    assert law.gather(2, batch.targets.clamp(min=0)[:, :, None])[:, :, 0][due].min() > 1e-4
    answers = solved(task, batch)
    assert mean(task, batch, answers, "legal") == mean(task, batch, answers, "scaled_to_bayes") == 1
    assert torch.equal(law.gather(2, answers.answers[:, :, None])[:, :, 0][due], law.amax(dim=2)[due])


def test_scores_of_the_true_law_and_of_the_commonest_token() -> None:
    task = build()
    batch = sample(task, 500, "test")
    true = predicted(batch.facts["law"].clamp(min=1e-30).log(), batch)
    assert mean(task, batch, true, "kl") == pytest.approx(0, abs=1e-6)
    assert mean(task, batch, true, "scaled_to_bayes") == 1
    one = torch.nn.functional.one_hot(torch.ones_like(batch.targets), 4).double()
    commonest = predicted((one + 1e-3).log(), batch)
    assert mean(task, batch, commonest, "scaled_to_bayes") == 0
    assert 0.37 < mean(task, batch, commonest, "accuracy") < task.chance() < 0.44
    assert 0 < mean(task, batch, commonest, "legal") < 1
    assert "kl" not in task.means(batch, commonest._replace(logits=None))


def test_kl_is_the_cost_beyond_that_of_the_law() -> None:
    """On average the nll of a prediction is that of the law and the kl; the uniform law has no other."""
    task = build()
    batch = sample(task, 1000, "test")
    law = batch.facts["law"].double()
    uniform = predicted(torch.zeros(*batch.targets.shape, 4), batch)
    of_law = -law.gather(2, batch.targets.clamp(min=0)[:, :, None])[:, :, 0].log()[batch.is_answer].mean()
    found = mean(task, batch, uniform, "kl")
    assert found == pytest.approx(torch.tensor(4.0).log().item() - float(of_law), abs=0.02)
    by_hand = (law * (law.clamp(min=1e-30) * 4).log()).sum(dim=2)[batch.is_answer].mean()
    assert found == pytest.approx(float(by_hand))


def test_a_token_of_no_sentence_is_not_legal() -> None:
    """The law alone decides, whatever the target is."""
    task = build()
    batch = sample(task, 1, "test")
    law = task.sample(torch.arange(1), seed=0, split="test").facts["law"].clone()
    law[0, 0] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    batch = batch._replace(facts={"law": law})
    legal = task.means(batch, Prediction(torch.full_like(batch.targets, 1), torch.zeros(1, 32)))["legal"]
    assert legal.value[0, 0] == 0
    assert legal.value[0, 1:].tolist() == (law[0, 1:, 1] > 0).tolist()


def test_longer_contexts_come_nearer_to_the_law() -> None:
    """The back-off n-grams of the page, which counted fewer tokens: .400 .411 .467 .530 of .624."""
    task = build()
    batch = sample(task, 1000, "test")
    baselines = task.baselines(batch)
    assert list(baselines) == ["1-gram", "2-gram", "4-gram", "8-gram"]
    accuracies, kls = (
        [mean(task, batch, baseline, name) for baseline in baselines.values()] for name in ("accuracy", "kl")
    )
    assert accuracies == sorted(accuracies)
    assert accuracies == pytest.approx([0.405, 0.425, 0.49, 0.555], abs=0.015)
    assert kls == sorted(kls, reverse=True)
    assert 0 < kls[-1] < 0.2


@pytest.mark.parametrize("start", [2, 3])
def test_bayes_accuracies_are_those_of_the_page(start: int) -> None:
    """To half a percent: of level 3 the page has .624, and 6.6 million tokens give .6276."""
    assert BAYES["cfg3f"][start] == pytest.approx({3: 0.624, 2: 0.622}[start], abs=0.005)
    task = build(start=start, seq_len=96)
    law = sample(task, 250, "test")
    best = law.facts["law"].amax(dim=2)
    found = float(best[law.is_answer].mean())
    assert found == pytest.approx(BAYES["cfg3f"][start], abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("grammar", "seq_len", "bayes"), [("cfg3f", 512, 0.619), ("cfg3j", 1536, 0.58)])
def test_bayes_accuracies_of_published_grammars(grammar: str, seq_len: int, bayes: float) -> None:
    assert BAYES[grammar][0] == pytest.approx(bayes, abs=0.002)
    task = build(**Lano.presets[grammar].task)
    assert task.seq_len == seq_len
    rows = sample(task, 16384 // seq_len, "test").facts["law"].amax(dim=2).mean(dim=1)
    error = float(rows.std()) / len(rows) ** 0.5
    assert abs(float(rows.mean()) - BAYES[grammar][0]) < 4 * error


def test_shapes_follow_from_settings() -> None:
    task = build(start=2, seq_len=100)
    assert (task.seq_len, task.answers) == (100, 100)
    assert task.slice_sizes() == {"place": 82, "ended": 5}
    assert task.longer(2) == {"seq_len": 200, "pack": True}
    assert task.optimum_kind == "optimum"
    assert [len(of_levels) for of_levels in BAYES.values()] == [4, 5, 5]


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 27}, "27 3 seq_len 28 pack start"),
        ({"start": 4}, "start 3 4"),
        ({"start": -1}, "start 0"),
        ({"grammar": "cfg3j", "start": 5, "pack": True}, "start 4 5"),
        ({"grammar": "cfg3"}, "grammar"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Lano, values, facts)


def test_explain_tells_the_tokens_and_the_law(task: Lano) -> None:
    batch = sample(task, 2)
    text = task.explain(batch, 0)
    shown = " ".join(map(str, batch.inputs[0, :15].tolist()))
    assert f"The row is {shown}" in text
    assert "; after position 1 " in text
    assert len(text) < 1200
