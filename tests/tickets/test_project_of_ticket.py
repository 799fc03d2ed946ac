"""Which project a ticket belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from harken.ticket import Ticket
from harken.tickets import ProjectScope, Resolution, resolve


def ticket(**changes: Any) -> Ticket:
    plain = {"id": "1", "ref": "#1", "title": "t", "url": "", "status": "open", "closed": False}
    return Ticket(**{**plain, **changes})


WEB = ProjectScope(name="web", area_path="Shop\\Web")
SHOP = ProjectScope(name="shop", area_path="Shop")
API = ProjectScope(name="api", repo="acme/api")
TAGGED = ProjectScope(name="tagged", tag="backend")
ALL = ProjectScope(name="all")


@pytest.mark.parametrize(
    ("given", "projects", "expected"),
    [
        (ticket(area_path="Shop\\Web\\Cart"), [WEB, SHOP], Resolution(project="web", also=("shop",))),
        (ticket(area_path="shop"), [WEB, SHOP], Resolution(project="shop")),
        (ticket(area_path="Shopping"), [WEB, SHOP], Resolution()),
        (ticket(area_path="Shop/Web"), [WEB], Resolution(project="web")),
        (ticket(repo="Acme/API"), [API], Resolution(project="api")),
        (ticket(repo="acme/api2"), [API], Resolution()),
        (ticket(labels=("Backend",)), [TAGGED], Resolution(project="tagged")),
        (ticket(labels=("backend-old",)), [TAGGED], Resolution()),
        (ticket(), [API, ALL], Resolution(project="all")),
        (ticket(), [], Resolution()),
        (
            ticket(repo="acme/api", labels=("other",)),
            [ProjectScope(name="both", repo="acme/api", tag="backend")],
            Resolution(),
        ),
    ],
)
def test_the_first_project_that_matches_gets_the_ticket(
    given: Ticket, projects: list[ProjectScope], expected: Resolution
) -> None:
    assert resolve(given, projects) == expected
