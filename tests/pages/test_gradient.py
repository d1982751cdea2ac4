"""The rows of docs/gradients.md are of all variants, and are what the command computes today."""

import pytest

from linbench.verify.gradient import gradient, shipped
from linbench.verify.gradient_panels import lines
from tests.pages.gradient import CAPTION, PICTURE, drawn, load


def recompute(models: list[str]) -> None:
    stored = lines(load())[1]
    for model, line in lines(gradient(models))[1].items():
        assert line == [None if one is None else pytest.approx(one, abs=0.1) for one in stored[model]], model


def test_every_variant_is_there() -> None:
    assert list(lines(load())[1]) == shipped()


def test_some_rows_are_what_the_command_computes_today() -> None:
    recompute(["attention", "base_conv", "rnn"])


@pytest.mark.slow
@pytest.mark.nightly
def test_all_rows_are_what_the_command_computes_today() -> None:
    recompute(shipped())


def test_the_picture_is_drawn_from_the_stored_rows() -> None:
    picture = drawn()
    assert picture.about in PICTURE.read_text(encoding="utf-8")
    assert CAPTION.read_text(encoding="utf-8") == f"{picture.caption}\n{picture.about}.\n"
