from typing import Any

from linbench.naming import named, told_apart, varied
from linbench.plan import plan


def test_what_is_the_same_in_all_is_not_told() -> None:
    every = [{"seq_len": 64, "kv_pairs": 8, "filler": "zero"}, {"seq_len": 64, "kv_pairs": 4, "filler": "random"}]
    assert told_apart(every) == ["kv_pairs 8 / filler zero", "kv_pairs 4 / filler random"]
    assert told_apart(every[:1]) == [""]


def test_mixtures_and_tests_tell_cells_apart() -> None:
    def mixed(examples: int, **more: Any) -> Any:
        train = [{"seq_len": 32, "examples": examples}, {"examples": 50}]
        return plan("mqar", ["deltanet"], device="cpu", settings={"protocol.epochs": 2}, train=train, **more)[0]

    cells = [mixed(40), mixed(50), mixed(50, test=[{"kv_pairs": 4}])]
    assert varied(cells) == ["protocol.examples", "task.train", "task.test", "seed"]
    assert named(cells[2:], ["task.test", "seed"]) == "mqar deltanet task.test kv_pairs 4, seed 0"
    assert named(cells[:1], ["task.train"]) == "mqar deltanet task.train seq_len 32 / examples 40, seq_len 64 / examples 50"
    assert varied([mixed(40), mixed(40)]) == ["seed"]


def test_cells_are_told_apart_among_those_of_their_task() -> None:
    cells = [
        plan(task, ["deltanet"], preset=preset, device="cpu")[0] for task, preset in (("mqar", None), ("group_word", "quick"), ("group_word", "quick-swaps"))
    ]
    names = varied(cells)
    assert set(names) == {"task.group", "task.moves", "seed"}
    assert named(cells[:1], names) == "mqar quick deltanet seed 0"
    assert named(cells[2:], names) == "group_word quick-swaps deltanet task.group S5, task.moves 2, seed 0"
