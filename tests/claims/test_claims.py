"""The claims that are shipped, and what their files must be like."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from linbench.claims import untrained as tables
from linbench.claims.cells import of_measure
from linbench.claims.claim import Claim, claims, find, section
from linbench.claims.page import about
from linbench.claims.requirements import lacking_of_model, unmet
from linbench.claims.schema import LEAST_SEEDS, TIERS
from linbench.claims.timings import TRAINING
from linbench.common.errors import UserError
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.registry import registry
from tests.claims.claiming import a_claim

ALL = claims()
each = pytest.mark.parametrize("claim", ALL.values(), ids=list(ALL))
trained = pytest.mark.parametrize(
    ("claim", "name"),
    [
        (claim, name)
        for claim in ALL.values()
        for name, measure in claim.measures.items()
        if measure.cells in claim.grids
    ],
    ids=lambda part: getattr(part, "id", part),
)

WHOLE: dict[str, Any] = {
    "title": "A section",
    "cells": {
        "recall": {"tasks": ["mqar"], "seeds": "0-2", "grid": {"model.d_model": [16, 32]}},
        "zoo": {"suite": "zoo", "tasks": [{"task": "mqar", "set": {"task.seq_len": 512, "model.d_model": 64}}]},
    },
    "untrained": {"sums": {"of": "blend", "rules": ["sum"]}},
    "timed": {"narrow": {"preset": "tiny", "lengths": [64, 256]}},
    "claims": {
        "C1": {
            "says": "a", "source": "b", "published": "c", "tier": "T0-T1", "setting": "d", "rule": "e", "measure": {"cells": "recall"},
            "measures": {"wide": {"model": "deltanet", "where": {"model.d_model": 32}}, "read": {"cells": "sums", "model": "", "of": "recalled"}},
            "supported": "wide > 0.5", "refuted": "wide <= 0.5",
        }
    },
}  # fmt: skip


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    values = copy.deepcopy(WHOLE)
    change(values)
    return values


def test_every_claim_is_there_once_in_its_order() -> None:
    assert list(ALL) == [f"C{number}" for number in range(1, 78)]
    assert len({claim.section for claim in ALL.values()}) == 6


def test_at_least_half_can_be_decided_by_what_is_installed() -> None:
    assert sum(bool(claim.measures) and not unmet(claim) for claim in ALL.values()) >= 40


@each
def test_a_claim_says_all_that_a_reader_asks_for(claim: Claim) -> None:
    text = claim.text
    assert all(len(part) >= 4 for part in (text.says, text.source, text.published, text.setting, text.rule))
    assert not text.here or text.here.endswith(".")
    assert claim.tiers
    assert set(claim.tiers) <= set(TIERS)
    assert claim.measures or unmet(claim), "it waits for something, or there are cells that decide it"


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
            assert not list(lacking_of_model(measure.model))
    grids = [
        claim.grids[measure.cells] for measure in claim.measures.values() if measure.cells in claim.grids
    ]
    asked = {task.task.partition("/")[0] for grid in grids for task in grid.suite.tasks}
    assert asked <= registry("task").entries.keys() | set(claim.text.needs.tasks)


@each
def test_its_tables_have_the_rows_that_it_looks_at(claim: Claim) -> None:
    for measure in claim.measures.values():
        if not measure.model:
            small = claim.tables[measure.cells].model_copy(
                update={"trials": 2, "dim": 4 if claim.tables[measure.cells].of != "blend" else 64}
            )
            assert isinstance(tables.value(small, 0, measure.where, measure.of), float)


@pytest.mark.slow
@trained
def test_its_measures_are_of_one_cell_for_each_of_three_seeds_or_more(claim: Claim, name: str) -> None:
    measure = claim.measures[name]
    if list(lacking_of_model(measure.model)):
        return
    cells = of_measure(claim, name)
    assert len({cell.seed for cell in cells}) >= LEAST_SEEDS
    assert {cell.model.label for cell in cells} == {measure.model}
    slices = {slice_ for cell in cells for task in cell.tested_on for slice_ in task.slice_sizes()}
    assert {
        *measure.at,
        *([] if "." in measure.along else [measure.along] if measure.along else []),
    } <= slices
    if measure.test:
        assert all(
            sum(
                measure.test.items() <= test.settings.model_dump(mode="json").items()
                for test in cell.tested_on
            )
            == 1
            for cell in cells
        )


def test_a_claim_is_found_by_its_number() -> None:
    assert find("c17").id == find("C17").id == "C17"
    with pytest.raises(UserError, match="unknown claim 'C78'; did you mean 'C"):
        find("C78")


def test_what_is_to_be_read_with_care_stands_after_the_rules_and_decides_nothing() -> None:
    plain, careful = a_claim(), a_claim(care="few\nseeds ")
    assert list(about(careful).items())[-1] == ("Read with care", "few\nseeds")
    assert list(about(careful).items())[:-1] == list(about(plain).items())
    assert careful.deciding == plain.deciding


def test_a_file_is_read() -> None:
    (claim,) = section(WHOLE, where="a.yaml")
    assert (claim.id, claim.section, claim.tiers, claim.deciding) == (
        "C1",
        "A section",
        ("T0", "T1"),
        ["wide"],
    )
    assert [task.set["task.seq_len"] for task in claim.grids["zoo"].suite.tasks] == [512], (
        "of zoo one task alone"
    )
    assert [(cell.seed, cell.model.backbone.d_model) for cell in of_measure(claim, "wide")] == [
        (0, 32),
        (1, 32),
        (2, 32),
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
            "C1: measures and both rules, supported and refuted, go together.",
        ),
        (
            lambda f: f["claims"]["C1"].update(measures={}),
            "C1: measures and both rules, supported and refuted, go together.",
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
            "C1.wide: cells are of a model, which is to be named.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(read={"cells": "sums", "model": "gla"}),
            "C1.read: a table has no model.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(wide={"model": "gla", "along": "age"}),
            "C1.wide: along and reaching go together.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                wide={"model": "gla", "along": "age", "reaching": 0.9, "across": "tasks"}
            ),
            "C1.wide: along and across do not go together.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(wide={"model": "gla", "over": "all"}),
            "C1.wide.over = all: ",
        ),
        (
            lambda f: f["cells"].update(sums=f["cells"]["recall"]),
            "a.yaml: sums names two of cells, tables of what needs no training, and layers timed.",
        ),
        (
            lambda f: f["timed"].update(sums=f["timed"]["narrow"]),
            "a.yaml: sums names two of cells, tables of what needs no training, and layers timed.",
        ),
        (
            lambda f: f["timed"]["narrow"].update(preset="tinny"),
            "a.yaml: narrow.preset = tinny: presets are tiny, ",
        ),
        (lambda f: f["timed"]["narrow"].update(lengths=[]), "a.yaml: narrow.lengths = []: "),
        (
            lambda f: f["claims"]["C1"]["measures"].update(pace={"cells": "narrow"}),
            "C1.pace: cells are of a model, which is to be named.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                pace={"cells": "narrow", "model": "gla", "where": {"length": 64}}
            ),
            "C1.pace.of = accuracy: of layers timed there are training tokens per second alone.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                pace={"cells": "narrow", "model": "gla", "where": {"length": 65}, "of": TRAINING}
            ),
            "C1.pace.where says at which length, one of 64, 256, and nothing else.",
        ),
        (
            lambda f: f["cells"]["recall"].update(seeds="0-1"),
            "a.yaml: recall: seeds are 0-1; a verdict needs at least 3.",
        ),
        (
            lambda f: f["cells"]["recall"].update(seed="0-1"),
            "unknown setting 'a.yaml: recall.seed'; did you mean 'a.yaml: recall.seeds'?",
        ),
        (
            lambda f: f["cells"]["zoo"].update(seeds="0-9"),
            (
                "a.yaml: zoo: of a shipped suite nothing can be changed, but tasks left out; seeds cannot be"
                " given."
            ),
        ),
        (
            lambda f: f["cells"]["zoo"].update(tasks=["copy"]),
            "a.yaml: zoo: the suite zoo has no task copy with such settings.",
        ),
        (
            lambda f: f["claims"]["C1"]["measures"].update(
                wide={"cells": "zoo", "model": "deltanet[conv=0]"}
            ),
            "a.yaml: zoo: the suite zoo has no model deltanet[conv=0].",
        ),
        (lambda f: f["cells"]["zoo"].update(suite="zo"), "unknown suite 'zo'; did you mean 'zoo'?"),
        (lambda f: f["untrained"]["sums"].update(of="blends"), "a.yaml: sums.of = blends: "),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_refused_in_one_sentence(
    change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        section(changed(change), where="a.yaml")
    assert str(refused.value).startswith(sentence)


def test_a_measure_that_means_several_cells_or_none_is_refused() -> None:
    def where(wanted: dict[str, Any]) -> Claim:
        (claim,) = section(
            changed(
                lambda f: f["claims"]["C1"]["measures"].update(wide={"model": "deltanet", "where": wanted})
            ),
            where="a.yaml",
        )
        return claim

    for claim, sentence in (
        (where({}), r"C1\.wide: of seed 0 2 cells are meant; `where` must say which\."),
        (
            where({"model.d_model": 64}),
            r"C1\.wide: no cell of recall is of deltanet with \{'model\.d_model': 64\}\.",
        ),
    ):
        with pytest.raises(UserError, match=sentence):
            of_measure(claim, "wide")


def test_what_is_missing_is_told_and_what_is_there_is_not() -> None:
    def needing(**needs: list[str]) -> list[str]:
        (claim,) = section(changed(lambda f: f["claims"]["C1"].update(needs=needs)), where="a.yaml")
        return unmet(claim)

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


def test_an_unknown_device_is_told_before_anything_else(linbench: Callable[..., Any]) -> None:
    ended = linbench("claims", "C5", "--run", "--device", "cpi")
    assert (ended.code, ended.err.count("\n"), ended.out) == (2, 1, ""), ended.err
    assert "unknown device 'cpi'" in ended.err
