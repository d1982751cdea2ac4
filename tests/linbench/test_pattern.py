import pytest

from linbench.common.errors import UserError
from linbench.pattern import parse_pattern, split_models


def test_a_pattern_is_one_period_of_layers() -> None:
    names = [term.name for term in parse_pattern("3xgated_deltanet+attention")]
    assert names == ["gated_deltanet"] * 3 + ["attention"]


def test_settings_stand_beside_the_name() -> None:
    first, second = parse_pattern("attention[window=16,positions=none]+deltanet")
    assert first.settings == (("window", "16"), ("positions", "none"))
    assert (second.name, second.settings) == ("deltanet", ())


def test_paths_and_modules_are_names() -> None:
    assert [term.name for term in parse_pattern("2x./mine.py:Mine+package.module:Class")] == ["./mine.py:Mine"] * 2 + ["package.module:Class"]


def test_models_are_split_at_commas_outside_brackets() -> None:
    assert split_models("a, b[x=1,y=2],c+d") == ["a", "b[x=1,y=2]", "c+d"]


def test_spaces_about_signs_go_and_those_within_a_name_stay() -> None:
    assert split_models(" 3xa + b[ x = 1, y=2 ] ,./my layers/x = y.py:Mine") == ["3xa+b[x=1,y=2]", "./my layers/x = y.py:Mine"]


@pytest.mark.parametrize("text", ["", "+", "a+", "0xa", "a[x]", "a[x=1", "a]b"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write N"):
        parse_pattern(text)
