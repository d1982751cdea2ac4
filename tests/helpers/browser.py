"""A browser for tests that look at pages."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed: pip install 'linbench[dev]'"
)

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    " disable-component-update disable-sync hide-scrollbars"
)

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason=("there is no Chromium with its driver here; on Debian: apt-get install chromium chromium-driver"),
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (
        *FLAGS.split(),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
        "window-size=1280,900",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


def column(table: Any, name: str) -> tuple[Any, list[str]]:
    """The button of a column, and what stands in it in the rows that are shown."""
    heads = table.find_elements("css selector", "th")
    place = [head.text for head in heads].index(name)
    rows = [row for row in table.find_elements("css selector", "tbody tr") if row.is_displayed()]
    return heads[place].find_element("css selector", "button"), [
        row.find_elements("css selector", "td")[place].text for row in rows
    ]
