import json

import pytest

from linbench.common import escape
from tests.helpers.hostile import TEXTS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<b>x</b>", "\\<b>x\\</b>"),
        ("a < b <0.001", "a < b <0.001"),
        ("[x](y)", "[x\\](y)"),
        ("![x](y)", "![x\\](y)"),
        ("@org #1 GH-2", "@&#8203;org #&#8203;1 GH-&#8203;2"),
        ("https://x www.y", "https:&#8203;//x www.&#8203;y"),
        ("`a` *b* _c_ d_e $f$", "\\`a\\` \\*b\\* \\_c\\_ d_e \\$f\\$"),
        ("a|b\\|c\nd", "a\\|b\\\\\\|c d"),
        ("&lt; R & D", "\\&lt; R & D"),
        ("\x1b[31m\x9b\u202e", "\\\\x1b[31m\\\\x9b\\\\u202e"),
    ],
)
def test_markdown(text: str, told: str) -> None:
    assert escape.markdown(text) == told
    assert escape.markdown(escape.markdown(text)) == told, "once is enough"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# x", "\\# x"),
        ("- x", "\\- x"),
        ("12. x", "12\\. x"),
        ("---", "\\---"),
        ("> x", "\\> x"),
        ("-1 x", "-1 x"),
    ],
)
def test_where_a_paragraph_begins(text: str, told: str) -> None:
    assert escape.paragraph(text) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("=1+1", "'=1+1"),
        (" \t@x", "'@x"),
        ("-x", "'-x"),
        ("-0.5", "-0.5"),
        ("+1e-5", "+1e-5"),
        ("a=b", "a=b"),
        ("1\r\n=2", "1 =2"),
        ("\uff1d1", "'\uff1d1"),
    ],
)
def test_a_formula_is_none_and_a_number_stays_one(text: str, told: str) -> None:
    assert escape.csv(text) == told


def test_latex_takes_nothing_for_a_command() -> None:
    assert escape.latex("\\input{x}\n%") == "\\textbackslash{}input\\{x\\} \\%"
    assert escape.latex("[2em] x") == "{[}2em] x"
    assert escape.latex("a [b]") == "a [b]"


@pytest.mark.parametrize("text", TEXTS)
def test_json_keeps_its_values(text: str) -> None:
    told = escape.in_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(told) == [text]
    assert told == escape.visible(told)


def test_no_line_is_a_command_of_a_workflow() -> None:
    assert escape.visible("a::b\n ::error::x\n##[group]x") == "a::b\n \\x3a:error::x\n#\\x23[group]x"
    assert escape.csv("::error::x") == escape.one_line("::error::x") == "\\x3a:error::x"


def test_lines_are_kept_or_joined() -> None:
    assert escape.visible("a\tb\nc\x00") == "a\tb\nc\\x00"
    assert escape.one_line(" a\tb\n\nc\x85d ") == "a b c d"
