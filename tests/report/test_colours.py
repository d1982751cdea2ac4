import colorsys
from typing import Any

from linbench.models.base import GENERATIONS
from linbench.report.style import colors as colours
from linbench.report.style.colors import CAME, CONTRAST, FAMILIES, PAIRS, _luminance, generations, ink, styles


def hue(colour: str) -> float:
    return colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]


def test_a_generation_is_one_hue_and_its_variants_are_shades_of_it(a_result: Any) -> None:
    names = [name for name, one in generations().items() if one in GENERATIONS]
    colours = {name: styles([a_result(name)])[0].colour for name in names}
    assert len(set(colours.values())) == len(names)
    assert {
        name: abs(hue(colours[name]) - hue(FAMILIES[generations()[name]])) < 0.025 for name in names
    } == dict.fromkeys(names, True)


def test_a_model_has_its_colour_whoever_stands_beside_it(a_result: Any) -> None:
    alone = styles([a_result("deltanet")])[0]
    among = styles([a_result(name) for name in ("comba", "attention", "deltanet", "rwkv7")])
    assert among[2] == alone


def test_variants_of_one_mixer_share_its_colour_and_differ_in_dash_and_mark(a_result: Any) -> None:
    one, other = styles([a_result("deltanet", heads=1), a_result("deltanet", heads=2)])
    assert one.colour == other.colour
    assert one.dash != other.dash
    assert one.mark != other.mark


def test_no_two_delta_rules_and_no_variant_of_one_have_both_dash_and_mark_alike(a_result: Any) -> None:
    """Dash and mark are all that tells them apart in grey."""
    names = sorted(name for name, one in generations().items() if one == "delta rule")
    found = styles([a_result(name, heads=heads) for name in names for heads in (1, 2)])
    assert len({(one.dash, one.mark) for one in found}) == min(2 * len(names), PAIRS) > 10


def test_models_from_elsewhere_have_shades_of_their_own(a_result: Any) -> None:
    mine, yours, known = styles(
        [a_result("./mine.py:Mine"), a_result("./yours.py:Yours"), a_result("deltanet")]
    )
    assert len({mine.colour, yours.colour, known.colour}) == 3


def test_every_name_can_be_read_on_white(a_result: Any) -> None:
    for name in generations():
        (style,) = styles([a_result(name)])
        assert 1.05 / (_luminance(ink(style.colour)) + 0.05) >= CONTRAST
    assert ink("#000000") == "#000000"


def test_every_shipped_mixer_has_its_place_and_keeps_it_when_another_comes(
    a_result: Any, monkeypatch: Any
) -> None:
    before = {name: styles([a_result(name)])[0] for name in generations()}
    assert set(CAME) == set(before)
    monkeypatch.setattr(colours, "generations", lambda: {"another": "gates and decay", **generations()})
    colours._of_generation.cache_clear()
    assert {name: styles([a_result(name)])[0] for name in before} == before
    assert styles([a_result("another")])[0].colour not in {style.colour for style in before.values()}
    colours._of_generation.cache_clear()
