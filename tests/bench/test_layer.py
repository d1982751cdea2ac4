"""Layers, timed, counted and kept: no assertion on how long anything takes."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

from linbench.bench import peers
from linbench.bench import run as measured
from linbench.bench.layer import SPARE_PLACES, build_layer, prefilled_state
from linbench.bench.layer_side import Side
from linbench.bench.memory import peak_allocated
from linbench.bench.peer import UnsupportedByPeerError
from linbench.bench.peers import fla, transformers
from linbench.bench.presets import PRESETS, layer_cases
from linbench.bench.timing import DevicePeaks
from linbench.engine.layer_under_test import LayerUnderTest, tensor_leaves
from linbench.experiments.registry import registry
from linbench.models.costs import work_bytes, work_flops
from linbench.report.tables.layer_speeds import tables
from linbench.results.speed_labels import OURS
from linbench.results.store import SPEED, Store
from tests.helpers.bench import PLAIN, SMALL, a_case, run


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Measuring them takes a second on a CPU. A GPU is measured in a process of its own, which would not have
    this."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(measured, "ceilings", lambda device: DevicePeaks(1e10, 1e11))


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "mine.py"
    path.write_text(PLAIN)
    yield f"{path}:Mine"
    registry.cache_clear()


@pytest.mark.parametrize("question", ["train", "prefill", "decode"])
@pytest.mark.parametrize("model", ["attention", "deltanet", "lstm", "rwkv7"])
def test_a_question_to_a_layer(question: str, model: str, tmp_path: Path) -> None:
    case = a_case(model, question=question)
    (found,) = run([case], tmp_path)
    assert (found["status"], found["reason"], found["label"], found["kind"]) == ("ok", None, model, SPEED)
    assert 0 < found["sides"][OURS]["as_called"]["low"] <= found["sides"][OURS]["as_called"]["median"]
    assert found["first_call"] > 0
    mixer: Any = build_layer(case).module
    at = {"batch": 2, "length": 8}
    assert found["cost"] == {
        "flops": work_flops(mixer, question, **at),
        "bytes": work_bytes(mixer, question, **at, itemsize=4),
    }
    assert found["ceilings"] == {"bytes_per_second": 1e10, "flops_per_second": 1e11}


def test_what_was_measured_is_read_and_what_did_not_end_well_is_tried_again(tmp_path: Path) -> None:
    case = a_case()
    (first,), (second,) = run([case], tmp_path), run([case], tmp_path)
    assert first == second
    (anew,) = run([case], tmp_path, again=True)
    assert anew["sides"] != first["sides"]
    store = Store(tmp_path)
    assert (store.all(), store.by_kind()[SPEED]) == ([], [anew])
    store.put({**anew, "status": "failed"})
    assert run([case], tmp_path)[0]["status"] == "ok"


def test_states_that_are_decoded_from_hold_the_context() -> None:
    case = a_case("attention", question="decode", length=8)
    subject = LayerUnderTest(case.cell)
    mixer = subject.build(torch.float32)
    state = prefilled_state(subject, mixer, 3, 8)
    assert (state.seen.tolist(), state.keys.shape[::2]) == ([8] * 3, (3, 8 + SPARE_PLACES))
    assert torch.equal(state.positions[:, :8], torch.arange(8).expand(3, 8))
    x = torch.randn(3, 1, 16)
    build_layer(case).after(3, 8)(x)  # there is room for one more
    assert all(part.is_contiguous() for part in tensor_leaves(state))


@pytest.mark.slow
def test_memory_is_that_of_the_tensors_and_states_are_counted(tmp_path: Path) -> None:
    found = run([a_case(model, question="memory") for model in ("attention", "deltanet")], tmp_path)
    attention, deltanet = (one["state"] for one in found)
    assert deltanet["floats"] == deltanet["declared"]["total"] == 2 * 8 * 8 + 3 * 48
    assert deltanet["bytes"] == 4 * deltanet["floats"]
    assert attention["declared"]["cache"] == 8 * 2 * 16
    assert attention["bytes"] == 4 * attention["floats"] + 8 * (8 + 1), (
        "and whole numbers: positions, and how many were seen"
    )
    assert all(one["sides"][OURS]["peak_bytes"] > 2 * 8 * 16 * 4 for one in found)


def test_a_state_that_is_not_as_declared_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = a_case(question="memory")
    own = type(build_layer(case).module).state_floats
    monkeypatch.setattr(
        type(build_layer(case).module),
        "state_floats",
        lambda self, length: own(self, length)._replace(shift=1),
    )
    assert run([case], tmp_path)[0]["marks"] == ["state_size"]


def test_bytes_peak_allocated() -> None:
    def call() -> None:
        x = torch.zeros(1000)  # 4,000 bytes
        y = x + 1  # 8,000
        del x
        z = y * 2  # 8,000
        y = y.view(10, 100)  # no more
        w = torch.zeros(500, dtype=torch.float64)  # 12,000
        del z, w
        torch.zeros(1)

    assert peak_allocated(call) == 12_000
    given = torch.zeros(1 << 20)
    assert peak_allocated(lambda: given.add_(1).view(-1)) == 0, (
        "what was there before, and is written in place or seen otherwise, is not counted"
    )


def test_training_holds_what_backward_needs() -> None:
    x, weight = torch.randn(4, 100), torch.randn(100, 100, requires_grad=True)

    def call(depth: int) -> Callable[[], Any]:
        def chain() -> Any:
            y = x
            for _ in range(depth):
                y = torch.tanh(y @ weight)
            return torch.autograd.grad(y.sum(), weight)

        return chain

    kept = peak_allocated(call(9)) - peak_allocated(call(1))
    assert 8 * 4 * 100 * 4 <= kept <= 9 * 4 * 100 * 4 + 2 * 100 * 100 * 4


def test_a_module_from_elsewhere_is_timed_but_not_decoded(mine: str, tmp_path: Path) -> None:
    cases = [a_case(mine, question=question) for question in ("train", "prefill", "decode", "memory")]
    trained, prompted, decoded, memory = run(cases, tmp_path)
    assert [one["status"] for one in (trained, prompted, decoded, memory)] == ["ok", "ok", "undeclared", "ok"]
    assert trained["cost"] == {"flops": None, "bytes": 3 * 4 * (16 * 16 + 16) + 5 * 4 * 2 * 8 * 16}
    assert "declares no state" in decoded["reason"]
    assert memory["state"] is None


def test_what_goes_wrong_is_a_status_and_the_rest_goes_on(mine: str, tmp_path: Path) -> None:
    broken, large, sound = run([a_case(mine, length=length) for length in (13, 17, 8)], tmp_path)
    assert (broken["status"], broken["reason"].split(": ")) == (
        "failed",
        ["mine.py line 12", "ValueError", "thirteen tokens"],
    )
    assert (large["status"], large["reason"]) == ("oom", "out of memory")
    assert sound["status"] == "ok"
    assert broken["sides"] == {}


def test_forms_of_kernels_that_a_layer_does_not_have_are_undeclared(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    found = run(
        [
            a_case(model, backend=form)
            for model, form in (("deltanet", "scan"), ("lstm", "scan"), ("attention", "reference"))
        ],
        tmp_path,
    )
    assert [one["status"] for one in found] == ["ok", "undeclared", "ok"]
    assert found[1]["reason"] == snapshot


def test_softmax_of_torch_is_a_peer_of_attention_alone(tmp_path: Path) -> None:
    (case,) = layer_cases(["attention"], SMALL, device="cpu", peer="sdpa", repeats=1)
    assert case.peer == ("sdpa", peers.version_of("sdpa"))
    for question in ("train", "prefill", "decode"):
        (found,) = run([replace(case, question=question)], tmp_path)
        assert found["sides"]["sdpa"]["as_called"]["median"] > 0, question
    (other,) = layer_cases(["deltanet"], SMALL, device="cpu", peer="sdpa", repeats=1)
    assert run([other], tmp_path)[0]["sides"]["sdpa"] == {"reason": "has softmax attention only"}


def test_softmax_of_torch_decodes_what_it_computes_as_a_whole() -> None:
    (case,) = layer_cases(["attention"], SMALL, device="cpu", peer="sdpa")
    side = peers.build_peer_layer("sdpa", replace(case, question="decode"))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        whole, keys, _ = side.prefill(x)
        assert torch.allclose(whole, side.forward(x), atol=1e-6)
        assert keys.shape == (2, 2, 5, 8)
        assert side.after(2, 4)(x[:, -1:]).shape == (2, 1, 16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", fla.LAYERS)
def test_a_layer_of_fla_is_as_large(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the biases of gates and of routers' projections, which papers leave open."""
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    monkeypatch.setattr(fla, "prepare", lambda compiling: None)
    sized = SMALL._replace(d_model=256, heads=4)
    (case,) = layer_cases([name], sized, device="cpu", repeats=1)
    ours, theirs = (
        sum(x.numel() for x in side.module.parameters())
        for side in (build_layer(case), fla.layer(case, compiling=False))
    )
    assert theirs == pytest.approx(ours, rel=0.02)


def test_a_peer_that_cannot_be_had_or_refuses_is_a_row_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    (missing,) = layer_cases(["deltanet"], SMALL, device="cpu", peer="fla", repeats=1)
    assert missing.peer == ("fla", None)
    (found,) = run([missing], tmp_path)
    assert found["status"] == "ok"
    assert found["sides"]["fla"]["reason"] == snapshot
    monkeypatch.setattr(peers, "find_spec", lambda name: object())
    assert run([missing], tmp_path, again=True)[0]["sides"]["fla"]["reason"] == snapshot

    def refusing(x: Tensor) -> Tensor:
        raise NotImplementedError("not on Sundays")

    side = Side(nn.Linear(16, 16), refusing, refusing, lambda batch, context: refusing)
    monkeypatch.setattr(peers, "unavailable_reason", lambda name, device, measured: None)
    monkeypatch.setattr(peers, "build_peer_layer", lambda name, case, compiling=False: side)
    assert run([missing], tmp_path, again=True)[0]["sides"]["fla"] == {
        "reason": "NotImplementedError: not on Sundays"
    }


@pytest.mark.slow
def test_the_commands(linbench: Callable[..., Any]) -> None:
    shape = ["--d-model", "16", "--lengths", "4,8", "--device", "cpu", "--models", "deltanet,attention"]
    ended = linbench("bench", "length", *shape, "--tokens", "16", "--repeat", "1", "--json")
    assert ended.code == 0, ended.err
    first = json.loads(ended.out)
    assert len(first) == len(Store("results").by_kind()[SPEED]) == 12
    assert json.loads(linbench("bench", "length", *shape, "--tokens", "16", "--json").out) == first
    ended = linbench("bench", "decode", *shape, "--batch", "2", "--repeat", "1", "--peer", "sdpa")
    assert ended.code == 0, ended.err
    assert "attention, sdpa" in ended.out
    assert linbench("bench", "memory", *shape, "--tokens", "16").out.count("State of one sequence") == 1
    ended = linbench(
        "bench",
        "forms",
        "--d-model",
        "16",
        "--lengths",
        "4",
        "--tokens",
        "8",
        "--head-dims",
        "8",
        "--device",
        "cpu",
        "--repeat",
        "1",
    )
    assert ended.code == 0, ended.err
    assert "parallel scan" in ended.out
    table = linbench("table", "--format", "markdown")
    assert table.code == 0, table.err
    assert table.out.count("### ") == 7, "training, prompts, decoding alone and of two, peaks, states, forms"
    for words in (
        ["length", "--lengths", "0"],
        ["length", "--preset", "tinny"],
        ["decode", "--peer", "flaa"],
        ["forms", "--head-dims", "x"],
    ):
        ended = linbench("bench", *words, "--device", "cpu")
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "protocol.lr=1e-3"],
        ["--set", "task.seq_len=64"],
        ["--heads", "2", "--set", "model.heads=4"],
        ["--d-model", "16", "--set", "model.d_model=8"],
    ],
    ids=" ".join,
)
def test_what_a_layer_cannot_be_set_to(
    linbench: Callable[..., Any], words: list[str], snapshot: SnapshotAssertion
) -> None:
    ended = linbench(
        "bench",
        "length",
        "--models",
        "deltanet",
        "--lengths",
        "8",
        "--tokens",
        "8",
        "--repeat",
        "1",
        "--device",
        "cpu",
        *words,
    )
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.strip() == snapshot


def test_a_layer_that_fails_costs_the_exit_code(
    linbench: Callable[..., Any], mine: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    ended = linbench(
        "bench",
        "length",
        "--models",
        mine,
        "--d-model",
        "16",
        "--lengths",
        "8,13",
        "--tokens",
        "13",
        "--device",
        "cpu",
        "--repeat",
        "1",
    )
    assert ended.code == 3
    (line,) = (line for line in ended.err.splitlines() if "3 of 6" in line)
    assert line.replace(str(tmp_path), "FOLDER") == snapshot
    assert {*re.findall(r"failed: .*? at \d+", ended.out)} == snapshot


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(
    ("name", "models"),
    [("fla", list(fla.LAYERS)), ("transformers", ["gated_deltanet", "gated_deltanet[key_heads=1]"])],
)
def test_layers_of_peers_are_of_the_size_of_ours(name: str, models: list[str]) -> None:
    peer = peers.find_peers()[name]
    pytest.importorskip(peer.package)
    assert peer.layer is not None
    for case in layer_cases(models, PRESETS["benchmark"], device="cpu"):
        theirs, own = (
            sum(p.numel() for p in side.module.parameters())
            for side in (peer.layer(case, False), build_layer(case))
        )
        assert theirs == pytest.approx(own, rel=0.02), case.mixer


def test_a_peer_whose_cache_grows_is_not_asked_for_the_same_token_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fla, "prepare", lambda compiling: None)
    monkeypatch.setattr(fla, "build", lambda name, **offered: torch.nn.Identity())
    with pytest.raises(UnsupportedByPeerError, match="makes longer"):
        fla.layer(a_case("fox"), False).after(1, 8)


@pytest.mark.parametrize("model", ["gated_deltanet[key_heads=1]", "fox[kv_heads=1]"])
def test_a_peer_whose_heads_share_no_keys_is_not_asked_for_a_layer_whose_heads_do(model: str) -> None:
    with pytest.raises(UnsupportedByPeerError, match="a key for each head"):
        fla.layer(a_case(model), False)


@pytest.mark.parametrize("peer", [fla, transformers])
def test_a_peer_with_projections_of_values_is_not_asked_for_a_layer_without(peer: Any) -> None:
    with pytest.raises(UnsupportedByPeerError, match="of keys and of values"):
        peer.layer(a_case("gated_deltanet[share_kv=true,expand_v=0.75]"), False)


def test_a_module_without_parameters_is_timed_and_one_that_raises_has_a_row_alone(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(BARE_MODULES)
    sum_, raising = (a_case(f"{tmp_path}/bare.py:{name}", question="prefill") for name in ("Sum", "Raising"))
    assert run([sum_], tmp_path)[0]["status"] == "ok"
    (words,) = tables(run([raising], tmp_path))
    assert words.frame["notes"][0].split(": ") == ["failed", "bare.py line 9", "ValueError", "no"]


BARE_MODULES = """from torch import nn

class Sum(nn.Module):
    def forward(self, x):
        return x.cumsum(dim=1)

class Raising(nn.Module):
    def forward(self, x):
        raise ValueError("no")
"""
