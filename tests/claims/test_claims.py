"""The claims that come with linbench, and what their files must contain."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from linbench import claims as linbench_claims
from linbench.claims.cells import CellSource
from linbench.claims.claim import Claim, claims, find, read_section
from linbench.claims.page import about
from linbench.claims.requirements import missing_in_model, missing_requirements
from linbench.claims.schema import TIERS
from linbench.claims.timings import TRAINING
from linbench.claims.untrained import TableSource
from linbench.common.errors import UserError
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.registry import registry
from tests.helpers.claims import CLAIM, a_claim, cells_of

ALL = claims()
each = pytest.mark.parametrize("claim", ALL.values(), ids=list(ALL))
trained = pytest.mark.parametrize(
    ("claim", "name"),
    [
        (claim, name)
        for claim in ALL.values()
        for name, measure in claim.measures.items()
        if isinstance(measure.source, CellSource)
    ],
    ids=lambda part: getattr(part, "id", part),
)

WHOLE: dict[str, Any] = {
    "title": "A section",
    "cells": {
        "recall": {"tasks": ["mqar"], "grid": {"model.d_model": [16, 32]}},
        "zoo": {
            "suite": "zoo-one-length",
            "tasks": [{"task": "mqar", "set": {"task.seq_len": 512, "model.d_model": 64}}],
        },
    },
    "untrained": {"sums": {"of": "blend", "rules": ["sum"]}},
    "timed": {"narrow": {"preset": "tiny", "lengths": [64, 256]}},
    "claims": {
        "C1": {
            "says": "a",
            "source": "b",
            "published": "c",
            "tier": "T0-T1",
            "setting": "d",
            "rule": "e",
            "measure": {"cells": "recall"},
            "measures": {
                "wide": {"model": "deltanet", "where": {"model.d_model": 32}},
                "read": {"cells": "sums", "model": "", "of": "recalled"},
            },
            "supported": "wide > 0.5",
            "refuted": "wide <= 0.5",
        }
    },
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    values = copy.deepcopy(WHOLE)
    change(values)
    return values


def test_every_claim_is_there_once_in_its_order() -> None:
    assert list(ALL) == [f"C{number}" for number in range(1, 78)]
    assert len({claim.section for claim in ALL.values()}) == 6


def test_at_least_half_can_be_decided_by_what_is_installed() -> None:
    assert sum(bool(claim.measures) and not missing_requirements(claim) for claim in ALL.values()) >= 40


@each
def test_a_claim_says_all_that_a_reader_asks_for(claim: Claim) -> None:
    text = claim.text
    assert all(len(part) >= 4 for part in (text.says, text.source, text.published, text.setting, text.rule))
    assert not text.here or text.here.endswith(".")
    assert claim.tiers
    assert set(claim.tiers) <= set(TIERS)
    assert claim.measures or missing_requirements(claim), (
        "it waits for something, or there are cells that decide it"
    )


@each
def test_what_is_not_installed_is_named_among_the_needs(claim: Claim) -> None:
    """A slip in a name is none of these."""
    needs = {term.name for pattern in claim.text.needs.models for term in parse_pattern(pattern)}
    named = {
        term.name
        for measure in claim.measures.values()
        if measure.model
        for term in parse_pattern(measure.model)
    }
    assert named - registry("model").entries.keys() <= needs
    listed = set(claim.text.needs.models)
    for measure in claim.measures.values():
        if (
            measure.model
            and measure.model not in listed
            and not {term.name for term in parse_pattern(measure.model)} & needs
        ):
            assert not list(missing_in_model(measure.model))
    asked = {task for measure in claim.measures.values() for task in measure.source.tasks}
    assert asked <= registry("task").entries.keys() | set(claim.text.needs.tasks)


@each
def test_its_tables_have_the_rows_that_it_looks_at(claim: Claim) -> None:
    for measure in claim.measures.values():
        if isinstance(measure.source, TableSource):
            table, settings = measure.source.table, measure.settings
            small = table.model_copy(update={"trials": 2, "dim": 4 if table.of != "blend" else 64})
            assert isinstance(small.value(0, settings.where, settings.of), float)


@pytest.mark.slow
@trained
def test_its_measures_are_of_cells_for_each_seed(claim: Claim, name: str) -> None:
    measure = claim.measures[name]
    settings = measure.settings
    if list(missing_in_model(measure.model)):
        return
    cells = cells_of(claim, name, seeds=2)
    assert {cell.seed for cell in cells} == {0, 1}
    assert {cell.model.label for cell in cells} == {measure.model}
    slices = {slice_ for cell in cells for task in cell.tested_on for slice_ in task.slice_sizes()}
    assert {
        *settings.at,
        *([settings.along] if settings.along and "." not in settings.along else []),
    } <= slices
    if settings.test:
        assert all(
            sum(
                settings.test.items() <= test.settings.model_dump(mode="json").items()
                for test in cell.tested_on
            )
            == 1
            for cell in cells
        )


def test_a_claim_is_found_by_its_number() -> None:
    assert find("c17").id == find("C17").id == "C17"
    with pytest.raises(UserError, match="unknown claim 'C78'"):
        find("C78")


def test_what_is_to_be_read_with_care_stands_after_the_rules_and_decides_nothing() -> None:
    plain, careful = a_claim(), a_claim(care="few\nseeds ")
    assert list(about(careful).items())[-1] == ("Read with care", "few\nseeds")
    assert list(about(careful).items())[:-1] == list(about(plain).items())
    assert [each.name for each in careful.deciding] == [each.name for each in plain.deciding]


def test_a_file_is_read() -> None:
    (claim,) = read_section(WHOLE, where="a.yaml")
    assert (claim.id, claim.section, claim.tiers) == ("C1", "A section", ("T0", "T1"))
    assert [measure.name for measure in claim.deciding] == ["wide"]
    assert [(cell.seed, cell.model.backbone.d_model) for cell in cells_of(claim, "wide", seeds=2)] == [
        (0, 32),
        (1, 32),
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.pop("title"), "a.yaml.title must be given."),
        (
            lambda f: f["claims"].update(D1=f["claims"].pop("C1")),
            "A section: claims are named C1, C2, ..., not D1.",
        ),
        (lambda f: f["claims"]["C1"].pop("says"), "C1.says must be given."),
        (
            lambda f: f.update(titel=f.pop("title")),
            "unknown setting 'a.yaml.titel'; did you mean 'a.yaml.title'?",
        ),
        (lambda f: f["claims"]["C1"].update(say="x"), "unknown setting 'C1.say'; did you mean 'C1.says'?"),
        (lambda f: f["claims"]["C1"].update(tier="T9"), "C1.tier = T9: tiers are T0, T1, T2, T3, X."),
        (
            lambda f: f["claims"]["C1"].update(refuted=""),
            "C1: give measures and both rules, supported and refuted, or none of the three.",
        ),
        (
            lambda f: f["claims"]["C1"].update(measures={}),
            "C1: give measures and both rules, supported and refuted, or none of the three.",
        ),
        (
            lambda f: f["claims"]["C1"].update(supported="wider > 1"),
            "unknown measure in C1.supported 'wider'; did you mean 'wide'?",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(wide={"cells": "recal"}),
            "unknown cells of C1.wide 'recal'; did you mean 'recall'?",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(wide={}),
            "C1.wide: name the model of these cells.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(read={"cells": "sums", "model": "gla"}),
            "C1.read: leave the model out; the table sums has none.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(wide={"model": "gla", "along": "age"}),
            "C1.wide: along needs reaching, and reaching needs along.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                wide={"model": "gla", "along": "age", "reaching": 0.9, "across": "tasks"}
            ),
            "C1.wide: along and across cannot be combined.",
        ),
        (
            lambda f: f["claims"]["C1"].update(premise="wide"),
            "C1.premise: 'wide' is a number; ",
        ),
        (
            lambda f: f["cells"].update(sums=f["cells"]["recall"]),
            "a.yaml: sums is defined under both cells and untrained.",
        ),
        (
            lambda f: f["timed"].update(sums=f["timed"]["narrow"]),
            "a.yaml: sums is defined under both untrained and timed.",
        ),
        (
            lambda f: f["timed"]["narrow"].update(preset="tinny"),
            "a.yaml: narrow.preset = tinny: presets are tiny, ",
        ),
        (
            lambda f: f["timed"]["narrow"].update(lengths=[]),
            "a.yaml: narrow.lengths must be comma-separated whole numbers such as 0,1,2, not '[]'.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(pace={"cells": "narrow"}),
            "C1.pace: name the model that is timed.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                pace={"cells": "narrow", "model": "gla", "where": {"length": 64}}
            ),
            "C1.pace.of = accuracy: timings of layers have training tokens per second only.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                pace={"cells": "narrow", "model": "gla", "where": {"length": 65}, "of": TRAINING}
            ),
            "C1.pace.where must name a length and nothing else; lengths are 64, 256.",
        ),
        (
            lambda f: f["cells"]["recall"].update(seeds="0-1"),
            "a.yaml: recall: seeds cannot be given; a claim asks for as many as decide it.",
        ),
        (
            lambda f: f["cells"]["zoo"].update(seeds="0-9"),
            "a.yaml: zoo: seeds cannot be given; ",
        ),
        (
            lambda f: f["cells"]["zoo"].update(tasks=["copy"]),
            "a.yaml: zoo: the suite zoo-one-length has no task copy with such settings.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                wide={"cells": "zoo", "model": "deltanet[conv=0]"}
            ),
            "a.yaml: zoo: the suite zoo-one-length has no model deltanet[conv=0].",
        ),
        (lambda f: f["cells"]["zoo"].update(suite="zo"), "unknown suite 'zo'; did you mean 'zoo'?"),
        (lambda f: f["untrained"]["sums"].update(of="blends"), "a.yaml: sums.of = blends: "),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_refused_in_one_sentence(
    change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        read_section(changed(change), where="a.yaml")
    assert str(refused.value).startswith(sentence)


def test_a_measure_that_means_several_cells_or_none_is_refused() -> None:
    def where(wanted: dict[str, Any]) -> Claim:
        (claim,) = read_section(
            changed(
                lambda f: f["claims"]["C1"]["measures"].update(wide={"model": "deltanet", "where": wanted})
            ),
            where="a.yaml",
        )
        return claim

    for claim, sentence in (
        (where({}), r"C1\.wide: 2 cells match for a seed; add settings to `where` that pick one\."),
        (
            where({"model.d_model": 64}),
            r"C1\.wide: no cell of recall has the model deltanet and the settings \{'model\.d_model': 64\}\.",
        ),
    ):
        with pytest.raises(UserError, match=sentence):
            cells_of(claim, "wide")


def test_what_is_missing_is_told_and_what_is_there_is_not() -> None:
    def needing(**needs: list[str]) -> list[str]:
        (claim,) = read_section(changed(lambda f: f["claims"]["C1"].update(needs=needs)), where="a.yaml")
        return missing_requirements(claim)

    assert needing(models=["deltanet", "3xdeltanet+attention[window=16]"], tasks=["mqar"]) == []
    assert needing(models=["no_such", "gla[rope=true]", "gla[positions=none]", "deltanet+no_such"]) == [
        "model no_such",
        "model gla with rope=true",
    ]
    assert needing(models=["linear_attention[normalise=false,positions=rope]"]) == []
    assert needing(models=["linear_attention[positions=rope,normalise=true]"]) == [
        "model linear_attention with positions=rope"
    ]
    assert needing(tasks=["no_such"], other=["time"]) == ["task no_such", "time"]


def test_part_of_a_suite_has_those_tasks_alone() -> None:
    source = CellSource.read("zoo", WHOLE["cells"]["zoo"], ["deltanet"], "a.yaml: zoo")
    assert [task.set["task.seq_len"] for task in source.suite.tasks] == [512]
    assert [model.model for model in source.suite.models] == ["deltanet"]


def test_a_claim_is_added_by_a_file_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, linbench: Callable[..., Any]
) -> None:
    values = {
        "title": "Mine",
        "cells": {"small": {"tasks": ["mqar"]}},
        "claims": {"C901": CLAIM},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setattr(linbench_claims, "__path__", [*linbench_claims.__path__, str(tmp_path)])
    claims.cache_clear()
    try:
        assert list(claims()) == [*ALL, "C901"]
        assert find("c901").section == "Mine"
        (tmp_path / "none").mkdir()
        ended = linbench("claims", "C901", "--results", "none")
        assert ended.code == 0, ended.err
        assert ended.out.startswith(f"C901, Mine\n\n{CLAIM['says']}\n")
        assert "**undecided**: not run yet" in ended.out
        (tmp_path / "again.yaml").write_text(yaml.safe_dump(values))
        claims.cache_clear()
        with pytest.raises(UserError, match=r"mine\.yaml: C901 is defined twice"):
            claims()
    finally:
        claims.cache_clear()


def test_an_unknown_device_is_told_before_anything_else(linbench: Callable[..., Any]) -> None:
    ended = linbench("claims", "C5", "--run", "--device", "cpi")
    assert (ended.code, ended.err.count("\n"), ended.out) == (2, 1, ""), ended.err
    assert "unknown device 'cpi'" in ended.err
