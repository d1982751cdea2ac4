"""One colour family for each generation, with a shade for each of its variants: the same model has the same colour in every figure."""

import colorsys
from collections.abc import Sequence
from functools import cache

from linbench.models.base import GENERATIONS
from linbench.registry import registry
from linbench.store import Result

# Okabe and Ito's colours, told apart by colour-blind readers; the dash tells variants apart in grey
FAMILIES = dict(zip(GENERATIONS, ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#7F7F7F"), strict=True))
OF_YOUR_OWN = "#CC79A7"
"""A generation that is none of these."""

Dash = str | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


@cache
def generations() -> dict[str, str]:
    """Of every registered model."""
    return {name: getattr(entry.cls, "generation", "") for name, entry in registry("model").entries.items()}


def generation(result: Result) -> str:
    """Of the mixer that a model has most layers of."""
    mixers = [layer["mixer"] for layer in result["cell"]["model"]["layers"]]
    return generations().get(max(mixers, key=mixers.count), "")


def styles(results: Sequence[Result]) -> list[tuple[str, Dash]]:
    """A colour and a dash for each of some models, one result of each. Within a generation shades go from dark to light by the order of names."""
    found = [generation(result) for result in results]
    names = [f"{result['label']} {index:03d}" for index, result in enumerate(results)]
    styled = []
    for index, (own, name) in enumerate(zip(found, names, strict=True)):
        alike = sorted(other for one, other in zip(found, names, strict=True) if one == own)
        styled.append((_shade(FAMILIES.get(own, OF_YOUR_OWN), alike.index(name), len(alike)), DASHES[index % len(DASHES)]))
    return styled


def _shade(colour: str, place: int, count: int) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, full = colorsys.rgb_to_hls(red, green, blue)
    if count > 1:
        light += (0.16 if light < 0.5 else 0.1) * (2 * place / (count - 1) - 1)
    return "#" + "".join(f"{round(255 * part):02X}" for part in colorsys.hls_to_rgb(hue, min(max(light, 0.12), 0.72), full))
