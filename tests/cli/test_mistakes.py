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
        (["run", "mqar", "--model", ""], "name at least one model"),
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
