"""Keys of several parts in `variable_overwrite`: the answers, near keys, and errors among them."""

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.blocks.overwriting import ASK
from linbench.tasks.variable_overwrite import VariableOverwrite
from tests.helpers.tasks import sample
from tests.helpers.variable_overwrite import SETTINGS, build, read

PARTS = [name for name, values in SETTINGS.items() if "parts" in values]


def by_hand() -> tuple[VariableOverwrite, Batch]:
    """Keys 4 6, 4 7, 5 6 and 5 7; the second and the last are given two values."""
    task = build(
        variables=4, overwrites=(0, 1), keys=6, values=6, noises=0, parts=2, shared=1, cluster=2, seq_len=34
    )
    assert task.settings.first_value == 10
    writes = [4, 7, 11, 5, 6, 13, 4, 6, 10, 5, 7, 14, 4, 7, 12, 5, 7, 15]
    asked = [ASK, 4, 7, 0, ASK, 5, 6, 0, ASK, 5, 7, 0, ASK, 4, 6, 0]
    history = torch.tensor([[[10, IGNORE], [12, 11], [13, IGNORE], [15, 14]]])
    near = history[:, [1, 0, 3, 2], None]
    slices = {
        "overwrites": [0, 1, 0, 1],
        "doublings": [4, 2, 4, 3],
        "writes_between": [3, 1, 4, 0],
    }
    return task, Batch(
        torch.tensor([writes + asked]),
        torch.tensor([[32, 20, 24, 28]]),
        history[:, :, 0],
        {name: torch.tensor([value]) for name, value in slices.items()},
        {"history": history, "near": near},
    )


def kinds_of(answers: list[int]) -> list[set[str]]:
    task, batch = by_hand()
    means = task.means(batch, Prediction(torch.tensor([answers]), torch.zeros(1, 4)))
    names = ("accuracy", "stale", "near", "near_stale", "far", "cross", "alien")
    return [{name for name in names if means[name].value[0, place]} for place in range(4)]


def test_the_solver_matches_all_parts() -> None:
    task, batch = by_hand()
    assert torch.equal(task.solve(batch), batch.targets)
    other = batch.inputs.clone()
    other[0, 16], other[0, 15] = 6, 4  # the last write is of the key 4 6
    assert task.solve(batch._replace(inputs=other)).tolist() == [[15, 12, 13, 14]]


@pytest.mark.parametrize(
    ("answers", "kinds"),
    [
        ([10, 12, 13, 15], ["accuracy"] * 4),
        ([12, 10, 15, 13], ["cross near"] * 4),
        ([11, 11, 14, 14], ["cross near near_stale", "stale", "cross near near_stale", "stale"]),
        ([13, 14, 12, 11], ["cross far"] * 4),
        ([4, 0, 16, 9], ["alien"] * 4),
    ],
)
def test_every_answer_is_of_one_kind(answers: list[int], kinds: list[str]) -> None:
    assert kinds_of(answers) == [set(kind.split()) for kind in kinds]


def test_excess_of_near_values_by_hand() -> None:
    task, batch = by_hand()
    found = task.means(batch, Prediction(torch.tensor([[11, 10, 12, 7]]), torch.zeros(1, 4)))["near_excess"]
    assert found.weight is not None
    # of five values of other keys two are near, of four one, and of five two
    assert found.weight[0].tolist() == pytest.approx([2 / 5, 1 / 4, 2 / 5, 0])
    assert found.value[0].tolist() == [True, True, False, False]


@pytest.mark.parametrize("name", PARTS)
def test_errors_at_random_have_no_excess_of_near_values(name: str) -> None:
    """Every value of another key, each once, is answered: so the excess is exactly 1."""
    task = build(**SETTINGS[name])
    near = weight = 0.0
    for row in range(6):
        batch = task.sample(torch.tensor([row]), seed=0, split="test")
        for value in sorted({x.other for x in read(task, batch.inputs[0]) if x.kind == "write"}):
            answers = torch.full_like(batch.targets, value)
            excess = task.means(batch, Prediction(answers, torch.zeros(answers.shape)))["near_excess"]
            assert excess.weight is not None
            near, weight = near + float(excess.value.sum()), weight + float(excess.weight.sum())
    assert near > 0
    assert near / weight == pytest.approx(1)


@pytest.mark.parametrize("name", [name for name in PARTS if SETTINGS[name]["shared"]])
def test_near_values_are_those_of_keys_with_the_same_first_part(name: str) -> None:
    task = build(**SETTINGS[name])
    s, batch = task.settings, sample(task, 16)
    guess = task.means(batch, Prediction(batch.targets, torch.zeros(batch.targets.shape)))["cluster_chance"]
    for row in range(16):
        said = read(task, batch.inputs[row])
        asked = {x.key for x in said if x.kind == "ask"}
        for n, at in enumerate(batch.positions[row].tolist()):
            (question,) = (x for x in said if x.kind == "ask" and x.at == at)
            held: dict[tuple[int, ...], list[int]] = {
                key: [x.other for x in said if x.kind == "write" and x.key == key and x.at < at][::-1]
                for key in asked
                if key[0] == question.key[0]
            }
            back = s.n - 1 if s.control == "n_back" else question.other
            guesses = [values[back] for values in held.values() if len(values) > back]
            target = int(batch.targets[row, n])
            assert guess.value[row, n] == pytest.approx(guesses.count(target) / len(guesses))
            near = [
                [value for value in values if value != IGNORE]
                for values in batch.facts["near"][row, n].tolist()
            ]
            if s.control != "n_back":  # which does not ask for all keys
                assert sorted(near) == sorted(held[key] for key in held if key != question.key)


@pytest.mark.parametrize("name", PARTS)
def test_keys_are_those_of_the_law(name: str) -> None:
    task = build(**SETTINGS[name])
    s = task.settings
    for row in sample(task, 16).inputs:
        said = read(task, row)
        keys = {x.key for x in said if x.kind == "write"}
        asked = {x.key for x in said if x.kind == "ask"}
        if s.control != "n_back":
            assert len(asked) == s.variables
            assert len({part for key in asked for part in key}) == s.key_law.tokens
        others = {part for key in keys - asked for part in key}
        if s.noise_kind == "decoy":
            assert others
            assert not others & {part for key in asked for part in key}


def test_cells_from_before_there_were_parts_keep_their_identity() -> None:
    assert not {"parts", "shared", "cluster"} & build().settings.identity().keys()
    assert build(**SETTINGS["parts"]).settings.identity()["cluster"] == 2
