"""The rows of docs/gradients.md are of all variants named there, and are what the command computes today."""

from functools import partial

import pytest

from linbench.verify.gradient import DISTANCES, TRIALS, gradient, log_sizes, shipped
from linbench.verify.gradient_panels import lines
from linbench.verify.trained_gradient import fresh_layer
from linbench.verify.update_rules import Trials
from tests.pages import trained_gradient
from tests.pages.gradient import CAPTION, PICTURE, drawn, load


def recompute(models: list[str]) -> None:
    stored = lines(load())[1]
    for model, line in lines(gradient(models))[1].items():
        # CPUs round otherwise, and of a gradient of 1e-17 little else is left
        assert line == [
            None if one is None else pytest.approx(one, abs=0.1, rel=0.02) for one in stored[model]
        ], model


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


def test_every_trained_variant_is_there_as_wide_as_its_model() -> None:
    widths = {cell.model.label: cell.model.backbone.d_model for cell in trained_gradient.cells()}
    assert {row["model"]: row["width"] for row in trained_gradient.load()} == widths
    assert tuple(widths) == trained_gradient.MODELS


def test_some_rows_before_training_are_what_the_command_computes_today() -> None:
    stored = lines(trained_gradient.load(), "before")[1]
    for cell in trained_gradient.cells():
        if cell.model.label in {"gla", "rnn"}:
            trials = Trials(TRIALS, dim=cell.model.backbone.d_model)
            today = log_sizes(partial(fresh_layer, cell), trials, DISTANCES)
            assert stored[cell.model.label] == pytest.approx(today, abs=0.1)


def test_the_picture_of_trained_variants_is_drawn_from_the_stored_rows() -> None:
    picture = trained_gradient.drawn()
    assert picture.about in trained_gradient.PICTURE.read_text(encoding="utf-8")
    written = trained_gradient.CAPTION.read_text(encoding="utf-8")
    assert written == f"{picture.caption}\n{picture.about}.\n"
