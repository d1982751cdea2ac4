"""The law of learning, the only one that takes training."""

from dataclasses import replace

from pydantic import ValidationError

from linbench.engine.measure import measure
from linbench.experiments.cell import Cell
from linbench.experiments.model_spec import LayerSpec
from linbench.results.schema.cells import State
from linbench.verify.check import Finding, Verdict

ACCURACY = 0.9
"""Accuracy that two layers reach on `mqar quick`, whatever memory they have, if they see their neighbours."""

ENOUGH = 0.95
"""Accuracy in validation at which training stops: more would not change the verdict. Chosen."""

ASKS = (
    f"Two layers of it learn mqar quick to an accuracy of {ACCURACY}, if it has a convolution or token shift,"
    " by which a token sees the one before it."
)

UNKNOWN_NEIGHBOURS = (
    "; it declares no state, so whether a token sees the one before it, without which two layers learn too"
    " slowly, is not known"
)
NO_NEIGHBOURS = (
    "; without convolution or token shift two layers learn too slowly which value stands beside which key"
)

OPEN = 6
"""A `forget_bias` with which half of a memory is left after 280 tokens, four times those of `mqar quick`."""

SMALLER_RATE = 0.002
"""A learning rate to try where that of `mqar quick` may be too large. Chosen."""


def learns(cell: Cell) -> Finding:
    """Train a cell of `mqar quick` until it has learned, and judge whether it learned as it should."""
    protocol = cell.protocol
    if protocol.stop_at is None:
        protocol = protocol.model_copy(update={"stop_at": ENOUGH})
    (result,) = measure([replace(cell, protocol=protocol)], lambda report: None)
    if result["status"] != "ok":
        return Finding("learning", "WRONG", f"{result['status']}: {result['reason']}", ASKS)
    accuracy = result["metrics"]["accuracy"]
    measured = f"accuracy {accuracy:.3f} in {result['seconds']:.0f} s"
    if accuracy >= ACCURACY:
        return Finding("learning", "ok", measured, ASKS)
    verdict, why = _judge_failure(cell, result["model"]["state"])
    return Finding("learning", verdict, measured + why, ASKS)


def _judge_failure(cell: Cell, state: State | None) -> tuple[Verdict, str]:
    """Return the verdict on a model that did not learn, and why it is no fault if it is none.

    Args:
        state: floats of the parts of its state; None if it declares none.
    """
    if state is None:
        return "not declared", UNKNOWN_NEIGHBOURS
    if not state["recurrent"] + state["cache"]:
        return "not expected", "; it has no memory, only a convolution or token shift"
    layer = cell.model.layers[0]
    if state["convolution"] + state["shift"]:
        return "WRONG", (_hint_at_gates(layer) or _hint_at_card(layer)) + _hint_at_rate(cell)
    has_controlled_convolution = (
        cell.model.form == "native"
        and "conv" in (layer.entry.cls.controlled or {})
        and "conv" not in layer.settings.model_fields_set
    )
    hint = "; --form controlled has a convolution" if has_controlled_convolution else ""
    return "not expected", NO_NEIGHBOURS + hint


def _hint_at_gates(layer: LayerSpec) -> str:
    """Return what to try where forget gates start as published and may start open, or no words."""
    settings = layer.settings
    if "forget_bias" not in set(type(settings).model_fields) - settings.model_fields_set:
        return ""
    try:
        type(settings).model_validate({**settings.model_dump(exclude_unset=True), "forget_bias": OPEN})
    except ValidationError:
        return ""
    return f"; its forget gates start as published, and with --set model.forget_bias={OPEN} they start open"


def _hint_at_card(layer: LayerSpec) -> str:
    """Return where to read about a shipped variant, or no words for a user's own layer."""
    name = layer.entry.name
    return f"; linbench show model {name} tells what is known of it" if layer.entry.shipped else ""


def _hint_at_rate(cell: Cell) -> str:
    """Return a smaller learning rate to try, or no words if it was not larger."""
    larger = cell.protocol.lr > SMALLER_RATE
    return f"; a smaller learning rate may do: --set protocol.lr={SMALLER_RATE}" if larger else ""
