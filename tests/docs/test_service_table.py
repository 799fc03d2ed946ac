from __future__ import annotations

from tests.docs.service_table import README, table


def test_the_table_of_the_readme_has_every_service_and_what_it_can() -> None:
    assert table() in README.read_text("utf-8"), "Run: python -m tests.docs.service_table"
