"""Words that a shell completes, and help texts."""

from collections.abc import Callable
from typing import Any

import pytest

from linbench.claims.claim import claims
from linbench.cli import completion
from linbench.cli.check import check
from linbench.cli.help import help_of
from linbench.experiments.registry import shipped
from linbench.experiments.suite import shipped as shipped_suites
from linbench.experiments.system import shipped as shipped_systems
from tests.helpers.processes import imported


def test_all_that_is_shipped_is_completed_and_nothing_else() -> None:
    assert completion.tasks("") == sorted(shipped("task").entries)
    assert completion.models("") == sorted([*shipped("model").entries, *shipped_systems()])
    assert completion.suites("") == sorted(shipped_suites())
    assert completion.claims("") == sorted(claims(), key=lambda name: int(name[1:]))


def test_the_last_of_several_models_is_completed() -> None:
    assert completion.models("deltanet,gl") == ["deltanet,gla"]
    assert completion.models("3xdeltanet+gated_att") == ["3xdeltanet+gated_attention"]
    assert completion.models("deltanet,3xqwen") == []
    assert completion.models("deltanet,qwen") == ["deltanet,qwen3_next"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("linbench run mq", ["mqar"]),
        ("linbench run mqar --preset quick-", ["quick-hard"]),
        ("linbench sweep zoo-", ["zoo-native", "zoo-one-length", "zoo-quick"]),
        ("linbench show task parit", ["parity"]),
        ("linbench show model kd", ["kda"]),
        ("linbench show system k", ["kimi_linear"]),
        ("linbench run mqar --model qwen", ["qwen3_next"]),
        ("linbench claims C7", ["C7", "C70", "C71", "C72", "C73", "C74", "C75", "C76", "C77"]),
    ],
)
def test_a_shell_is_answered(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]
) -> None:
    monkeypatch.setenv("_LINBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    ended = linbench()
    assert (ended.code, ended.err, ended.out.split()) == (0, "", completed)


def test_names_are_completed_without_torch() -> None:
    program = (
        "from linbench.cli import completion as c; c.tasks(''), c.models(''), c.suites(''), c.claims('')"
    )
    assert imported(program, "torch") == set()


def test_paragraphs_of_help_are_lines_that_the_terminal_wraps(linbench: Callable[..., Any]) -> None:
    def verb() -> None:
        """Do this,
        and that.

        Then
        more.

        linbench do this
        """

    assert help_of(verb).split("\n\n") == ["Do this, and that.", "Then more.", "  linbench do this"]
    shown = " ".join(linbench("check", "--help").out.split())
    assert all(paragraph in shown for paragraph in help_of(check).split("\n\n"))
