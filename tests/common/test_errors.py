"""Messages repeat little of what was typed."""

import pickle
import re

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import MOST_CHARACTERS, StorageError, UserError, brief, shorten, unknown


def test_a_short_text_stays_and_of_a_long_one_both_ends(snapshot: SnapshotAssertion) -> None:
    assert shorten("x" * MOST_CHARACTERS) == "x" * MOST_CHARACTERS
    cut = shorten("a" * 5000 + "z")
    assert (len(cut), cut[:5], cut[-3:], "..." in cut) == (MOST_CHARACTERS, "aaaaa", "aaz", True)
    assert shorten(10**5000) == snapshot


@pytest.mark.parametrize("typed", ["x" * 100_000, "a b " * 30_000, "a,b" * 30_000, "é" * 100_000])
def test_whatever_was_typed_a_message_repeats_200_characters_of_it(typed: str) -> None:
    for error in (
        UserError(f"--seeds takes numbers, not '{typed}'; write 0,1."),
        unknown("task", typed, ["mqar"]),
        StorageError(f"cannot read '{typed}'."),
    ):
        assert len(str(error)) < MOST_CHARACTERS + 100
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(UserError(f"not '{typed}'; write 0,1.")).endswith("'; write 0,1.")


def test_our_own_words_stay_whole() -> None:
    message = (
        f"unknown task 'mqr'; did you mean 'mqar'? Allowed: {', '.join(f'task_{i}' for i in range(200))}, and"
        " a task's own 'name'."
    )
    assert brief(message) == message


def test_no_message_is_without_end() -> None:
    assert len(str(UserError("' " * 1_000_000))) <= 10_000


@pytest.mark.parametrize(
    ("given", "allowed", "meant"),
    [
        ("T7", ["T0", "T1", "T2", "T3", "X"], None),
        ("C3", ["C1", "C2"], None),
        ("C98", [f"C{i}" for i in range(1, 78)], None),
        ("rwkv8", ["rwkv4", "rwkv5", "rwkv6", "rwkv7", "kda"], None),
        ("l3", ["l2", "rms"], "l2"),
        ("fp16", ["fp32", "bf16"], "bf16"),
        ("deltnet", ["deltanet", "gla"], "deltanet"),
    ],
)
def test_a_name_is_offered_if_it_is_near_and_not_for_its_number(
    given: str, allowed: list[str], meant: str | None
) -> None:
    offered = re.findall("mean '(.*?)'", str(unknown("name", given, allowed)))
    assert offered == ([] if meant is None else [meant])
