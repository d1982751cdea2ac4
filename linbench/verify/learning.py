"""Does it learn? The one law that takes training."""

from linbench.engine.measure import measure
from linbench.experiments.cell import Cell
from linbench.verify.check import Finding, Verdict

ACCURACY = 0.9
"""That two layers reach on `mqar quick`, whatever memory they have; a mixer that sees no neighbours
cannot."""

ASKS = (
    f"Two layers of it learn mqar quick to an accuracy of {ACCURACY}, if it has a convolution or token shift,"
    " by which a token sees the one before it."
)


def learns(cell: Cell) -> Finding:
    """Train the cell."""
    (result,) = measure([cell], lambda report: None)
    if result["status"] != "ok":
        return Finding("learning", "WRONG", f"{result['status']}: {result['reason']}", ASKS)
    accuracy = result["metrics"]["accuracy"]
    found = f"accuracy {accuracy:.3f} in {result['seconds']:.0f} s"
    if accuracy >= ACCURACY:
        return Finding("learning", "ok", found, ASKS)
    verdict, why = _judged(cell, result["model"]["state"])
    return Finding("learning", verdict, found + why, ASKS)


def _judged(cell: Cell, state: dict[str, int] | None) -> tuple[Verdict, str]:
    """A model that did not learn, by the parts of its state, None where it declares none: whether it had to,
    and why not."""
    if state is None:
        return (
            "not declared",
            (
                "; it declares no state, so whether a token sees the one before it, without which two layers"
                " learn too slowly, is not known"
            ),
        )
    if not state["recurrent"] + state["cache"]:
        return "not expected", "; it has no memory, only a convolution or token shift"
    if state["convolution"] + state["shift"]:
        return "WRONG", ""
    layer = cell.model.layers[0]
    lent = (
        cell.model.form == "native"
        and "conv" in (layer.entry.cls.controlled or {})
        and "conv" not in layer.settings.model_fields_set
    )
    hint = "; --form controlled has a convolution" if lent else ""
    return (
        "not expected",
        (
            "; without convolution or token shift two layers learn too slowly which value stands beside"
            f" which key{hint}"
        ),
    )
