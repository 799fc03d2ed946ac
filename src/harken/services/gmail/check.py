"""Whether the labels that a search names exist: Gmail finds nothing for one that does not, and says nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harken.kit.fields import text_of
from harken.services.gmail.api import Gmail
from harken.services.google.api import GoogleAccount
from harken.source import Checked, Host

if TYPE_CHECKING:
    from harken.services.gmail import Query

__all__ = ["check"]

_LABEL = re.compile(r'(?:^|[\s({-])label:(?:"([^"]+)"|([^\s(){}"]+))', re.IGNORECASE)
_APART = re.compile(r"[^\w]+")


async def check(query: Query, account: GoogleAccount, host: Host) -> Checked:
    """What each label in the search is; a search that Gmail does not take is raised."""
    gmail = Gmail(account, host)
    await gmail.search(query.query, most=1)
    named = [quoted or word for quoted, word in _LABEL.findall(query.query)]
    if not named:
        return Checked()
    rows = [(text_of(row, "name") or "", text_of(row, "id") or "") for row in await gmail.labels()]
    known = {_folded(name): f"the label {name} ({id})" for name, id in rows}
    found = {name: known[_folded(name)] for name in named if _folded(name) in known}
    return Checked(found=found, unknown=[_missing(name) for name in named if name not in found])


def _folded(name: str) -> str:
    """As a search writes it: my-label for `My label`, work-leads for `Work/Leads`."""
    return _APART.sub("-", name.strip().lower())


def _missing(name: str) -> str:
    return f"There is no label {name[:100]!r} in this mailbox. Make it in Gmail, or correct the search"
