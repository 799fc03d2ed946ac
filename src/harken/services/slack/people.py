"""Who people are: names for ids (remembered for an hour), and ids for the names that a query mentions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harken.clock import Clock
from harken.kit.fields import text_of
from harken.services.slack.api import Slack

__all__ = ["Names", "matching", "name_of", "unclear", "user_id", "wanted_name"]

AGE = 3600.0
MOST = 5000
PER_CALL = 30
"""So many users are looked up for one page, so that it stays within its time."""
UNKNOWN = frozenset({"user_not_found", "user_not_visible", "users_not_found"})
_ID = re.compile(r"[UW](?=[A-Z0-9]*[0-9]|[A-Z0-9]{8})[A-Z0-9]+")


def user_id(written: str) -> str | None:
    """The id, if one was written: U123, or <@U123> as it was copied. What begins with @ is a name."""
    bare = written.removeprefix("<@").removesuffix(">").partition("|")[0]
    return bare if _ID.fullmatch(bare) else None


def wanted_name(written: str) -> str:
    return written.strip().removeprefix("@").strip().casefold()


def name_of(member: Mapping[str, Any]) -> str:
    """What people call them: the display name, else the real name, else the handle."""
    paths = ("profile.display_name", "profile.real_name", "real_name", "name")
    return next((found for path in paths if (found := text_of(member, path))), "")


def matching(members: Iterable[Mapping[str, Any]], written: str) -> list[str]:
    """The ids of those who go by this name (handle, display name or real name) and are still there."""
    wanted = wanted_name(written)
    paths = ("name", "profile.display_name", "real_name", "profile.real_name")
    return [
        found
        for member in members
        if (found := text_of(member, "id"))
        and member.get("deleted") is not True
        and wanted in {(text_of(member, path) or "").casefold() for path in paths}
    ]


def unclear(written: str, ids: Sequence[str]) -> str:
    """Why this name cannot be used, in a sentence; empty when it can."""
    if len(ids) == 1:
        return ""
    if ids:
        return f"{written} is the name of {len(ids)} people ({', '.join(ids)}). Write the id of the one you mean"
    return f"nobody is called {written}. Write the handle, the display name, or the member id from their profile"


class Names:
    """Names by id. What was looked up is kept for an hour."""

    def __init__(self, slack: Slack, clock: Clock) -> None:
        self._slack = slack
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}

    def __call__(self, id: str) -> str:
        """The name, or the id of somebody who is not known."""
        return self._known.get(id, (id, 0.0))[0]

    def learn(self, member: Mapping[str, Any]) -> None:
        id = text_of(member, "id")
        if id:
            self._known[id] = (name_of(member) or id, self._clock.time() + AGE)

    async def look_up(self, ids: Iterable[str]) -> bool:
        """Ask for those that are not known; False while more are left than one page has time for."""
        now = self._clock.time()
        missing = [id for id in dict.fromkeys(ids) if self._known.get(id, ("", 0.0))[1] <= now]
        if missing and len(self._known) > MOST:
            self._known = {id: entry for id, entry in self._known.items() if entry[1] > now and id not in missing}
        for id in missing[:PER_CALL]:
            answer = await self._slack.call("users.info", {"user": id}, allow=UNKNOWN)
            user = answer.body.get("user")
            self.learn({**(user if isinstance(user, dict) else {}), "id": id})
        return len(missing) <= PER_CALL
