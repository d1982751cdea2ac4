"""The words of the command line: help of every verb, and the message for each of many mistakes.

The words are in `__snapshots__`, one file for each verb. After a change that means to change them, run
`pytest tests/cli/test_wording.py --snapshot-update` and read the difference.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.cli import VERBS
from linbench.cli.bench import bench
from tests.helpers.snapshots import TextFile

BENCHMARKS = [command.name or "" for command in bench.registered_commands]
PATHS = [["linbench"], *([verb] for verb in VERBS), ["bench"], *(["bench", name] for name in BENCHMARKS)]

RUN = ["run", "mqar", "--model", "deltanet"]
PROBE = ["probe", "./no-such-folder"]
DRY = ["sweep", "quick", "--dry-run", "--device", "cpu"]
NINES = "9" * 5000

MISTAKES: dict[str, list[list[str]]] = {
    "linbench": [["runn"], ["--hepl"]],
    "run": [
        ["run"],
        ["run", "mqr", "--model", "deltanet"],
        ["run", "x" * 100_000, "--model", "deltanet"],
        ["run", "mqar/quick", "--preset", "quick-hard", "--model", "deltanet"],
        ["run", "mqar", "--model", "deltnet"],
        ["run", "mqar", "--model", ""],
        ["run", "mqar", "--model", "00xdeltanet"],
        ["run", "mqar", "--model", "deltanet[conv]"],
        ["run", "mqar", "--model", "deltanet[conv=0,conv=4]"],
        ["run", "mqar", "--model", "deltanet[head_dim=1000000000]"],
        ["run", "mqar", "--model", "3xdeltanet+attention", "--set", "model.layers=2"],
        ["run", "mqar", "--model", "./no.py:Mine"],
        ["run", "mqar", "--model", "no/such/model"],
        ["run", "mqar", "--model", "no such.module:Mine"],
        ["run", "mqar", "--model", "no_such_module:Mine"],
        ["run", "mqar", "--model", "torch.nn:MultiheadAttention"],
        ["run", "mqar", "--model", "torch.nn:Linear"],
        ["run", "mqar", "--model", "torch.nn.functional:pi"],
        ["run", "mqar", "--model", "base_conv", "--form", "controlled"],
        ["run", "mqar", "--model", "lstm", "--set", "model.state_floats=100"],
        [*RUN, "--sedes", "1"],
        [*RUN, "--preset", "quck"],
        [*RUN, "--form", "controled"],
        [*RUN, "--form", "controlled", "--set", "model.channel_mixer=own"],
        [*RUN, "--protocol", "zoolgy"],
        [*RUN, "--precision", "fp16"],
        [*RUN, "--precision", "bf16", "--set", "protocol.precision=fp32"],
        [*RUN, "--device", "cpi"],
        [*RUN, "--device", "mps"],
        [*RUN, "--allow", "causal"],
        [*RUN, "--gpus", "0.5"],
        [*RUN, "--executor", "slurm"],
        [*RUN, "--seeds", "x"],
        [*RUN, "--seeds", "4-0"],
        [*RUN, "--seeds", "²"],
        [*RUN, "--seeds", "९"],
        [*RUN, "--seeds", "0-99999999999"],
        [*RUN, "--seeds", "18446744073709551616"],
        [*RUN, "--stack", "१"],
        [*RUN, "--test-lengths", "१x"],
        [*RUN, "--search", "--set", "protocol.lr=1e-3"],
        [*RUN, "--set", "heads"],
        [*RUN, "--set", "lr=1"],
        [*RUN, "--set", "task.kv_pairs=4", "--set", "task.kv_pairs=8"],
        [*RUN, "--set", "model.d_modle=8"],
        [*RUN, "--set", "model.state_floats=many"],
        [*RUN, "--set", "model.state_floats=9"],
        [*RUN, "--set", "model.state_floats=2048", "--set", "model.head_dim=8"],
        [*RUN, "--set", "model.parameters=1000"],
        [*RUN, "--set", "model.expand_k=1e18"],
        [*RUN, "--set", "protocol.clip=inf"],
        [*RUN, "--set", "protocol.lr=fast"],
        [*RUN, "--set", "protocol.shuffle=ture"],
        [*RUN, "--set", "protocol.epochs=2"],
        [*RUN, "--set", "protocol.schedule=cosin"],
        [*RUN, "--set", "protocol.evaluations=1000000000000000000"],
        [*RUN, "--set", "protocol.batch_size=1000000000"],
        [*RUN, "--set", "task.kv_pairs=0.5"],
        [*RUN, "--set", f"task.kv_pairs={'9' * 4000}"],
        [*RUN, "--set", "task.seq_len=63"],
        [*RUN, "--set", "task.seq_len=2097152"],
        [*RUN, "--set", "task.vocab_size=1099511627776"],
        ["run", "capacity", "--model", "deltanet", "--set", "task.delay=1000000000000"],
        ["run", "capacity", "--model", "deltanet", "--set", "task.loss=squared", "--set", "task.keys=65"],
    ],
    "sweep": [
        ["sweep", "quik"],
        ["sweep", "no.yaml"],
        ["sweep", "quick", "--model", ","],
        ["sweep", "quick", "--retry", "all"],
        ["sweep", "quick", "--limit", "0"],
        [*DRY, "--only", "delta"],
        [*DRY, "--model", "lstm", "--form", "native", "--only", "mqr"],
        [*DRY, "--shard", "3/2"],
        [*DRY, "--shard", "१/२"],
        [*DRY, "--shard", f"1/{NINES}"],
        [*DRY, "--shard", "4/4", "--only", "deltanet"],
        [*DRY, "--seeds", ""],
        ["sweep", "quick", "--devices", "९"],
        ["sweep", "quick", "--workers", "9999999"],
        ["sweep", "quick", "--timeout", "inf"],
        ["sweep", "quick", "--gpus", "nan"],
    ],
    "compare": [
        ["compare", "deltanet"],
        ["compare", "nope", "--suite", "quick"],
        ["compare", "deltanet", "gla", "--suite", "quik"],
        ["compare", "deltanet", "gla", "--against", "refrence"],
        ["compare", "deltanet", "gla", "--format", "html"],
    ],
    "gate": [
        ["gate", "--baseline", "base"],
        ["gate", "--baseline", "base", "--candidate", "head"],
        ["gate", "--baseline", "base", "--candidate", "head", "--policy", "no.yaml"],
    ],
    "check": [
        ["check", "99999999xdeltanet"],
        ["check", f"{NINES}xdeltanet"],
        ["check", "deltanet,gla"],
    ],
    "list": [["list", "task"]],
    "show": [
        ["show", "model", "deltnet"],
        ["show", "task", "mqar/quik"],
        ["show", "task", "mqar", "--set", "model.heads=2"],
    ],
    "figures": [["figures", "learning-curve"]],
    "probe": [
        ["probe", "./no-such-folder"],
        [*PROBE, "--task", "mqr"],
        [*PROBE, "--task", "mqar,,needle"],
        [*PROBE, "--task", "mqar", "--preset", "quck"],
        [*PROBE, "--task", "mqar", "--set", "model.d_model=8"],
        [*PROBE, "--task", "mqar", "--shots", "-1"],
        [*PROBE, "--task", "mqar", "--answers", "writen"],
        [*PROBE, "--task", "mqar", "--device", "mps"],
        [*PROBE, "--task", "mqar", "--dtype", "fp16"],
        [*PROBE, "--task", "regression"],
        [*PROBE, "--task", "stacked_mqar"],
        [*PROBE, "--task", "compression"],
        [*PROBE, "--task", "variable_overwrite/fused"],
        [*PROBE, "--task", "capacity/schlag-1-60"],
        [*PROBE, "--task", "mqar"],
    ],
    "untrained": [
        ["untrained", "capacity", "--seed", f"1{'0' * 30}"],
        ["untrained", "capacity", "--after", "mqar"],
        ["untrained", "gradient", "--after", "mqra"],
        ["untrained", "gradient", "--after", "regression", "--model", "rnn"],
        ["untrained", "gradient", "--after", "mqar", "--model", "rnn", "--dim", "8"],
    ],
    "bench": [
        ["bench", "length", "--models", "", "--device", "cpu"],
        ["bench", "length", "--repeat", "0"],
        ["bench", "length", "--lengths", "", "--device", "cpu"],
        ["bench", "length", "--lengths", "२५६", "--device", "cpu"],
        ["bench", "length", "--set", "heads=4", "--device", "cpu"],
        ["bench", "length", "--set", "task.x=4", "--device", "cpu"],
        ["bench", "ops", "--ops", "", "--device", "cpu"],
        ["bench", "ops", "--shapes", "", "--device", "cpu"],
        ["bench", "ops", "--shapes", "B१xT१xH१xD१", "--device", "cpu"],
        ["bench", "data", "--tasks", "mqar,,copying", "--device", "cpu"],
        ["bench", "train", "--shapes", "B2xT1xD64", "--device", "cpu"],
        ["bench", "sweep", "quik"],
        ["bench", "sweep", "quick", "--seeds", "", "--device", "cpu"],
        ["bench", "sweep", "quick", "--device", "cpu", "--devices", "all"],
    ],
}


@pytest.fixture
def wording(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


@pytest.mark.parametrize("path", PATHS, ids="-".join)
def test_help(
    linbench: Callable[..., Any],
    wording: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
    path: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ended = linbench(*(path if path != ["linbench"] else []), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert _without_trailing_spaces(ended.out) == wording


@pytest.mark.parametrize("verb", MISTAKES)
def test_messages(linbench: Callable[..., Any], wording: SnapshotAssertion, verb: str) -> None:
    told = []
    for words in MISTAKES[verb]:
        ended = linbench(*words)
        assert ended.out == "", words
        assert len(ended.err) < 4000, words
        sentence, _, adapter = ended.err.partition("\n\n")
        assert len(sentence.splitlines()) == 1, words
        assert adapter[:6] in ("", "class "), words
        assert ended.code in (2, 6), words
        assert ended.code == 2 or verb == "gate" or "--against" in words
        command = " ".join(_quoted(word) for word in words)
        told.append(f"$ linbench {command}\n{_without_lists(ended.err)}")
    assert not Path("results").exists(), "nothing is left behind"
    assert "\n".join(told) == wording


def _quoted(word: str) -> str:
    word = word if len(word) < 60 else f"{word[:10]}...({len(word):,} characters)"
    return word if word and not {*" ²९१२५६"} & {*word} else f"'{word}'"


def _without_lists(message: str) -> str:
    """Leave out the current folder, and lists of all tasks, models and suites, which grow."""
    short = re.sub(r"(Allowed:|it has) ([\w-]+, ){3}.*", r"\1 ...", message)
    return short.replace(str(Path.cwd()), "FOLDER")


def _without_trailing_spaces(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
