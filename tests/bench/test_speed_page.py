"""docs/speed.md says what is stored."""

from tests.bench.speed_page import MARKED, PAGE, TABLES, drawn


def test_the_tables_of_the_page_are_those_that_stored_results_make() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name, _ in MARKED.findall(page)} == set(TABLES)
    assert drawn(page) == page, "python -m tests.bench.speed_page makes them anew"
