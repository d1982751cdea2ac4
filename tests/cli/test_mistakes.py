"""What a user may get wrong is one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "mqr", "--model", "deltanet"], "unknown task 'mqr'; did you mean 'mqar'?"),
        (["run", "mqar", "--model", "deltnet"], "unknown model 'deltnet'; did you mean 'deltanet'?"),
        (["run", "mqar", "--model", "deltanet", "--preset", "quck"], "did you mean 'quick'?"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "x"], "seeds are numbers such as 0,1,2 or 0-4, not 'x'; the largest is 9223372036854775807."),
        (["run", "mqar", "--model", "deltanet", "--seeds", "4-0"], "not '4-0'"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "²"], "not '²'"),
        (["run", "mqar", "--model", "deltanet", "--seeds", "0-99999999999"], "seeds are at most 10000 at once, not '0-99999999999'."),
        (["run", "mqar", "--model", "deltanet", "--seeds", "18446744073709551616"], "not '18446744073709551616'; the largest is 9223372036854775807."),
        (["run", "mqar", "--model", "deltanet", "--set", "heads"], "--set takes NAME=VALUE"),
        (["run", "mqar", "--model", "deltanet", "--search", "--set", "protocol.lr=1e-3"], "protocol.lr = 1e-3: the learning rate is searched for; give one"),
        (["run", "mqar", "--model", "deltanet", "--precision", "bf16", "--set", "protocol.precision=fp32"], "both say the precision; give one of the two"),
        (["run", "mqar", "--model", "deltanet", "--set", "protocol.clip=inf"], "protocol.clip = inf: input should be a finite number"),
        (["run", "mqar", "--model", "00xdeltanet"], "is not a layer pattern"),
        (["run", "mqar", "--model", "3xdeltanet+attention", "--set", "model.layers=2"], "4, 8, ... would do"),
        (["run", "mqar", "--model", "torch.nn:MultiheadAttention"], "model.num_heads must be given"),
        (["run", "mqar", "--model", "torch.nn.functional:pi"], "unknown class in torch.nn.functional 'pi'"),
        (["run", "mqar", "--model", "deltanet", "--set", "task.seq_len=63"], "63 is odd, 64 would do"),
        (["run", "mqar", "--model", ""], "'' names no model; `linbench list models` has them."),
        (["sweep", "quick", "--model", ","], "',' names no model"),
        (["compare", "nope", "--suite", "quick"], "unknown model 'nope'"),
        (["bench", "length", "--models", "", "--device", "cpu"], "'' names no model"),
        (["bench", "length", "--repeat", "0"], "Input should be greater than or equal to 1, not '0'; linbench bench length -h tells more."),
        (["bench", "length", "--lengths", "", "--device", "cpu"], "--lengths takes whole numbers from 1 on, such as 64,256, not ''."),
        (["bench", "length", "--set", "heads=4", "--device", "cpu"], "--set heads says nothing of a layer; did you mean model.heads?"),
        (["bench", "length", "--set", "task.x=4", "--device", "cpu"], "--set task.x says nothing of a layer; only model.NAME does."),
        (["bench", "ops", "--ops", "", "--device", "cpu"], "--ops takes names with commas between, not ''; without it all are taken."),
        (["bench", "ops", "--shapes", "", "--device", "cpu"], "--shapes takes shapes such as B256xT256xH2xD64,B8xT4096xH16xD128, not ''."),
        (["bench", "data", "--tasks", "mqar,,copying", "--device", "cpu"], "--tasks takes names with commas between, not 'mqar,,copying'"),
        (["bench", "train", "--shapes", "B2xT1xD64", "--device", "cpu"], "attention at B2xT1xD64 cannot be: task.seq_len = 1: "),
        (["show", "model", "deltnet"], "did you mean 'deltanet'?"),
        (["figures", "learning-curve"], "did you mean 'learning-curves'?"),
        (["run", "mqar", "--model", "./no.py:Mine"], "there is no file ./no.py"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(linbench: Callable[..., Any], words: list[str], sentence: str) -> None:
    ended = linbench(*words)
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""
    assert not Path("results").exists()


def test_unknown_options_and_verbs_exit_2(linbench: Callable[..., Any]) -> None:
    assert linbench("run", "mqar", "--model", "deltanet", "--sedes", "1").code == 2
    assert linbench("runn").code == 2
