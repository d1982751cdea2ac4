"""The law of learning, the only one that takes training."""

from linbench.engine.measure import measure
from linbench.experiments.cell import Cell
from linbench.results.schema.cells import State
from linbench.verify.check import Finding, Verdict

ACCURACY = 0.9
"""Accuracy that two layers reach on `mqar quick`, whatever memory they have, if they see their neighbours."""

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


def learns(cell: Cell) -> Finding:
    """Train a cell of `mqar quick`, and judge whether its model learned as it should."""
    (result,) = measure([cell], lambda report: None)
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
    if state["convolution"] + state["shift"]:
        return "WRONG", ""
    layer = cell.model.layers[0]
    has_controlled_convolution = (
        cell.model.form == "native"
        and "conv" in (layer.entry.cls.controlled or {})
        and "conv" not in layer.settings.model_fields_set
    )
    hint = "; --form controlled has a convolution" if has_controlled_convolution else ""
    return "not expected", NO_NEIGHBOURS + hint
