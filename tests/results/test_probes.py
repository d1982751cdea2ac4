"""Results of language models in a store, and their tables."""

from pathlib import Path
from typing import Any

import pytest

from linbench.report.data import ReportData
from linbench.report.table import save_tables
from linbench.report.tables import all_tables
from linbench.results.packing import pack, unpack
from linbench.results.probes import asked_groups
from linbench.results.record import identity_of
from linbench.results.schema import misfit
from linbench.results.store import CELL, PROBE, Store
from tests.helpers.records import a_probe, a_record

IDS = ["a" * 64, "b" * 64, "c" * 64]


def test_they_are_kept_beside_others_and_packed_on_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    store.prepare()
    for one in IDS[1:]:
        store.put(a_probe(one))
    assert store.find(IDS[1]) == a_probe(IDS[1])
    assert store.get(IDS[1]) is store.get_benchmark(IDS[1]) is None
    (made,) = pack(store, None, None).packs
    assert made.path.name == "probes.jsonl.xz"
    store.put(a_record(IDS[0]))
    before = store.by_kind()
    assert [result["id"] for result in before[PROBE]] == IDS[1:]
    assert [result["id"] for result in before[CELL]] == IDS[:1]
    other = Store(tmp_path / "other")
    unpack(Store(tmp_path / "results"), other)
    assert other.by_kind() == before | {CELL: []}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"chance": 1.5}, "chance"),
        ({"state": {"recurrent": -1, "cache": 0, "tokens": 1}}, "state.recurrent"),
        ({"probe": {}}, "probe.version"),
        ({"status": "failed"}, "status"),
        ({"slices": {"distance": {"at": [1], "accuracy": {"sum": [], "weight": []}}}}, "distance"),
        ({"metrics": {"nll": 1.0}}, "metrics.accuracy"),
    ],
)
def test_a_record_that_does_not_fit_is_no_result(changed: dict[str, Any], word: str) -> None:
    assert misfit(a_probe(IDS[0])) is None
    assert word in (misfit(a_probe(IDS[0]) | changed) or "")


def test_models_that_were_asked_the_same_stand_in_one_table() -> None:
    asked = [
        a_probe(IDS[0], "second", 0.6),
        a_probe(IDS[1], "first", 0.4),
        a_probe(IDS[2], "first", shots=2, answers="written"),
    ]
    of_few, of_none = all_tables(ReportData(pretrained=asked))[::-1]
    if len(of_none.rows) == 1:
        of_few, of_none = of_none, of_few
    rows = of_none.to_records()
    assert [row["model"] for row in rows] == ["first", "second"]
    assert [row["scaled"] for row in rows] == pytest.approx([0.25, 0.5])
    assert rows[0] | {"accuracy": 0.4, "stale": 0.25, "recurrent bytes": 4096} == rows[0]
    assert len(of_few.rows) == 1
    assert of_few.slug != of_none.slug
    (by_distance,) = of_none.appendix.values()
    assert by_distance.to_records()[1] == {"model": "second", "1": 0.6, "2 to 3": 0.6}
    assert identity_of(asked[2])["device"] == "cpu"


def test_a_question_has_the_name_of_its_preset_if_any_model_was_asked_by_it() -> None:
    by_settings = a_probe(IDS[0], "first") | {"preset": None}
    (group,) = asked_groups([by_settings, a_probe(IDS[1], "second")])
    (alone,) = asked_groups([by_settings])
    assert group.question.startswith("mqar quick, ")
    assert alone.question.startswith("mqar, ")


def test_whatever_a_record_says_tables_stay_in_their_folder(tmp_path: Path) -> None:
    whole = {"at": [-3, 5], "accuracy": {"sum": [1, 1], "weight": [1, 1]}}
    hostile = a_probe(IDS[0], "<script>|\x1b[31m") | {
        "preset": "../../elsewhere",
        "metrics": {"accuracy": 0.5, "model": 1.0, "a|b": 2.0, "weight_8": 0.1, "weight_11": 0.1},
        "slices": {"../x": whole, "none": {"at": []}, "other": {"at": [1]}},
    }
    assert misfit(hostile) is None
    (table,) = all_tables(ReportData(pretrained=[hostile]))
    assert [name for name in table.names if name.startswith("weight")] == ["weight_8"]
    assert [*table.appendix] == ["Accuracy by ../x"]
    written = save_tables([table], tmp_path / "tables")
    assert {path.parent for path in written} == {tmp_path / "tables"}
    assert "\x1b" not in (tmp_path / "tables" / written[0].name).read_text()
