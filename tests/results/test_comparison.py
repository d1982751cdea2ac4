from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.results.comparison import comparisons
from linbench.results.frame import frame
from linbench.results.scores import accuracy
from tests.helpers.cells import plan
from tests.helpers.records import a_record


def test_seeds_become_mean_and_spread(a_result: Any) -> None:
    (found,) = comparisons([a_result(seed=seed, score=score) for seed, score in enumerate((0.2, 0.4, 0.6))])
    (row,) = found.rows
    assert (row.mean, row.spread) == (pytest.approx(0.4), pytest.approx(0.2))
    assert [result["cell"]["seed"] for result in row.results] == [0, 1, 2]


def test_one_seed_has_no_spread(a_result: Any) -> None:
    assert comparisons([a_result()])[0].rows[0].spread is None


def test_forms_tasks_protocols_and_devices_never_share_a_table(a_result: Any) -> None:
    odd = [a_result(form="controlled"), a_result(kv_pairs=4), a_result(device="NVIDIA H200")]
    assert [len(c.rows) for c in comparisons([a_result(), *odd])] == [1, 1, 1, 1]


def test_models_whose_surroundings_differ_do_not_share_a_controlled_table(a_result: Any) -> None:
    odd = a_result("attention", form="controlled", surroundings={"conv": 0})
    assert [
        len(c.rows)
        for c in comparisons([a_result(form="controlled"), a_result("gla", form="controlled"), odd])
    ] in ([1, 2], [2, 1])
    layer = a_result("attention", form="controlled", around={"norm": "layer"})
    assert [
        len(c.rows)
        for c in comparisons([a_result(form="controlled"), a_result("gla", form="controlled"), layer])
    ] in ([1, 2], [2, 1])
    assert [
        len(c.rows)
        for c in comparisons(
            [a_result(form="controlled"), a_result("attention", form="controlled", d_model=32)]
        )
    ] == [2]
    assert [
        len(c.rows) for c in comparisons([a_result(), a_result("attention", surroundings={"conv": 0})])
    ] == [2]
    whole = a_result("gla", form="controlled", surroundings={"conv": 4, "expand_k": 1.0})
    assert [len(c.rows) for c in comparisons([whole, a_result("lstm", form="controlled")])] == [2], (
        "a layer without heads has none to widen"
    )


def test_files_of_different_comparisons_have_different_names(a_result: Any) -> None:
    slugs = [c.slug for c in comparisons([a_result(), a_result(kv_pairs=4), a_result(form="controlled")])]
    assert len(set(slugs)) == 3
    assert "mqar-quick-controlled" in slugs
    assert "mqar-quick-native" not in slugs, "there are two of them"
    slugs = [
        c.slug
        for c in comparisons(
            [a_result(), a_result(kv_pairs=4, preset=None), a_result(kv_pairs=2, preset=None)]
        )
    ]
    assert len(set(slugs)) == 3
    assert "mqar-quick-native" in slugs


def test_comparisons_of_a_sweep_over_settings_are_all_named_by_them(a_result: Any) -> None:
    def titles(*results: Any) -> list[str]:
        return [c.title for c in comparisons(results)]

    assert titles(a_result()) == ["mqar quick"]
    assert titles(a_result(preset=None)) == ["mqar"]
    assert titles(a_result(), a_result(kv_pairs=16, preset="quick-hard")) == ["mqar quick", "mqar quick-hard"]
    swept = [a_result(kv_pairs=pairs, preset="quick" if pairs == 8 else None) for pairs in (4, 8, 12)]
    assert titles(*swept) == ["mqar kv_pairs 4", "mqar kv_pairs 12", "mqar quick kv_pairs 8"]
    assert titles(*swept, a_result(form="controlled")) == [
        "mqar kv_pairs 4",
        "mqar kv_pairs 12",
        "mqar quick",
        "mqar quick kv_pairs 8",
    ]
    gpu = "NVIDIA H200"
    assert titles(a_result(), a_result(device=gpu)) == [f"mqar quick device {gpu}", "mqar quick device cpu"]
    assert titles(a_result(), a_result(heads=4, preset=None)) == ["mqar"], (
        "a table some of whose models are not as the preset has them"
    )
    surrounded = [a_result(form="controlled", surroundings={"conv": conv}) for conv in (0, 4)]
    assert titles(*surrounded) == ["mqar quick model.conv 0", "mqar quick model.conv 4"]


def test_comparisons_of_a_task_are_named_by_the_same_settings_in_every_form(a_result: Any) -> None:
    swept = [a_result(kv_pairs=pairs, preset=None) for pairs in (4, 12)]
    wider = a_result(kv_pairs=12, form="controlled", preset=None, surroundings={"conv": 0})
    titles = [(c.title, c.form) for c in comparisons([*swept, wider])]
    assert titles == [
        ("mqar kv_pairs 4", "native"),
        ("mqar kv_pairs 12", "controlled"),
        ("mqar kv_pairs 12", "native"),
    ]


def test_a_preset_in_another_form_is_named_in_titles_and_files_keep_their_names(a_result: Any) -> None:
    def found(**settings: Any) -> Any:
        cells = plan(
            "mqar",
            ["deltanet", "gla"],
            preset="quick-hard",
            form="native",
            settings={"protocol.lr": 0.1, **settings},
            device="cpu",
        )
        (comparison,) = comparisons(
            [a_result(cell.model.label) | {"preset": cell.preset, "cell": cell.identity} for cell in cells]
        )
        return comparison

    one = found()
    assert (one.preset, one.title, one.slug) == (None, "mqar quick-hard", f"mqar-{one.key[:8]}-native")
    for other in ({"task.kv_pairs": 12}, {"protocol.tokens": 1_000_000}, {"model.heads": 2}):
        assert found(**other).title == "mqar"


def test_models_of_two_widths_are_matched_width_by_width_and_told_apart_by_that_alone(a_result: Any) -> None:
    sizes = {
        ("deltanet", 64): (1000, 9),
        ("deltanet", 128): (3000, 12),
        ("retnet", 64): (1020, 10),
        ("retnet", 128): (3030, 13),
    }
    results = [
        a_result(label, d_model=width, parameters=count, heads=heads, lr=width / 1000)
        for (label, width), (count, heads) in sizes.items()
    ]
    (found,) = comparisons(results)
    assert found.size_mismatch["parameters"] == pytest.approx(0.02)
    assert [row.label for row in found.rows] == [
        f"{label} (d_model {width})" for label in ("deltanet", "retnet") for width in (64, 128)
    ]


def test_models_that_share_a_label_are_told_apart_by_what_differs(
    a_result: Any, snapshot: SnapshotAssertion
) -> None:
    (found,) = comparisons([a_result(), a_result(heads=4), a_result(heads=4, lr=0.1), a_result("attention")])
    assert [row.label for row in found.rows] == snapshot


def test_rows_stand_in_the_order_asked_for(a_result: Any) -> None:
    (found,) = comparisons([a_result("attention"), a_result("deltanet")], order=["deltanet", "attention"])
    assert [row.label for row in found.rows] == ["deltanet", "attention"]


def test_diverged_counts_as_chance_and_failed_does_not_count(a_result: Any) -> None:
    results = [
        a_result(score=0.9),
        a_result(seed=1, status="diverged", metrics={}),
        a_result(seed=2, status="failed", metrics={}),
    ]
    assert [accuracy(result) for result in results] == [0.9, 0.125, None]
    (row,) = comparisons(results)[0].rows
    assert row.mean == pytest.approx((0.9 + 0.125) / 2)
    assert row.marks == ["diverged 1/3", "failed 1/3"]


def test_sizes_that_do_not_match_are_found(a_result: Any) -> None:
    (found,) = comparisons(
        [
            a_result("a", form="controlled"),
            a_result("b", form="controlled", parameters=1100, recurrent=120),
            a_result("c", form="controlled", cache=9999),
        ]
    )
    assert found.size_mismatch == {"parameters": pytest.approx(0.1), "state floats": pytest.approx(0.2)}


def test_what_was_matched_is_judged(a_result: Any) -> None:
    """The whole state, or where that differs and recurrences do not, the recurrence alone."""

    def apart(*states: tuple[int, int]) -> dict[str, float]:
        return comparisons(
            [
                a_result(f"m{i}", form="controlled", recurrent=recurrent, convolution=convolution)
                for i, (recurrent, convolution) in enumerate(states)
            ]
        )[0].size_mismatch

    assert apart((100, 20), (100, 90)) == {"parameters": 0, "recurrent floats": 0}
    assert apart((100, 20), (80, 40)) == {"parameters": 0, "state floats": 0}
    assert apart((100, 20), (50, 20))["state floats"] == pytest.approx(120 / 70 - 1)


def test_every_setting_is_a_column(a_result: Any) -> None:
    row = frame([a_result(heads=4)]).iloc[0]
    assert (row["task.kv_pairs"], row["model.heads"], row["model.d_model"], row["protocol.lr"]) == (
        8,
        4,
        64,
        0.01,
    )


def test_versions_of_a_tasks_code_are_told_whatever_else_differs(snapshot: SnapshotAssertion) -> None:
    """Else two tables would look as if they differed in a setting alone."""
    found = []
    for number, (source, width) in enumerate([("a" * 64, 16), ("b" * 64, 32)]):
        whole = a_record(f"{number:064x}", label="deltanet")
        cell = whole["cell"] | {"task": whole["cell"]["task"] | {"name": "tk.py:Full", "source": source}}
        backbone = cell["model"]["backbone"]
        cell["model"] = cell["model"] | {
            "backbone": backbone | {"settings": backbone["settings"] | {"d_model": width}}
        }
        found.append(whole | {"cell": cell})
    assert [c.title for c in comparisons(found)] == snapshot
