"""`linbench check`: sound mixers pass every law, and each fault is found by the law that it breaks."""

import json
import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.engine.layer_under_test import MOST_FLOATS, NEUTRAL_PRESET, LayerUnderTest
from linbench.experiments.cell import Cell
from linbench.experiments.registry import SHIPPED, registry
from linbench.tasks.mqar import MQAR
from linbench.verify import laws, learning
from linbench.verify.check import Finding, check, check_apart
from linbench.verify.laws import all_laws
from linbench.verify.learning import ENOUGH, learns
from tests.helpers.cells import plan
from tests.helpers.faulty_mixers import CAUGHT, FRAME
from tests.helpers.models import SHARING


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], str]:
    path = tmp_path / "mine.py"
    path.write_text(FRAME)
    return lambda cls: f"{path}:{cls}"


def findings(model: str, form: str = "native", **settings: Any) -> list[Finding]:
    (cell,) = plan(
        "mqar",
        [model],
        preset=NEUTRAL_PRESET,
        form=form,
        device="cpu",
        settings={"model.d_model": 32, **settings},
    )
    return check(LayerUnderTest(cell))


def verdicts(model: str, form: str = "native", **settings: Any) -> dict[str, str]:
    return {finding.law: finding.verdict for finding in findings(model, form, **settings)}


SHIPPED_MODELS = {
    entry.name: entry.cls for entry in registry("model").entries.values() if entry.source == SHIPPED
}
ONE_OF_EACH_RULE = {
    "comba",
    "deltanet",
    "deltaproduct",
    "gated_deltanet",
    "gla",
    "linear_attention",
    "mamba2",
}
"""Mixers of which the controlled form is checked in `make test`: it adds the same convolution and norm to
all, and tests/models holds every variant to the same laws in it."""
ONE_OF_EACH_KIND = ONE_OF_EACH_RULE | {
    "atlas",
    "attention",
    "attention_mamba",
    "fox",
    "gru",
    "gsa",
    "h3",
    "hyena",
    "kda",
    "log_linear_gdn",
    "mesanet",
    "mlstm",
    "nsa",
    "path",
    "rosa",
    "rwkv7",
    "s4",
    "stick_breaking",
    "titans_mac",
    "ttt_linear",
}
"""Mixers of which the native form is checked in `make test`; `make test-all` checks all."""


def _marks(name: str, form: str) -> list[pytest.MarkDecorator]:
    if (name, form) == ("gated_deltanet", "native"):
        return []
    nightly = name not in (ONE_OF_EACH_KIND if form == "native" else ONE_OF_EACH_RULE)
    return [pytest.mark.slow, *([pytest.mark.nightly] if nightly else [])]


def test_one_of_each_kind_is_shipped() -> None:
    assert set(SHIPPED_MODELS) >= ONE_OF_EACH_KIND


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=_marks(name, form))
        for name in sorted(SHIPPED_MODELS)
        for form in ("native", "controlled")
        if form == "native" or SHIPPED_MODELS[name].controlled is not None
    ],
)
def test_what_is_shipped_keeps_every_law(name: str, form: str) -> None:
    undeclared = {"gradients"} if SHIPPED_MODELS[name].gradient == "surrogate" else set()
    assert_no_law_is_broken(findings(name, form), undeclared)


@pytest.mark.parametrize("form", ["native", pytest.param("controlled", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", SHARING)
@pytest.mark.slow
def test_so_does_what_shares_keys(name: str, form: str) -> None:
    assert_no_law_is_broken(findings(name, form, **{"model.heads": 4, "model.key_heads": 2}))


def assert_no_law_is_broken(findings: list[Finding], undeclared: Collection[str] = ()) -> None:
    told = {finding.law: finding for finding in findings}
    found = {law: finding.verdict for law, finding in told.items()}
    assert list(found) == list(all_laws())
    assert told["shapes and dtypes"].found == "3 shapes, 3 dtypes", "judged in float64"
    assert {law: verdict for law, verdict in found.items() if verdict == "WRONG"} == {}
    assert {law for law, verdict in found.items() if verdict == "not declared"} <= {
        "chunkwise form",
        *undeclared,
    }


@pytest.mark.slow
def test_a_law_is_one_file(
    linbench: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "laws"
    folder.mkdir()
    (folder / "even_width.py").write_text(EVEN_WIDTH, encoding="utf-8")
    monkeypatch.setattr(laws, "__path__", [*laws.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, "linbench.verify.laws.even_width", raising=False)
    ended = linbench("check", "deltanet", "--json")
    found = {finding["law"]: finding for finding in json.loads(ended.out)["laws"]}
    assert found["even width"]["verdict"] == "ok"
    assert found["even width"]["asks"] == "Its width is even."
    assert list(found)[-1] == "even width", "a law without a place is the last"


EVEN_WIDTH = '''
from linbench.verify.laws import law


@law("even width")
def even_width(subject):
    """Its width
    is even."""
    return subject.width % 2 == 0, f"width {subject.width}"
'''


def test_the_preset_of_a_check_sets_nothing_of_a_model() -> None:
    assert not MQAR.presets[NEUTRAL_PRESET].model


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, mine: Callable[[str], str]) -> Callable[[str, str], Finding]:
    """Return a function that tests a layer for one law and no other."""

    def ask(cls: str, law: str) -> Finding:
        one = {law: all_laws()[law]}
        monkeypatch.setattr("linbench.verify.check.all_laws", lambda: one)
        (finding,) = findings(mine(cls))
        return finding

    return ask


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "law"), CAUGHT.items())
def test_each_fault_is_found_by_its_law(asked: Callable[[str, str], Finding], cls: str, law: str) -> None:
    assert asked(cls, law).verdict == "WRONG"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "law", "where"),
    [
        ("LeaksLate", "causality", "before 200 of 300"),
        ("LeaksBehind", "causality", "in the second layer"),
        ("ForgetsBehind", "streaming", "in the second layer"),
        ("FormsDiffer", "chunkwise form", "in the second layer"),
        ("Forgets", "streaming", "token by token"),
        ("Decodes", "streaming", "by prefill and decode"),
        ("Writes", "streaming", "forward writes into the state"),
        ("Leaks", "causality", "before 1 of 70"),
    ],
)
def test_a_fault_is_told_with_the_plainest_place_where_it_shows(
    asked: Callable[[str, str], Finding], cls: str, law: str, where: str
) -> None:
    found = asked(cls, law).found
    assert where in found
    assert ("second layer" in found) == ("Behind" in cls or cls == "FormsDiffer")


def test_what_leaks_in_training_alone_is_found_and_nothing_else_is_blamed(mine: Callable[[str], str]) -> None:
    wrong = {finding.law: finding.found for finding in findings(mine("Normed")) if not finding.ok}
    assert set(wrong) == {"causality", "batch neighbours"}
    assert all(found.endswith(", in training") for found in wrong.values())


@pytest.mark.parametrize(
    ("cls", "noted"),
    [
        ("NormsInFloat", "3 shapes, 3 dtypes; judged as float32, in which it computes"),
        ("OnlyFloat", "3 shapes, float32; not float64: mine.py line"),
        ("InHalf", "3 shapes, 3 dtypes; judged as bfloat16, in which it computes"),
        ("Plain", "3 shapes, 3 dtypes"),
        ("Convolves", "3 shapes, float32; not bfloat16"),
    ],
)
def test_a_layer_is_judged_at_the_precision_that_it_computes_in(
    mine: Callable[[str], str], cls: str, noted: str
) -> None:
    found = {finding.law: finding for finding in findings(mine(cls))}
    assert {law: finding.found for law, finding in found.items() if finding.verdict == "WRONG"} == {}
    assert found["shapes and dtypes"].found.startswith(noted)


def test_a_parameter_without_gradient_is_noted(mine: Callable[[str], str]) -> None:
    found = {finding.law: finding for finding in findings(mine("Unused"))}
    assert "WRONG" not in {finding.verdict for finding in found.values()}
    assert found["gradients"].found.endswith("; without gradient: module.bias_of_old")


@pytest.mark.parametrize("model", ["s4d[modes=inv]", "Swings"])
def test_steep_gradients_are_measured_with_a_step_that_suits_them(
    mine: Callable[[str], str], model: str
) -> None:
    (cell,) = plan(
        "mqar",
        [mine(model) if model[0].isupper() else model],
        preset=NEUTRAL_PRESET,
        form="native",
        device="cpu",
        settings={"model.d_model": 32},
    )
    held, found = all_laws()["gradients"].holds(LayerUnderTest(cell))
    assert held, found


@pytest.mark.parametrize(("cls", "first"), [("Raises", "shapes and dtypes"), ("RaisesLate", "causality")])
def test_one_exception_is_told_once(
    mine: Callable[[str], str], snapshot: SnapshotAssertion, cls: str, first: str
) -> None:
    found = findings(mine(cls))
    wrong = [finding for finding in found if finding.verdict == "WRONG"]
    assert [(finding.law, finding.found.count("no such luck")) for finding in wrong] == [(first, 1)]
    (told,) = {finding.found for finding in found if finding.verdict == "not judged"}
    assert told == snapshot


@pytest.mark.parametrize("cls", ["Centred", "Skips"])
def test_dropout_and_running_statistics_are_no_fault(mine: Callable[[str], str], cls: str) -> None:
    assert "WRONG" not in verdicts(mine(cls)).values()


@pytest.mark.slow
def test_a_constructor_that_raises_is_said_once(
    linbench: Callable[..., Any], mine: Callable[[str], str]
) -> None:
    ended = linbench("check", mine("Unbuildable"), "--learn", "--json")
    assert ended.code == 1
    (found,) = json.loads(ended.out)["laws"]
    line = FRAME.splitlines().index('        raise ValueError("not today")') + 1
    assert (found["law"], found["found"]) == ("construction", f"mine.py line {line}: ValueError: not today")


@pytest.mark.slow
def test_a_layer_that_crashes_is_told_as_wrong(
    linbench: Callable[..., Any], mine: Callable[[str], str]
) -> None:
    ended = linbench("check", mine("Aborts"), "--json")
    assert ended.code == 1
    (law,) = json.loads(ended.out)["laws"]
    assert (law["law"], law["verdict"]) == ("construction", "WRONG")
    assert "SIGABRT" in law["found"]


@pytest.mark.slow
def test_a_layer_that_hangs_is_ended(mine: Callable[[str], str]) -> None:
    (cell,) = plan(
        "mqar", [mine("Hangs")], preset=NEUTRAL_PRESET, device="cpu", settings={"model.d_model": 32}
    )
    told: list[Finding] = []
    found = check_apart(LayerUnderTest(cell), told.append, seconds=1)
    assert found == told
    assert (found[-1].law, found[-1].verdict) == ("construction", "WRONG")
    assert "for 1 s" in found[-1].found


@pytest.mark.parametrize("cls", ["NotFinite", "Shortens"])
def test_what_gives_no_outputs_to_compare_breaks_one_law(mine: Callable[[str], str], cls: str) -> None:
    first, second, *others = findings(mine(cls))
    assert (first.verdict, second.verdict, second.law) == ("ok", "WRONG", "shapes and dtypes")
    assert {(one.verdict, one.found) for one in others} == {("not judged", "breaks shapes and dtypes")}


def test_what_a_module_does_not_declare_is_no_fault(mine: Callable[[str], str]) -> None:
    found = verdicts(mine("Plain"))
    assert {law for law, verdict in found.items() if verdict == "not declared"} == {
        "streaming",
        "chunkwise form",
        "state size",
    }
    assert "WRONG" not in found.values()


@pytest.mark.slow
def test_the_command_says_which_laws_are_broken_and_ends_with_1(
    linbench: Callable[..., Any], mine: Callable[[str], str]
) -> None:
    ended = linbench("check", mine("Touches"))
    assert ended.code == 1
    assert "batch neighbours" in ended.out
    asks = all_laws()["batch neighbours"].asks
    assert "row of a batch" in asks
    assert "batch neighbours is broken" in ended.err
    assert f"It asks: {asks}" in ended.err
    ended = linbench("check", "deltanet[neg_eigval=true]", "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["ok"]


@pytest.mark.slow
def test_an_exception_is_shown_as_theirs_with_its_line(
    linbench: Callable[..., Any], mine: Callable[[str], str]
) -> None:
    ended = linbench("check", mine("Raises"), "--json")
    assert ended.code == 1
    line = FRAME.splitlines().index('        raise ValueError("no such luck")') + 1
    assert json.loads(ended.out)["laws"][1]["found"].split(": ") == [
        f"mine.py line {line}",
        "ValueError",
        "no such luck",
    ]


def test_names_that_cannot_be_checked_are_refused(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert linbench("check", "deltanett").code == 2
    ended = linbench("check", "gla,deltanet[heads=2,conv=0]")
    assert ended.code == 2
    assert ended.err == snapshot(name="two models")


def test_each_different_layer_of_a_system_is_checked(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    construction = all_laws()["construction"]
    # the package's `check` is a function, and the module of that name lies behind it
    monkeypatch.setitem(check.__globals__, "all_laws", lambda: {"construction": construction})
    laws = json.loads(linbench("check", "samba+attention", "--json").out)["laws"]
    names = ["mamba", "attention, layer 2", "attention, layer 3"]
    assert [law["law"] for law in laws] == [f"{name}: construction" for name in names]
    assert [law["law"] for law in json.loads(linbench("check", "2xgla", "--json").out)["laws"]] == [
        "construction"
    ]


def test_help_keeps_brackets(linbench: Callable[..., Any]) -> None:
    assert "NAME[setting=value]" in linbench("check", "--help").out


def test_what_no_computer_holds_is_refused_before_it_is_built(linbench: Callable[..., Any]) -> None:
    ended = linbench("check", "rwkv6", "--set", "model.head_dim=100000")
    assert ended.code == 2
    assert f"a check takes {MOST_FLOATS:,} at most" in ended.err


BRIEF = {"protocol.tokens": 4096, "protocol.validation_examples": 32, "protocol.test_examples": 32}
"""Two steps, in which nothing is learned."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "form", "settings", "verdict", "says"),
    [
        (
            "mlstm",
            "native",
            {},
            "not expected",
            "without convolution or token shift .*; --form controlled has a convolution$",
        ),
        ("mlstm", "controlled", {}, "WRONG", "forget gates .* --set model.forget_bias=6 they start open;"),
        ("mlstm", "controlled", {"model.forget_bias": 3}, "WRONG", " s; linbench show model mlstm"),
        ("deltanet", "native", {}, "WRONG", " s; linbench show model .*; .*: --set protocol.lr=0.002$"),
        ("deltanet", "native", {"protocol.lr": 0.002}, "WRONG", " tells what is known of it$"),
        ("deltanet[conv=0]", "native", {}, "not expected", "stands beside which key$"),
        ("deltanet", "controlled", {"model.conv": 0}, "not expected", "stands beside which key$"),
        ("rwkv5", "native", {}, "WRONG", "they start open;"),
        ("rfa", "controlled", {}, "WRONG", " s; linbench show model rfa"),
        ("rwkv5[token_shift=false]", "native", {}, "not expected", "--form controlled"),
        ("base_conv", "native", {}, "not expected", "it has no memory"),
        ("Forgets", "native", {}, "WRONG", " s; a smaller learning rate may do"),
        ("Plain", "native", {}, "not declared", "it declares no state"),
    ],
)
def test_what_sees_no_neighbours_need_not_learn(
    mine: Callable[[str], str], model: str, form: str, settings: dict[str, Any], verdict: str, says: str
) -> None:
    (cell,) = plan(
        "mqar",
        [mine(model) if model[0].isupper() else model],
        preset="quick",
        form=form,
        device="cpu",
        settings=BRIEF | settings,
    )
    finding = learns(cell)
    assert (finding.verdict, finding.ok) == (verdict, verdict != "WRONG")
    assert re.search(says, finding.found)


def test_training_ends_once_it_has_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[Cell] = []

    def measure(cells: list[Cell], on_report: Any) -> list[dict[str, Any]]:
        trained.extend(cells)
        return [{"status": "ok", "metrics": {"accuracy": 1.0}, "seconds": 1.0}]

    monkeypatch.setattr(learning, "measure", measure)
    for settings, stop_at in (({}, ENOUGH), ({"protocol.stop_at": 0.99}, 0.99)):
        (cell,) = plan("mqar", ["gla"], preset="quick", device="cpu", settings=settings)
        assert learns(cell).ok
        assert trained.pop().protocol.stop_at == stop_at


@pytest.mark.slow
def test_learning_is_a_law_when_asked_for(linbench: Callable[..., Any], mine: Callable[[str], str]) -> None:
    ended = linbench(
        "check",
        mine("Forgets"),
        "--learn",
        "--json",
        *(word for name, value in BRIEF.items() for word in ("--set", f"{name}={value}")),
    )
    assert ended.code == 1
    learned = json.loads(ended.out)["laws"][-1]
    assert (learned["law"], learned["verdict"]) == ("learning", "WRONG")
    assert "learning is broken" in ended.err
    assert "mqar quick" in learned["asks"]
    assert f"It asks: {learned['asks']}" in ended.err
