"""What a user may be asked to consent to, by the words that `configure` takes.

Gmail and Calendar are asked for in the smallest scope that does what Harken does with them.
https://developers.google.com/identity/protocols/oauth2/scopes
"""

from __future__ import annotations

from collections.abc import Iterable

from harken.errors import Refused

__all__ = ["ACCESS", "CALENDAR", "DEVICE_ACCESS", "GMAIL", "GMAIL_READONLY", "USUAL", "scopes_of"]

GMAIL = "https://www.googleapis.com/auth/gmail.modify"
GMAIL_READONLY = "https://www.googleapis.com/auth/gmail.readonly"
CALENDAR = "https://www.googleapis.com/auth/calendar.readonly"
ACCESS = {"gmail": GMAIL, "gmail-readonly": GMAIL_READONLY, "calendar": CALENDAR}
USUAL = ("gmail", "calendar")
# Google's device flow knows few scopes, and none of Gmail's
DEVICE_ACCESS = frozenset({"calendar"})
_WHO = ("openid", "email")


def scopes_of(access: Iterable[str]) -> tuple[str, ...]:
    """The scopes for these words, and those that tell who the user is."""
    wanted = list(access)
    strange = [word for word in wanted if word not in ACCESS]
    if strange or not wanted:
        raise Refused(f"Google has no access {', '.join(strange) or 'to nothing'}", fix=f"Use: {', '.join(ACCESS)}")
    return (*_WHO, *dict.fromkeys(ACCESS[word] for word in wanted))
