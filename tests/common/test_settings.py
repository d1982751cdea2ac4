from typing import Literal

import pytest
from pydantic import Field, model_validator
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError, unknown
from linbench.common.hashing import stable_key
from linbench.common.settings import Settings


class Knobs(Settings):
    pairs: int = Field(8, ge=1, description="how many")
    rate: float = 0.1
    gate: bool = True
    counts: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    norm: Literal["l2", "rms"] = "l2"
    window: None = None

    @model_validator(mode="after")
    def _possible(self) -> "Knobs":
        if self.pairs > 16:
            raise ValueError(f"at most 16 pairs, not {self.pairs}")
        return self


def test_strings_of_a_command_line_are_converted() -> None:
    assert Knobs.parse({"pairs": "4", "rate": "3e-3", "gate": "off"}, where="task") == Knobs(
        pairs=4, rate=0.003, gate=False
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"pair": 3},
            (
                "unknown setting 'task.pair'; did you mean 'task.pairs'? Allowed: task.counts, task.gate,"
                " task.norm, task.pairs, task.rate, task.window."
            ),
        ),
        ({"pairs": "many"}, "task.pairs must be a whole number, not 'many'."),
        ({"pairs": 2.5}, "task.pairs must be a whole number, not '2.5'."),
        ({"rate": "fast"}, "task.rate must be a number, not 'fast'."),
        ({"gate": "ture"}, "task.gate must be true or false, not 'ture'."),
        ({"norm": "l3"}, "task.norm = l3: input should be 'l2' or 'rms'; did you mean 'l2'?"),
        ({"norm": "batch"}, "task.norm = batch: input should be 'l2' or 'rms'."),
        ({"pairs": 0}, "task.pairs = 0: input should be greater than or equal to 1."),
        ({"pairs": 40}, "task: at most 16 pairs, not 40."),
        (
            {"counts": "0,x"},
            "task.counts must be comma-separated whole numbers such as 0,1,2, not '0,x'.",
        ),
        (
            {"counts": "(0,,1)"},
            "task.counts must be comma-separated whole numbers such as 0,1,2, not '(0,,1)'.",
        ),
        (
            {"counts": [0, 0.5]},
            "task.counts must be comma-separated whole numbers such as 0,1,2, not '[0, 0.5]'.",
        ),
        (
            {"counts": ""},
            "task.counts must be comma-separated whole numbers such as 0,1,2, not empty.",
        ),
        ({"window": "3"}, "task.window must be null, not '3'."),
        ({"counts": []}, "task.counts must be comma-separated whole numbers such as 0,1,2, not '[]'."),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        Knobs.parse(values, where="task")
    assert str(caught.value) == sentence
    assert caught.value.exit_code == 2


class Drawers(Settings):
    """Settings with settings in a list and in a place of their own."""

    knobs: tuple[Knobs, ...] = ()
    one: Knobs | None = None


@pytest.mark.parametrize(
    ("values", "name", "nearest"),
    [
        ({"knob": []}, "desk.knob", "desk.knobs"),
        ({"knobs": [{}, {"pair": 2}]}, "desk.knobs.1.pair", "desk.knobs.1.pairs"),
        ({"one": {"gates": True}}, "desk.one.gates", "desk.one.gate"),
    ],
)
def test_an_unknown_name_is_told_with_the_names_of_its_own_place(
    values: dict[str, object], name: str, nearest: str
) -> None:
    with pytest.raises(UserError) as caught:
        Drawers.parse(values, where="desk")
    place = name.rpartition(".")[0]
    told, allowed = str(caught.value).split(" Allowed: ")
    assert f"'{name}'" in told
    assert f"'{nearest}'" in told
    assert {each.rpartition(".")[0] for each in allowed.rstrip(".").split(", ")} == {place}


@pytest.mark.parametrize("text", ["4,5", "(4,5)", "(4, 5)", " 4 , 5, "])
def test_several_numbers_are_written_with_commas_in_brackets_or_not(text: str) -> None:
    assert Knobs.parse({"counts": text}, where="task").counts == (4, 5)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Knobs().pairs = 3  # type: ignore[misc]


def test_description_lists_every_knob() -> None:
    assert Knobs.describe() == [
        ("pairs", "int", "8", "how many"),
        ("rate", "float", "0.1", ""),
        ("gate", "bool", "true", ""),
        ("counts", "int, ...", "0,1,2", ""),
        ("norm", "l2 | rms", "l2", ""),
        ("window", "null", "null", ""),
    ]


def test_far_names_get_no_hint(snapshot: SnapshotAssertion) -> None:
    assert str(unknown("model", "zzz", ["attention"])) == snapshot


def test_keys_are_the_same_everywhere_and_differ() -> None:
    assert stable_key("mixer", 0, 1) == 6412253310883009729
    assert len({stable_key("a", i, j) for i in range(50) for j in range(50)}) == 2500


def test_names_that_are_allowed_stand_in_the_order_of_their_numbers() -> None:
    told = str(unknown("claim", "zzz", ["C10", "C2", "mqar-128-8", "mqar-64-4", "2x"]))
    assert told.partition(" Allowed: ")[2].split(", ") == ["2x", "C2", "C10", "mqar-64-4", "mqar-128-8."]
