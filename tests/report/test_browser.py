"""The page in a browser: it is opened and clicked through."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from linbench.report.page.page import Claimed, page
from tests.helpers.browser import column, needs_browser
from tests.helpers.browser import driver as driver
from tests.helpers.speeds import a_speed

NAMES = ("attention", "comba", "deltanet", "gated_deltanet", "gla", "retnet")

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def report(a_result: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of six models."""
    curve = [
        {"step": i, "tokens": 100 * i, "accuracy": 0.1 * i, "loss": 1.0, "nll": 1.0} for i in range(1, 5)
    ]
    slices = {"distance": {"at": [1, 2, 9], "accuracy": {"sum": [3, 1, 0], "weight": [3, 3, 3]}}}
    results = [
        a_result(name, seed, round(0.9 - 0.15 * i, 2), curve=curve, slices=slices)
        for i, name in enumerate(NAMES)
        for seed in (0, 1)
    ]
    results += [a_result("kda", status="oom", metrics={}, reason="too little memory")]
    speeds = [
        a_speed(name, length=length, seconds=0.01 * (i + 1))
        for i, name in enumerate(NAMES)
        for length in (64, 256)
    ]
    speeds += [a_speed("kda", marks=["busy"], seconds=1.0)]
    figures = pd.DataFrame(
        [["delta", "deltanet, accuracy", "0.600", "2 seeds"]], columns=["measure", "of", "figure", "out of"]
    )
    rows = [
        ["C7", "supported", "The delta rule recalls more.", ""],
        ["C12", "undecided", "Gates recall more.", "gla: 1 of 3 seeds missing"],
    ]
    claims = [
        Claimed(
            row, {"Source": "a paper", "Supported": "delta > 0.5"}, [("On cpu", figures)], {results[0]["id"]}
        )
        for row in rows
    ]
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(results, title="six models", speeds=speeds, claims=claims), encoding="utf-8")
    return path


@pytest.fixture
def browser(driver: Any, report: Path) -> Any:
    """The browser with the page freshly open."""
    driver.get("about:blank")  # else a page with another fragment alone would not be loaded anew
    driver.get(report.as_uri())
    return driver


def follow(browser: Any, section: str) -> None:
    """Open a section by its entry in the contents."""
    browser.find_element("css selector", f"nav a[href='#{section}']").click()
    assert browser.find_element("id", section).get_attribute("open")


def test_all_begins_folded_below_a_summary_and_the_contents_stay_in_view(browser: Any) -> None:
    ranking = browser.find_element("css selector", ".rankings article")
    assert [one.text for one in ranking.find_elements("css selector", ".model") if one.text] == list(NAMES)
    assert "chance 0.125" in ranking.text
    assert browser.execute_script("return document.documentElement.scrollHeight") < 3000
    for section in ("failures", "speed", "summary"):
        browser.find_element("css selector", f"nav a[href='#{section}']").click()
        assert browser.find_element("css selector", "nav a").is_displayed()
        assert browser.execute_script(
            f"return document.getElementById('{section}').getBoundingClientRect().top < innerHeight"
        )
    tabs = browser.find_elements("css selector", "#mqar-quick-native .tablist button")
    shown = []
    for tab in tabs:
        tab.click()
        figures = browser.find_elements("css selector", "#mqar-quick-native figure")
        (figure,) = (one for one in figures if one.is_displayed())
        shown.append(figure.get_attribute("data-name"))
    assert shown == [tab.text for tab in tabs] == ["learning curves", "distance"]
    browser.find_element("css selector", "[data-fold=close]").click()
    assert browser.find_elements("css selector", ".section[open]") == []
    browser.find_element("css selector", "[data-fold=open]").click()
    assert browser.find_elements("css selector", ".section:not([open])") == []


def test_it_can_be_sorted_filtered_and_opened(browser: Any) -> None:
    assert browser.title == "six models · linbench"
    table = browser.find_element("css selector", "#mqar-quick-native table")
    assert column(table, "model")[1] == sorted([*NAMES, "kda"])

    for highest_first in (True, False):
        column(table, "accuracy")[0].click()
        assert column(table, "model")[1] == [
            *(NAMES if highest_first else reversed(NAMES)),
            "kda",
        ], "what is missing stays below"
    column(table, "model")[0].click()
    assert column(table, "model")[1] == sorted([*NAMES, "kda"])

    field = browser.find_element("css selector", "#mqar-quick-native .filter")
    field.send_keys("delta")
    assert column(table, "model")[1] == ["deltanet", "gated_deltanet"]
    field.send_keys("net gated")
    assert column(table, "model")[1] == ["gated_deltanet"]
    field.clear()
    field.send_keys(" ")
    assert len(column(table, "model")[1]) == 7

    follow(browser, "cards")
    card = browser.find_element("css selector", "#card-deltanet")
    told = card.find_element("css selector", ".text")
    assert not told.is_displayed()
    card.find_element("css selector", "summary").click()
    assert told.is_displayed()
    assert "S_t" in told.text

    images = browser.find_elements("css selector", "img")
    assert images
    assert all(image.get_property("complete") for image in images)
    assert all(image.get_property("naturalWidth") > 0 for image in images)
    follow(browser, "failures")
    assert "too little memory" in browser.find_element("id", "failures").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_speeds_are_sorted_and_filtered_as_other_tables_are(browser: Any) -> None:
    follow(browser, "speed")
    table = browser.find_element("css selector", "#speed table")
    for sign in (1, -1):
        column(table, "256")[0].click()
        assert column(table, "layer")[1] == [*NAMES, "kda"][::sign], (
            "the fastest first, by number and not by letter"
        )
    column(table, "roofline")[0].click()
    shares = column(table, "roofline")[1]
    assert (shares[0], shares[-1]) == ("3000%", "30%"), "a share is a number, the largest first"
    browser.find_element("css selector", "#speed .filter").send_keys("busy")
    assert column(table, "layer")[1] == ["kda"]
    images = browser.find_elements("css selector", "#speed img")
    assert images
    assert all(browser.execute_script("return arguments[0].naturalWidth > 0", image) for image in images)


def test_a_claim_is_opened_and_leads_to_what_it_rests_on(browser: Any) -> None:
    follow(browser, "claims")
    table = browser.find_element("css selector", "#claims table")
    assert column(table, "verdict")[1] == ["supported", "undecided"]
    column(table, "claim")[0].click()
    assert column(table, "claim")[1] == ["C7", "C12"]
    claim = browser.find_element("id", "C7")
    rule = claim.find_element("css selector", "dl")
    assert not rule.is_displayed()
    claim.find_element("css selector", "summary").click()
    assert rule.is_displayed()
    assert "delta > 0.5" in rule.text
    claim.find_element("css selector", "a").click()
    assert browser.current_url.endswith("#mqar-quick-native")


def test_all_that_is_folded_is_open_on_paper(browser: Any) -> None:
    folded = browser.find_elements("css selector", "details:not([open])")
    assert folded
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.find_elements("css selector", "details:not([open])") == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(browser: Any, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.execute_script("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_long_table_scrolls_in_its_own_box_below_its_headings(browser: Any) -> None:
    browser.execute_script("document.querySelector('#mqar-quick-native').open = true")
    box = browser.find_element("css selector", "#mqar-quick-native .table > .scroll")
    browser.execute_script(
        "const rows = arguments[0].querySelector('tbody');"
        "for (let i = 0; i < 5; i++) for (const row of [...rows.rows]) rows.append(row.cloneNode(true))",
        box,
    )
    assert browser.execute_script("return arguments[0].clientHeight < innerHeight", box)
    browser.execute_script("arguments[0].scrollTop = 500", box)
    head = box.find_element("css selector", "th")
    assert browser.execute_script(
        "return arguments[1].getBoundingClientRect().top - arguments[0].getBoundingClientRect().top",
        box,
        head,
    ) == pytest.approx(0, abs=1), "the headings stay in view"


def test_the_contents_say_which_section_is_open_also_if_it_is_the_last(browser: Any) -> None:
    for section in ("mqar-quick-native", "failures", "summary"):
        browser.find_element("css selector", f"nav a[href='#{section}']").click()
        current = browser.find_elements("css selector", "nav a[aria-current]")
        assert [link.get_attribute("hash") for link in current] == [f"#{section}"]


def test_it_can_be_read_without_scripts(browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.refresh()
        assert not browser.find_element("css selector", "#mqar-quick-native .filter").is_displayed()
        assert not browser.find_element("css selector", ".fold").is_displayed()
        for section in browser.find_elements("css selector", ".section:not([open]) > summary"):
            section.click()
        assert browser.find_elements("css selector", ".section:not([open])") == []
        figures = browser.find_elements("css selector", "#mqar-quick-native figure")
        assert [figure.is_displayed() for figure in figures] == [True, True], "one below the other"
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
