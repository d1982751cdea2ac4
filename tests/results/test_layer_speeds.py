from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.hashing import canonical
from linbench.results.layer_speeds import SpeedSelection, layer_key, select_speeds
from linbench.results.schema import Result
from linbench.results.speed_labels import AS_CALLED, REPLAYED
from linbench.results.speeds import speeds
from tests.helpers.speeds import a_speed

LAYERS = {canonical(a_speed(label)["bench"]["layer"]): label for label in ("deltanet", "gla", "attention")}


def found(results: list[Result], question: str = "train", length: int = 256) -> SpeedSelection:
    way = select_speeds(speeds(results), question, LAYERS, length=length)
    assert way is not None
    return way


def named(way: SpeedSelection) -> dict[str, float]:
    return {LAYERS[layer]: rate.median for layer, rate in way.rates.items()}


def test_a_model_of_one_kind_of_layer_has_the_layer_that_a_speed_is_of(a_result: Any) -> None:
    one = a_result()
    layer = one["cell"]["model"]["layers"][0]
    speed = a_speed(bench={"layer": {"form": "native", "d_model": 64, **layer}})
    assert layer_key(one) == canonical(speed["bench"]["layer"])
    one["cell"]["model"]["layers"] = [layer, layer]
    assert layer_key(one) == canonical(speed["bench"]["layer"])
    one["cell"]["model"]["layers"] = [layer, {**layer, "mixer": "attention"}]
    assert layer_key(one) is None


def test_the_way_in_which_most_were_measured_counts_and_then_the_nearest_length() -> None:
    results = [a_speed(label, length=length) for label in ("deltanet", "gla") for length in (64, 1024)]
    assert found([*results, a_speed(length=256)]).length in (64, 1024)
    assert found(results, length=65).length == 64
    assert found(results, length=900).length == 1024
    assert named(found(results)) == {"deltanet": pytest.approx(1024), "gla": pytest.approx(1024)}


def test_another_layer_a_peer_and_a_sequence_alone_do_not_count() -> None:
    other = [a_speed(settings={"heads": 9}), a_speed("kda"), a_speed(question="decode", batch=1)]
    assert select_speeds(speeds(other), "train", LAYERS, length=256) is None
    assert select_speeds(speeds(other), "decode", LAYERS, length=256) is None
    assert named(found([a_speed(peer="fla")])) == {"deltanet": pytest.approx(1024)}, (
        "the peer took twice as long"
    )


def test_what_was_not_measured_soundly_has_a_word_and_no_rate() -> None:
    results = [a_speed(), a_speed("gla", marks=["busy"]), a_speed("attention", status="oom", sides={})]
    way = found(results)
    assert named(way) == {"deltanet": pytest.approx(1024)}
    assert {label: way.missing_reason(layer) for layer, label in LAYERS.items()} == {
        "deltanet": None,
        "gla": "busy",
        "attention": "oom",
    }
    (only,) = found(results[1:2]).results.values()
    assert only["label"] == "gla", "a way in which nothing was sound says so, if there is no other"


def test_all_are_timed_alike() -> None:
    both, called = [a_speed("gla", gpu=True), a_speed("deltanet", gpu=True)], a_speed("attention")
    assert (found(both).timing, named(found(both))["gla"]) == (REPLAYED, pytest.approx(2048))
    assert (found([*both, called]).timing, named(found([*both, called]))["gla"]) == (
        AS_CALLED,
        pytest.approx(1024),
    )


def test_what_was_measured_is_said(snapshot: SnapshotAssertion) -> None:
    assert found([a_speed()]).full_description == snapshot(name="full")
    assert found([a_speed(question="decode")], "decode").description == snapshot(name="short")
