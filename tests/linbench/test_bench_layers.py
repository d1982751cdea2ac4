"""Layers, timed, counted and kept: no assertion on how long anything takes."""

import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linbench.benchmark import layers, measured, peers, presets, timing
from linbench.benchmark.decode import cases as decode_cases
from linbench.benchmark.forms import cases as form_cases
from linbench.benchmark.layers import ROOM, Case, Side, filled, ours
from linbench.benchmark.length import cases as length_cases
from linbench.benchmark.memory import held_at_most
from linbench.benchmark.prefill import cases as prefill_cases
from linbench.benchmark.presets import PRESETS, Preset, base, shaped
from linbench.benchmark.timing import Ceilings, Spread
from linbench.check.subject import Subject, tensors
from linbench.common.errors import UserError
from linbench.models.costs import work_bytes, work_flops
from linbench.registry import registry
from linbench.speeds import OURS
from linbench.store import SPEED, Store
from linbench.workers import Outcome

SMALL = Preset("for tests", d_model=16, heads=2, lengths=(4, 8), tokens=16, decoded=3)

PLAIN = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        if x.shape[1] == 13:
            raise ValueError("thirteen tokens")
        if x.shape[1] == 17:
            raise torch.OutOfMemoryError("out of memory")
        return self.linear(x).cumsum(dim=1)
"""


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Measuring them takes a second on a CPU. A GPU is measured in a process of its own, which would not have this."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(measured, "ceilings", lambda device: Ceilings(1e10, 1e11))


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "mine.py"
    path.write_text(PLAIN)
    yield f"{path}:Mine"
    registry.cache_clear()


def a_case(model: str = "deltanet", **more: Any) -> Case:
    (case,) = base([model], SMALL, device="cpu", repeats=1)
    return replace(case, **{"batch": 2, "length": 8, **more})


def run(cases: list[Case], folder: Path, **more: Any) -> list[dict[str, Any]]:
    return measured.run(cases, Store(folder), tell=lambda line: None, **more)


def test_shapes() -> None:
    assert shaped("tiny", lengths=[512, 64, 64], tokens=1024, heads=1)._asdict() == {
        **PRESETS["tiny"]._asdict(),
        "lengths": (64, 512),
        "tokens": 1024,
        "heads": 1,
    }
    assert (SMALL.batch(4), SMALL.batch(8), SMALL.batch(12)) == (4, 2, 1)
    with pytest.raises(UserError, match="did you mean 'tiny'"):
        shaped("tinny")
    with pytest.raises(UserError, match="a batch of 16 tokens does not hold a sequence of 32"):
        shaped("tiny", lengths=[32], tokens=16)


def test_what_each_verb_asks() -> None:
    one = base(["deltanet"], SMALL, device="cpu")

    def asked(found: list[Case]) -> list[tuple[str, int, int]]:
        return [(case.question, case.batch, case.length) for case in found]

    assert asked(length_cases(one, SMALL)) == [(question, batch, length) for batch, length in ((4, 4), (2, 8)) for question in ("train", "prefill", "memory")]
    assert asked(prefill_cases(one, SMALL)) == [("prefill", 1, 4), ("prefill", 4, 4), ("prefill", 1, 8), ("prefill", 2, 8)]
    assert asked(decode_cases(one, SMALL)) == [("decode", 1, 4), ("decode", 3, 4), ("decode", 1, 8), ("decode", 3, 8)]
    found = form_cases(lambda preset: base(["deltanet"], preset, device="cpu"), SMALL, [4, 16])
    assert [case.backend for case in found[:3]] == ["reference", "scan", "chunkwise"]
    assert [case.settings.heads for case in found] == [4] * 6 + [1] * 6
    with pytest.raises(UserError, match="--head-dims 5 does not divide --d-model 16"):
        form_cases(lambda preset: [], SMALL, [5])


def test_layers_have_the_width_and_the_heads_of_the_preset_unless_told_otherwise() -> None:
    found = base([], SMALL, device="cpu")
    assert {case.mixer for case in found} >= {"attention", "deltanet", "lstm", "base_conv", "rwkv7"}
    assert {case.width for case in found} == {16}
    assert {case.settings.heads for case in found if "heads" in type(case.settings).model_fields} == {2}
    (own,) = base(["deltanet"], SMALL, settings={"model.heads": 4, "model.d_model": 32}, device="cpu", form="controlled")
    assert (own.settings.heads, own.width, own.cell.model.form) == (4, 32, "controlled")
    controlled = {case.mixer for case in base([], SMALL, device="cpu", form="controlled")}
    assert "lstm" in controlled
    assert "base_conv" not in controlled
    with pytest.raises(UserError, match="is a pattern of several mixers"):
        base(["deltanet+attention"], SMALL, device="cpu")
    with pytest.raises(UserError, match="did you mean 'sdpa'"):
        base(["deltanet"], SMALL, device="cpu", peer="sdp")


def test_of_all_layers_those_without_heads_cannot_be_given_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(presets, "plan", lambda task, models, **_: asked.extend(models) or [])
    base([], SMALL, settings={"model.state_floats": 8192}, device="cpu", form="controlled")
    assert "deltanet" in asked
    assert "lstm" not in asked


def test_layers_of_a_suite_are_as_its_cells_have_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{about: Mine., tasks: [{task: mqar/quick, set: {model.d_model: 32}}, {task: mqar/quick, set: {model.d_model: 64, protocol.lr: 0.01}}, "
        "{task: mqar/quick, set: {model.d_model: 64}}], models: [deltanet, gla, deltanet+attention], form: controlled, seeds: 0-1, set: {model.heads: 4}}"
    )
    found = base([], SMALL, suite=str(path), device="cpu")
    assert [(case.label, case.width, case.settings.heads, case.cell.model.form) for case in found] == [
        ("deltanet", 32, 4, "controlled"), ("gla", 32, 4, "controlled"), ("deltanet", 64, 4, "controlled"), ("gla", 64, 4, "controlled"),
    ]  # fmt: skip
    assert [case.label for case in base(["gla"], SMALL, suite=str(path), device="cpu")] == ["gla", "gla"]
    assert {case.cell.model.form for case in base([], SMALL, suite=str(path), form="native", device="cpu")} == {"native"}


def test_an_identity_is_all_that_names_a_result_and_nothing_else() -> None:
    case = a_case()
    assert case.identity["layer"]["mixer"] == "deltanet"
    assert case.identity["layer"]["kernel"]["matrix_state"] > 0
    others = [
        replace(case, **change)
        for change in ({"question": "prefill"}, {"batch": 3}, {"length": 9}, {"precision": "bf16"}, {"backend": "scan"}, {"peer": ("sdpa", "1.0")})
    ]
    others += [replace(others[-1], peer=("sdpa", "1.1")), a_case("gated_deltanet"), a_case("deltanet[neg_eigval=true]")]
    assert len({one.id for one in [case, *others]}) == 1 + len(others)
    assert replace(case, repeats=7).id == case.id


def test_the_source_of_a_plugin_is_part_of_it(mine: str) -> None:
    before = a_case(mine)
    path = Path(mine.partition(":")[0])
    path.write_text(PLAIN + "\n# another\n")
    registry.cache_clear()
    assert a_case(mine).id != before.id


@pytest.mark.parametrize("question", ["train", "prefill", "decode"])
@pytest.mark.parametrize("model", ["attention", "deltanet", "lstm", "rwkv7"])
def test_a_question_to_a_layer(question: str, model: str, tmp_path: Path) -> None:
    case = a_case(model, question=question)
    (found,) = run([case], tmp_path)
    assert (found["status"], found["reason"], found["label"], found["kind"]) == ("ok", None, model, SPEED)
    assert 0 < found["sides"][OURS]["as_called"]["low"] <= found["sides"][OURS]["as_called"]["median"]
    assert found["first_call"] > 0
    mixer: Any = ours(case).module
    at = {"batch": 2, "length": 8}
    assert found["cost"] == {"flops": work_flops(mixer, question, **at), "bytes": work_bytes(mixer, question, **at, itemsize=4)}
    assert found["ceilings"] == {"bytes_per_second": 1e10, "flops_per_second": 1e11}


def test_what_was_measured_is_read_and_what_did_not_end_well_is_tried_again(tmp_path: Path) -> None:
    case = a_case()
    (first,), (second,) = run([case], tmp_path), run([case], tmp_path)
    assert first == second
    (anew,) = run([case], tmp_path, again=True)
    assert anew["sides"] != first["sides"]
    store = Store(tmp_path)
    assert (store.all(), store.all(SPEED)) == ([], [anew])
    store.put({**anew, "status": "failed"})
    assert run([case], tmp_path)[0]["status"] == "ok"


def test_states_that_are_decoded_from_hold_the_context() -> None:
    case = a_case("attention", question="decode", length=8)
    subject = Subject(case.cell)
    mixer = subject.build(torch.float32)
    state = filled(subject, mixer, 3, 8)
    assert (state.seen.tolist(), state.keys.shape[::2]) == ([8] * 3, (3, 8 + ROOM))
    assert torch.equal(state.positions[:, :8], torch.arange(8).expand(3, 8))
    x = torch.randn(3, 1, 16)
    ours(case).after(3, 8)(x)  # there is room for one more
    assert all(part.is_contiguous() for part in tensors(state))


def test_memory_is_that_of_the_tensors_and_states_are_counted(tmp_path: Path) -> None:
    found = run([a_case(model, question="memory") for model in ("attention", "deltanet")], tmp_path)
    attention, deltanet = (one["state"] for one in found)
    assert deltanet["floats"] == deltanet["declared"]["total"] == 2 * 8 * 8 + 3 * 48
    assert deltanet["bytes"] == 4 * deltanet["floats"]
    assert attention["declared"]["cache"] == 8 * 2 * 16
    assert attention["bytes"] == 4 * attention["floats"] + 8 * (8 + 1), "and whole numbers: positions, and how many were seen"
    assert all(one["sides"][OURS]["peak_bytes"] > 2 * 8 * 16 * 4 for one in found)


def test_a_state_that_is_not_as_declared_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = a_case(question="memory")
    own = type(ours(case).module).state_floats
    monkeypatch.setattr(type(ours(case).module), "state_floats", lambda self, length: own(self, length)._replace(shift=1))
    assert run([case], tmp_path)[0]["marks"] == ["state_size"]


def test_bytes_held_at_most() -> None:
    def call() -> None:
        x = torch.zeros(1000)  # 4,000 bytes
        y = x + 1  # 8,000
        del x
        z = y * 2  # 8,000
        y = y.view(10, 100)  # no more
        w = torch.zeros(500, dtype=torch.float64)  # 12,000
        del z, w
        torch.zeros(1)

    assert held_at_most(call) == 12_000
    given = torch.zeros(1 << 20)
    assert held_at_most(lambda: given.add_(1).view(-1)) == 0, "what was there before, and is written in place or seen otherwise, is not counted"


def test_training_holds_what_backward_needs() -> None:
    x, weight = torch.randn(4, 100), torch.randn(100, 100, requires_grad=True)

    def call(depth: int) -> Callable[[], Any]:
        def chain() -> Any:
            y = x
            for _ in range(depth):
                y = torch.tanh(y @ weight)
            return torch.autograd.grad(y.sum(), weight)

        return chain

    kept = held_at_most(call(9)) - held_at_most(call(1))
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
    assert (broken["status"], broken["reason"]) == ("failed", "mine.py line 12: ValueError: thirteen tokens")
    assert (large["status"], large["reason"]) == ("oom", "out of memory")
    assert sound["status"] == "ok"
    assert broken["sides"] == {}


def test_forms_of_kernels_that_a_layer_does_not_have_are_undeclared(tmp_path: Path) -> None:
    found = run([a_case(model, backend=form) for model, form in (("deltanet", "scan"), ("lstm", "scan"), ("attention", "reference"))], tmp_path)
    assert [one["status"] for one in found] == ["ok", "undeclared", "ok"]
    assert "no kernel of this layer has the form scan" in found[1]["reason"]


def test_softmax_of_torch_is_a_peer_of_attention_alone(tmp_path: Path) -> None:
    (case,) = base(["attention"], SMALL, device="cpu", peer="sdpa", repeats=1)
    assert case.peer == ("sdpa", peers.version_of("sdpa"))
    for question in ("train", "prefill", "decode"):
        (found,) = run([replace(case, question=question)], tmp_path)
        assert found["sides"]["sdpa"]["as_called"]["median"] > 0, question
    (other,) = base(["deltanet"], SMALL, device="cpu", peer="sdpa", repeats=1)
    assert run([other], tmp_path)[0]["sides"]["sdpa"] == {"reason": "ValueError: has softmax attention only"}


def test_softmax_of_torch_decodes_what_it_computes_as_a_whole() -> None:
    (case,) = base(["attention"], SMALL, device="cpu", peer="sdpa")
    side = peers.layer("sdpa", replace(case, question="decode"))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        whole, keys, _ = side.prefill(x)
        assert torch.allclose(whole, side.forward(x), atol=1e-6)
        assert keys.shape == (2, 2, 5, 8)
        assert side.after(2, 4)(x[:, -1:]).shape == (2, 1, 16)


def test_a_peer_that_cannot_be_had_or_refuses_is_a_row_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    (missing,) = base(["deltanet"], SMALL, device="cpu", peer="fla", repeats=1)
    assert missing.peer == ("fla", None)
    (found,) = run([missing], tmp_path)
    assert found["status"] == "ok"
    assert "flash-linear-attention is not installed; pip install 'linbench[fla]' brings it" in found["sides"]["fla"]["reason"]
    monkeypatch.setattr(peers, "find_spec", lambda name: object())
    assert "runs on a GPU only" in run([missing], tmp_path, again=True)[0]["sides"]["fla"]["reason"]

    def refusing(x: Tensor) -> Tensor:
        raise NotImplementedError("not on Sundays")

    side = Side(nn.Linear(16, 16), refusing, refusing, lambda batch, context: refusing)
    monkeypatch.setattr(peers, "layer", lambda name, case, compiling=False: side)
    assert run([missing], tmp_path, again=True)[0]["sides"]["fla"] == {"reason": "NotImplementedError: not on Sundays"}


def test_the_commands(linbench: Callable[..., Any]) -> None:
    shape = ["--d-model", "16", "--lengths", "4,8", "--device", "cpu", "--models", "deltanet,attention"]
    ended = linbench("bench", "length", *shape, "--tokens", "16", "--repeat", "1", "--json")
    assert ended.code == 0, ended.err
    first = json.loads(ended.out)
    assert len(first) == len(Store("results").all(SPEED)) == 12
    assert json.loads(linbench("bench", "length", *shape, "--tokens", "16", "--json").out) == first
    ended = linbench("bench", "decode", *shape, "--batch", "2", "--repeat", "1", "--peer", "sdpa")
    assert ended.code == 0, ended.err
    assert "attention, sdpa" in ended.out
    assert linbench("bench", "memory", *shape, "--tokens", "16").out.count("State of one sequence") == 1
    ended = linbench("bench", "forms", "--d-model", "16", "--lengths", "4", "--tokens", "8", "--head-dims", "8", "--device", "cpu", "--repeat", "1")
    assert ended.code == 0, ended.err
    assert "parallel scan" in ended.out
    table = linbench("table", "--format", "markdown")
    assert table.code == 0, table.err
    assert table.out.count("### ") == 7, "training, prompts, decoding alone and of two, peaks, states, forms"
    for words in (["length", "--lengths", "0"], ["length", "--preset", "tinny"], ["decode", "--peer", "flaa"], ["forms", "--head-dims", "x"]):
        ended = linbench("bench", *words, "--device", "cpu")
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err


def test_a_layer_that_fails_costs_the_exit_code(linbench: Callable[..., Any], mine: str) -> None:
    ended = linbench("bench", "length", "--models", mine, "--d-model", "16", "--lengths", "8,13", "--tokens", "13", "--device", "cpu", "--repeat", "1")
    assert ended.code == 3
    assert "3 of 6 could not be measured" in ended.err
    assert "failed: mine.py line 12: ValueError: thirteen tokens at 13" in ended.out


class Rehearsal:
    """A GPU that is not there: what would be called in which processes, and what came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiled: list[str] = []
        self.measured: list[str] = []
        self.dying: set[str] = set()
        monkeypatch.setattr(measured, "outcomes", self.outcomes)
        monkeypatch.setattr(measured, "environment", lambda device: {"device": {"name": "a GPU"}})
        monkeypatch.setattr(layers, "device_class", lambda device: "a GPU")

    def outcomes(self, function: Any, arguments: Any, *, workers: int, seconds: float) -> Iterator[tuple[int, Outcome]]:
        assert workers > 0
        for place, argument in enumerate(arguments):
            if function is measured.ceilings:
                yield place, Outcome(Ceilings(1e10, 1e11))
            elif function is measured.compile_all:
                self.compiled.append(str(argument))
                yield place, Outcome(5.0)
            else:
                self.measured.append(f"{argument} {argument.peer and argument.peer[0]}")
                if argument.peer is not None and argument.peer[0] in self.dying:
                    yield place, Outcome(failure="its process died with SIGSEGV")
                else:
                    sides = {OURS: {"as_called": {"median": 1.0, "low": 1.0, "high": 1.0, "calls": 5}}}
                    yield place, Outcome({**measured._nothing(), "sides": sides, "first_call": 0.1, "environment": {}})


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    return Rehearsal(monkeypatch)


def on_a_gpu(case: Case) -> Case:
    return replace(case, cell=replace(case.cell, device="cuda:0"))


def test_on_a_gpu_everything_is_compiled_first_and_once(rehearsal: Rehearsal, tmp_path: Path) -> None:
    cases = [on_a_gpu(case) for case in length_cases(base(["deltanet"], SMALL, device="cpu"), SMALL)]
    cases.append(replace(cases[-1], length=2))  # memory alone
    found = run(cases, tmp_path)
    assert [name.split()[0] for name in rehearsal.compiled] == ["train", "prefill", "train", "prefill", "memory"]
    assert len(rehearsal.measured) == len(cases)
    assert all(datetime.fromisoformat(one["when"]).tzinfo == UTC for one in found)
    assert [one["first_call"] for one in found] == [5.0, 5.0, 0.1, 5.0, 5.0, 0.1, 5.0], "that of the step that compiled, where there was one"


def test_a_peer_that_breaks_the_process_costs_its_own_side(rehearsal: Rehearsal, tmp_path: Path) -> None:
    rehearsal.dying.add("fla")
    case = on_a_gpu(replace(a_case(), peer=("fla", "0.6")))
    (found,) = run([case], tmp_path)
    assert rehearsal.measured == [f"{case} fla", f"{case} None"]
    assert (found["status"], found["sides"]["fla"]) == ("ok", {"reason": "its process died with SIGSEGV"})
    assert found["bench"]["peer"] == {"name": "fla", "version": "0.6"}


def test_long_calls_are_not_captured_and_those_that_cannot_be_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    medians = {"short": 0.01, "refusing": 0.02, "long": 1.5}
    monkeypatch.setattr(layers, "as_called", lambda calls, **_: {name: Spread(medians[name], 0.0, 2.0, 5) for name in calls})
    asked: list[str] = []

    def replay(calls: Any, *, repeats: int) -> Any:
        asked.extend(calls)
        return {"short": Spread(0.005, 0.005, 0.005, repeats)}, {"refusing": "not captured: it looks at a number"}

    monkeypatch.setattr(layers, "replayed_where_possible", replay)
    found = layers._seconds(on_a_gpu(a_case()), dict.fromkeys(medians, lambda: None))
    assert asked == ["short", "refusing"]
    assert found["short"]["replayed"]["median"] == 0.005
    assert {name: side.get("note") for name, side in found.items()} == {
        "short": None,
        "refusing": "not captured: it looks at a number",
        "long": "not captured: a call takes more than 1 s",
    }


def test_what_cannot_be_captured_together_is_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def replay(calls: Any, *, repeats: int) -> Any:
        if "bad" in calls:
            raise RuntimeError("could not be captured: it waits")
        return {name: Spread(1.0, 1.0, 1.0, repeats) for name in calls}

    monkeypatch.setattr(timing, "replayed", replay)
    seconds, reasons = timing.replayed_where_possible({"good": int, "bad": int, "fine": int}, repeats=3)
    assert (list(seconds), reasons) == (["good", "fine"], {"bad": "not captured: RuntimeError: could not be captured: it waits"})


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("name", ["fla", "transformers"])
def test_layers_of_peers_are_of_the_size_of_ours(name: str) -> None:
    pytest.importorskip(peers.PEERS[name].package)
    module = importlib.import_module(peers.PEERS[name].module)
    for case in base(list(getattr(module, "LAYERS", ["gated_deltanet"])), PRESETS["benchmark"], device="cpu"):
        theirs, own = (sum(p.numel() for p in side.module.parameters()) for side in (module.layer(case, False), ours(case)))
        assert theirs == pytest.approx(own, rel=0.02), case.mixer


@pytest.mark.gpu
@pytest.mark.parametrize("question", ["train", "prefill", "decode", "memory"])
def test_on_a_gpu_calls_are_replayed_too(question: str, tmp_path: Path) -> None:
    cases = [replace(base([model], SMALL, device="cuda:0", repeats=5)[0], question=question, batch=2, length=64) for model in ("attention", "gated_deltanet")]
    for found in run(cases, tmp_path):
        assert (found["status"], found["reason"]) == ("ok", None)
        if question == "memory":
            assert found["sides"][OURS]["peak_bytes"] > 0
        else:
            assert 0 < found["sides"][OURS]["replayed"]["median"] < 1, found["sides"][OURS].get("note")
