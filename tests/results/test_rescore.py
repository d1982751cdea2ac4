from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linbench.results import rescore
from linbench.results.rescore import UNSCORED, with_current_chance
from linbench.results.schema import Result
from linbench.results.store import Store
from linbench.tasks.mqar import MQAR
from tests.helpers.processes import imported
from tests.helpers.records import a_record

OLD = {"seq_len": 64, "kv_pairs": 8, "vocab_size": 256, "power_a": 0.01, "filler": "zero"}


def chance(**settings: Any) -> float:
    return MQAR(MQAR.Settings(**{**OLD, **settings})).chance()


@pytest.fixture
def scored() -> Iterator[None]:
    """No chance is kept from before or for after."""
    rescore._chance.cache_clear()
    yield
    rescore._chance.cache_clear()


def a_result(
    name: str = "mqar",
    version: int = MQAR.version,
    source: str | None = None,
    settings: dict[str, Any] = OLD,
    **more: Any,
) -> Result:
    task = {"name": name, "version": version, "source": source, "settings": settings, **more.pop("task", {})}
    whole = a_record("a" * 64, chance=0.125)
    del whole["scoring"]
    return whole | {"cell": {**whole["cell"], "task": {"draws": 1, **task}}, **more}


def test_an_older_result_is_read_with_todays_chance_and_its_file_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.put(a_result())
    before = path.read_bytes()
    found = store.get("a" * 64)
    assert found is not None
    assert found["chance"] == pytest.approx(chance()) != 0.125
    assert (found["scoring"], found["marks"]) == (MQAR.scoring, [])
    assert store.all() == [found]
    assert path.read_bytes() == before


def test_each_test_has_the_chance_of_its_own_settings_and_the_whole_their_mean() -> None:
    parts = [{**OLD, "kv_pairs": pairs} for pairs in (2, 8)]
    tests = [
        {"settings": part, "chance": 1 / part["kv_pairs"], "metrics": {"accuracy": 1.0}} for part in parts
    ]
    found = with_current_chance(a_result(task={"test": [{"settings": part} for part in parts]}, tests=tests))
    assert [test["chance"] for test in found["tests"]] == pytest.approx(
        [chance(kv_pairs=2), chance(kv_pairs=8)]
    )
    assert found["chance"] == pytest.approx((chance(kv_pairs=2) + chance(kv_pairs=8)) / 2)
    assert [test["metrics"] for test in found["tests"]] == [test["metrics"] for test in tests]


def test_what_is_scored_as_today_or_comes_to_the_same_stays_the_very_object() -> None:
    for result in (
        a_result(scoring=MQAR.scoring),
        a_result(chance=chance() * (1 + 1e-15)),
        {"schema": 3, "id": "a" * 64, "kind": "speed"},
    ):
        assert with_current_chance(result) is result


@pytest.mark.usefixtures("scored")
def test_who_raises_scoring_has_every_older_result_rescored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MQAR, "scoring", MQAR.scoring + 1)
    monkeypatch.setattr(MQAR, "chance", lambda self: 0.5)
    found = with_current_chance(a_result(scoring=MQAR.scoring - 1))
    assert (found["chance"], found["scoring"]) == (0.5, MQAR.scoring)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "gone"},
        {"name": "./gone.py:Task", "source": "f" * 64},
        {"version": MQAR.version - 1},
        {"source": "f" * 64},
        {"settings": {**OLD, "kv_pairs": 1000}},
        {"tests": [{"settings": OLD, "chance": 0.125}] * 2},
        {"settings": {**OLD, "seq_len": 1 << 40, "kv_pairs": 1 << 20, "vocab_size": 1 << 30}},
    ],
    ids=[
        "gone",
        "by path",
        "another version",
        "another source",
        "settings that are refused",
        "tests that its cell has not",
        "settings without end",
    ],
)
def test_what_cannot_be_made_again_keeps_its_chance_and_says_so(other: dict[str, Any]) -> None:
    found = with_current_chance(a_result(**other))
    assert (found["chance"], found["marks"]) == (0.125, [UNSCORED])
    assert with_current_chance(found) is found


def test_a_result_of_a_users_task_that_says_how_it_was_scored_is_not_marked() -> None:
    result = a_result(name="./mine.py:Task", source="f" * 64, scoring=1)
    assert with_current_chance(result) is result


def test_no_file_that_a_result_names_is_run(tmp_path: Path) -> None:
    path = tmp_path / "task.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with_current_chance(a_result(name=f"{path}:Task"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_reading_loads_no_compiler(tmp_path: Path) -> None:
    Store(tmp_path).put(a_result())
    program = f"from linbench.results.store import Store; assert Store({str(tmp_path)!r}).all()[0]['scoring']"
    assert imported(program, "triton", "torch._dynamo") == set()
