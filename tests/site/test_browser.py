"""The site in a browser: its tables are sorted and filtered, its theme is changed, its pages are searched."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from linbench.site.variants import MOST_CURVES
from tests.helpers.browser import column, needs_browser
from tests.helpers.browser import driver as driver
from tests.helpers.site import SCORES

pytestmark = [pytest.mark.slow, needs_browser]

BOARD = ".board[data-choose] table"


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder and prints nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def served(built: Path) -> Iterator[str]:
    """The address of the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(built)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def browser(driver: Any, served: str) -> Any:
    driver.get(f"{served}/index.html")
    return driver


def names(browser: Any) -> list[str]:
    return column(browser.find_element("css selector", BOARD), "variant")[1]


def test_the_front_page_is_sorted(browser: Any) -> None:
    board = browser.find_element("css selector", BOARD)
    heads = [head.text for head in board.find_elements("css selector", "th")]
    heading = next(head for head in heads if head.startswith("old values"))
    best_first = sorted(SCORES, key=lambda name: -SCORES[name])
    for order in (best_first[::-1], best_first):
        column(board, heading)[0].click()
        assert names(browser)[:4] == order, "what is missing stays below"
    column(board, "variant")[0].click()
    assert names(browser) == sorted(names(browser))


def test_the_front_page_is_filtered(browser: Any) -> None:
    from selenium.webdriver.support.ui import Select

    every = names(browser)
    search = browser.find_element("css selector", ".choose input")
    search.send_keys("gated delta")
    assert names(browser) == [name for name in every if "gated" in name and "delta" in name]
    assert len(names(browser)) > 1
    search.clear()
    search.send_keys(" ")
    for name, value, row in (("generation", "softmax", "attention"), ("memory", "last inputs", "base_conv")):
        choice = browser.find_element("css selector", f".choose select[name={name}]")
        Select(choice).select_by_value(value)
        assert names(browser) == [row]
        Select(choice).select_by_index(0)
    assert names(browser) == every


def test_a_variant_is_reached_and_its_figures_are_drawn(browser: Any) -> None:
    browser.find_element("link text", "deltanet").click()
    assert browser.find_element("css selector", "h1").text.startswith("deltanet")
    images = browser.find_elements("css selector", "article img")
    assert len(images) == 2 + MOST_CURVES
    for image in images:
        browser.execute_script("arguments[0].scrollIntoView()", image)
    assert all(browser.execute_script("return arguments[0].naturalWidth > 0", image) for image in images)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_pages_are_found_by_their_words(browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    field = browser.find_element("css selector", "[data-md-component=search-query]")
    browser.execute_script("document.querySelector('label[for=__search]').click()")
    WebDriverWait(browser, 10).until(lambda _: field.is_displayed())
    field.send_keys("kimi")
    found = WebDriverWait(browser, 20).until(
        lambda _: browser.find_elements("css selector", ".md-search-result__link")
    )
    assert any("kda" in one.get_attribute("href") for one in found)


def test_the_dark_theme_is_kept_from_page_to_page(browser: Any, served: str) -> None:
    def scheme() -> str:
        return str(browser.find_element("css selector", "body").get_attribute("data-md-color-scheme"))

    def ground() -> str:
        return str(browser.find_element("css selector", "body").value_of_css_property("background-color"))

    before, light = scheme(), ground()
    next(
        one for one in browser.find_elements("css selector", "label[for^=__palette]") if one.is_displayed()
    ).click()
    assert {before, scheme()} == {"default", "slate"}
    assert ground() != light
    chosen = scheme()
    browser.get(f"{served}/claims/index.html")
    assert scheme() == chosen


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "page",
    ["index", "variants/deltanet", "tasks/mqar", "tasks/index", "claims/index", "claims/C17", "tables/R9"],
)
def test_nothing_but_tables_and_equations_is_wider_than_the_screen(
    browser: Any, served: str, page: str, width: int
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get(f"{served}/{page}.html")
    browser.execute_script("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    scrolled = browser.execute_script(
        "return [...document.querySelectorAll('article *')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".filter((one) => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))"
        ".map((one) => one.outerHTML.slice(0, 80))"
    )
    assert all("md-typeset__scrollwrap" in one or "<pre" in one or "<code" in one for one in scrolled), (
        scrolled
    )
