"""Who may start a pipeline by a label."""

from __future__ import annotations

from typing import Any

import pytest

from harken.ticket import Access, Actor
from harken.tickets import Trust, judge

OWN = "999"


def actor(**changes: Any) -> Actor:
    return Actor(**{"id": "7", "login": "Mona", "access": Access.WRITE, **changes})


@pytest.mark.parametrize(
    ("who", "trust", "trusted"),
    [
        (actor(), Trust(), True),
        (actor(access=Access.TRIAGE), Trust(), False),
        (actor(access=Access.TRIAGE), Trust(label="triage"), True),
        (actor(access=Access.READ), Trust(label="triage"), False),
        (actor(access=Access.NONE), Trust(label="anyone"), True),
        (actor(access=Access.UNKNOWN), Trust(), False),
        (actor(access=Access.UNKNOWN), Trust(label="anyone"), True),
        # by name, whatever the access
        (actor(access=Access.NONE), Trust(label=("mona",)), True),
        (actor(login="renamed", access=Access.NONE), Trust(label=("mona",)), False),
        (actor(login="renamed", access=Access.NONE), Trust(label=("7",)), True),
        (actor(login="mona2", access=Access.WRITE), Trust(label=("mona",)), False),
        # somebody else who took the login that was given up has another id
        (actor(id="8", access=Access.NONE), Trust(label=("7",)), False),
        # bots only by their exact name
        (actor(bot=True), Trust(label="anyone"), False),
        (actor(bot=True, login="dependabot[bot]"), Trust(bots=("dependabot[bot]",)), True),
        (actor(bot=True, login="dependabot[bot]"), Trust(bots=("dependabot",)), False),
        # an issue form applies labels for strangers
        (actor(form=True), Trust(), False),
        # our own account never arms a ticket, even if it is listed
        (actor(id=OWN), Trust(label="anyone"), False),
        (actor(id=OWN, login="harken"), Trust(label=("harken", OWN)), False),
        # a deleted user, a history that cannot be read
        (None, Trust(label="anyone"), False),
        (actor(id="", login=""), Trust(label="anyone"), False),
    ],
)
def test_what_counts_is_who_put_the_label_on(who: Actor | None, trust: Trust, trusted: bool) -> None:
    found = judge(who, trust, OWN)
    assert found.yes is trusted
    assert bool(found.reason) is not trusted
