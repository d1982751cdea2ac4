import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.experiments.pattern import parse_pattern, split_models, split_task, tidy


def test_a_pattern_is_one_period_of_layers() -> None:
    names = [term.name for term in parse_pattern("3xgated_deltanet+attention")]
    assert names == ["gated_deltanet"] * 3 + ["attention"]


def test_settings_stand_beside_the_name() -> None:
    first, second = parse_pattern("attention[window=16,positions=none]+deltanet")
    assert first.settings == (("window", "16"), ("positions", "none"))
    assert (second.name, second.settings) == ("deltanet", ())


def test_paths_and_modules_are_names() -> None:
    assert [term.name for term in parse_pattern("2x./mine.py:Mine+package.module:Class")] == [
        "./mine.py:Mine"
    ] * 2 + ["package.module:Class"]


def test_models_are_split_at_commas_outside_brackets() -> None:
    assert split_models("a, b[x=1,y=2],c+d") == ["a", "b[x=1,y=2]", "c+d"]


def test_spaces_about_signs_go_and_those_within_a_name_stay(snapshot: SnapshotAssertion) -> None:
    found = split_models(" 3xa + b[ x = 1, y=2 ] ,./my layers/x = y.py:Mine")
    assert found == snapshot


@pytest.mark.parametrize("text", ["", "+", "a+", "0xa", "a[x]", "a[x=1", "a]b"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write N"):
        parse_pattern(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("'./a+b/mine.py:Mine'+deltanet", ["./a+b/mine.py:Mine", "deltanet"]),
        ('3x"./a,[b]/mine.py:Mine"', ["./a,[b]/mine.py:Mine"] * 3),
        ("'3xlayers/mine.py:Mine'", ["3xlayers/mine.py:Mine"]),
        ("./john's/mine.py:Mine+./mary's/mine.py:Mine", ["./john's/mine.py:Mine", "./mary's/mine.py:Mine"]),
        ("a + 'b+c'[x=1]", ["a", "b+c"]),
    ],
)
def test_a_name_that_holds_a_sign_stands_in_quotes(text: str, names: list[str]) -> None:
    assert [term.name for term in parse_pattern(text)] == names
    assert [term.name for term in parse_pattern(tidy(text))] == names
    assert split_models(f"x, {text} ,y") == ["x", tidy(text), "y"]


def test_a_value_may_have_brackets_and_quotes_of_its_own() -> None:
    (term,) = parse_pattern("mine.py:Mine[ sizes = [1, 2], act = 'a, b]', path=./x=y ]")
    assert term.settings == (("sizes", "[1, 2]"), ("act", "'a, b]'"), ("path", "./x=y"))
    tidied = tidy("mine.py:Mine[ sizes = [1, 2], act = 'a, b]' ] + b")
    assert tidied == "mine.py:Mine[sizes=[1,2],act='a, b]']+b"


def test_a_setting_that_stands_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"^'deltanet\[conv=0,conv=4\]' gives conv twice \(0 and 4\)"):
        parse_pattern("deltanet[conv=0,conv=4]")


@pytest.mark.parametrize(
    ("text", "task", "preset"),
    [
        ("mqar", "mqar", None),
        ("mqar/quick", "mqar", "quick"),
        ("mqar/", "mqar", None),
        ("./tasks/tk.py:Full", "./tasks/tk.py:Full", None),
        ("./tasks/tk.py:Full/quick", "./tasks/tk.py:Full", "quick"),
        ("/home/a/tk.py", "/home/a/tk.py", None),
        ("../tk.py/quick", "../tk.py", "quick"),
        ("package.tasks:Full", "package.tasks:Full", None),
        ("package.tasks:Full/quick", "package.tasks:Full", "quick"),
        ("'./a, b/tk.py:Full'/quick", "./a, b/tk.py:Full", "quick"),
        ('"./x.py/tk.py"', "./x.py/tk.py", None),
    ],
)
def test_a_task_may_be_a_path_and_have_a_preset(text: str, task: str, preset: str | None) -> None:
    assert split_task(text) == (task, preset)


@pytest.mark.parametrize(
    "text", ["99999999xdeltanet", f"{'9' * 5000}xdeltanet", "1025xa", "1000xa+25xb", "+".join(["a"] * 1025)]
)
def test_more_layers_than_any_model_has_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"has more than 1,024 layers"):
        parse_pattern(text)


def test_as_many_layers_as_a_model_may_have() -> None:
    assert len(parse_pattern("1000xa+24xb")) == 1024


@pytest.mark.parametrize("text", ["+" * 60_000, "a" * 10_001, "a[" * 60_000])
def test_a_text_that_is_too_long_to_be_looked_through_is_refused(text: str) -> None:
    for read in (parse_pattern, split_models):
        with pytest.raises(UserError, match=r"has more than 10,000 characters"):
            read(text)


def test_digits_of_another_script_are_part_of_a_name() -> None:
    assert [term.name for term in parse_pattern("३xa")] == ["३xa"]
