"""Whether the labels in a search exist: for an unknown one Gmail finds nothing, and gives no error."""

from __future__ import annotations

import re

from harken.kit.values_from_payload import text_of
from harken.services.gmail.api import Gmail
from harken.services.gmail.query import Query
from harken.services.google.api import GoogleAccount
from harken.source import Checked, Host

__all__ = ["check"]

_LABEL = re.compile(r'(?:^|[\s({-])label:(?:"([^"]+)"|([^\s(){}"]+))', re.IGNORECASE)
_SEPARATORS = re.compile(r"[^\w]+")


async def check(query: Query, account: GoogleAccount, host: Host) -> Checked:
    """Look up each label in the search; raises if Gmail refuses the search."""
    gmail = Gmail(account, host)
    await gmail.search(query.query, most=1)
    named = [quoted or word for quoted, word in _LABEL.findall(query.query)]
    if not named:
        return Checked()
    rows = [(text_of(row, "name") or "", text_of(row, "id") or "") for row in await gmail.labels()]
    known = {_normalized(name): f"the label {name} ({id})" for name, id in rows}
    found = {name: known[_normalized(name)] for name in named if _normalized(name) in known}
    return Checked(found=found, unknown=[_no_such_label(name) for name in named if name not in found])


def _normalized(name: str) -> str:
    """A label as written in a search: my-label for `My label`, work-leads for `Work/Leads`."""
    return _SEPARATORS.sub("-", name.strip().lower())


def _no_such_label(name: str) -> str:
    return f"There is no label {name[:100]!r} in this mailbox. Make it in Gmail, or correct the search"
