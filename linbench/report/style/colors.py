"""Colours of models: one family for each generation, with a shade for each of its variants.

The same model has the same colour in every figure.
"""

import colorsys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from linbench.experiments.registry import registry
from linbench.models.base import GENERATIONS
from linbench.results.schema.cells import CellResult

# Okabe and Ito's colours, told apart by colour-blind readers, and a purple; dashes and marks tell variants
# apart in grey
FAMILIES = dict(
    zip(
        GENERATIONS,
        ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#7A4FA3", "#56B4E9", "#7F7F7F"),
        strict=True,
    )
)
OF_YOUR_OWN = "#CC79A7"
"""The colour of mixers of no known generation."""

WITHOUT_GENERATION = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#7A4FA3", "#56B4E9", "#CC79A7")
"""The colours of language models, whose layers are not known: those above but for grey, in which models
without a value are named."""

COLOURS = len(WITHOUT_GENERATION)

Dash = str | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
MARKS = ("o", "s", "^", "D", "v")

PAIRS = len(DASHES) * len(MARKS)
"""The number of pairs of a dash and a mark. Those of the mixers of a generation are next to each other."""

VARIANT = 9
"""The number of pairs between two models of one mixer, or the first after it that no other model has."""

CAME = (
    "attention", "fox", "linear_attention", "transnormer", "performer", "rfa", "retnet", "lightning", "gla",
    "hgrn2", "mamba2", "mlstm", "dfw", "rwkv4", "rwkv5", "rwkv6", "deltanet", "gated_deltanet", "comba",
    "deltaproduct", "gated_deltaproduct", "kda", "normalised_deltanet", "rwkv7", "base_conv", "lstm", "mamba",
    "s4d", "h3", "stick_breaking", "cope", "path", "path_fox", "deltaformer", "delta_positions",
    "gated_attention", "mla", "gau", "mesanet", "mesa_layer", "longhorn", "kaczmarz", "ttt_linear",
    "ttt_mlp", "lact", "titans", "gated_kalmanet", "momentum_deltanet", "precond_gdn", "precond_kda",
    "omeganet", "atlas", "titans_mag", "gated_deltanet2", "rg_lru", "mingru", "minlstm", "gru", "rnn", "lru",
    "s5", "titans_mac", "based", "rebased", "gsa", "abc", "s4", "hyena",
    "mamba3", "attention_mamba", "attention_mamba2", "rosa", "mom", "log_linear_gdn", "log_linear_mamba2",
    "raven", "moba", "nsa",
)  # fmt: skip
"""The shipped mixers, in the order in which they were added.

Add new ones at the end: then the others keep their shades, and stored pictures stay as they are.
"""

DARKER, LIGHTER, TURN = 0.14, 0.08, 0.01
"""The range of the shades of a family around its colour: in lightness, either way, and in hue."""

CONTRAST = 4.5
"""The least contrast of text on white: WCAG 2, level AA."""


class Style(NamedTuple):
    """The style that a model is drawn in."""

    colour: str
    dash: Dash
    mark: str


@cache
def generations() -> dict[str, str]:
    """Return the generation of every registered mixer."""
    return {name: getattr(entry.cls, "generation", "") for name, entry in registry("model").entries.items()}


def mixer(result: CellResult) -> str:
    """Return the mixer that a model has most layers of."""
    mixers = [layer["mixer"] for layer in result["cell"]["model"]["layers"]]
    return str(max(mixers, key=mixers.count))


def generation(result: CellResult) -> str:
    """Return the generation of the mixer that a model has most layers of."""
    return generations().get(mixer(result), "")


def styles(results: Sequence[CellResult]) -> list[Style]:
    """Return the styles of models, given one result of each."""
    return styles_of([mixer(result) for result in results])


def styles_of(mixers: Sequence[str]) -> list[Style]:
    """Return the styles of models, given their mixers.

    A mixer's shade depends on its place in its generation alone, not on the other models. Models of one mixer
    differ in dash and mark, and from other mixers of their generation, while there are pairs of these left.
    """
    elsewhere = sorted(set(mixers) - generations().keys())
    places = {}
    for name in mixers:
        own = generations().get(name, "")
        places[name] = own, (_of_generation(own) if name in generations() else elsewhere).index(name)
    taken = {(own, place % PAIRS) for own, place in places.values()}
    styled = []
    for index, name in enumerate(mixers):
        own, place = places[name]
        turn = place
        if earlier := mixers[:index].count(name):
            turn += VARIANT * earlier
            free = (each for each in range(turn, turn + PAIRS) if (own, each % PAIRS) not in taken)
            turn = next(free, turn)
            taken.add((own, turn % PAIRS))
        styled.append(
            Style(
                _shade(FAMILIES.get(own, OF_YOUR_OWN), place),
                DASHES[turn % len(DASHES)],
                MARKS[turn % len(MARKS)],
            )
        )
    return styled


def styles_by_place(places: Sequence[int]) -> list[Style]:
    """Return styles of language models, given the place of each among all.

    A model whose colour another one has already takes the next that is free, while there is one.
    """
    taken, styled = set[str](), list[Style]()
    for place in places:
        colours = [WITHOUT_GENERATION[(place + turn) % COLOURS] for turn in range(COLOURS)]
        if len(taken) == COLOURS:
            taken.clear()
        colour = next(colour for colour in colours if colour not in taken)
        taken.add(colour)
        styled.append(Style(colour, DASHES[place % len(DASHES)], MARKS[place % len(MARKS)]))
    return styled


@cache
def _of_generation(own: str) -> list[str]:
    """Return the mixers of a generation: the shipped ones in the order of `CAME`, then others by name."""
    alike = [name for name, generation in generations().items() if generation == own]
    return sorted(alike, key=lambda name: (CAME.index(name) if name in CAME else len(CAME), name))


@cache
def ink(colour: str) -> str:
    """Return a colour, made as dark as text must be to be read on white."""
    hue, light, full = _hls(colour)
    while light > 0 and 1.05 / (_luminance(colour) + 0.05) < CONTRAST:
        light = max(0.0, light - 0.01)
        colour = _hex(hue, light, full)
    return colour


def _shade(colour: str, place: int) -> str:
    """Return a shade of a colour by its place among all shades.

    Each further shade halves a gap between two (van der Corput's sequence), so there may be any number.
    """
    hue, light, full = _hls(colour)
    along = sum((place >> bit & 1) / (2 << bit) for bit in range(place.bit_length()))
    light += (DARKER + LIGHTER) * along - DARKER
    hue += TURN * (2 * along - 1)
    return _hex(hue, min(max(light, 0.12), 0.72), full)


def _hls(colour: str) -> tuple[float, float, float]:
    return colorsys.rgb_to_hls(*_rgb(colour))


def _hex(hue: float, light: float, full: float) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in colorsys.hls_to_rgb(hue, light, full))


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
