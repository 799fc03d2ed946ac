"""Whose keys they are, and whether the monitors and tags of a query exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harken.services.datadog.api import Account, Api
from harken.services.datadog.event import group_statuses, has_any_tag, name_of, word
from harken.services.datadog.query import Query
from harken.source import Checked, Host

__all__ = ["check", "whoami"]


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The user of the application key. That needs no permission."""
    api = Api(account, host)
    answer = api.expect_object(await api.request("GET", "/api/v2/current_user"))
    user = answer.get("data") or {}
    attributes = user.get("attributes") or {}
    included: Sequence[Any] = answer.get("included") or ()
    names = {
        kind: [str((one.get("attributes") or {}).get("name")) for one in included if one.get("type") == kind]
        for kind in ("orgs", "roles")
    }
    return {
        "id": user.get("id"),
        "name": attributes.get("name"),
        "email": attributes.get("email"),
        "handle": attributes.get("handle"),
        "organization": ", ".join(names["orgs"]),
        "roles": ", ".join(names["roles"]),
        "site": account.site,
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    api = Api(account, host)
    found: dict[str, str] = {}
    unknown: list[str] = []
    for number in query.monitor_ids:
        monitor = await api.monitor(number)
        if monitor is None:
            unknown.append(
                f"there is no monitor {number}, or the keys may not see it. Look at the number in its address"
            )
        else:
            found[str(number)] = f"{name_of(monitor[0])} (now {word(monitor[0].get('overall_state'))})"
    counts = dict.fromkeys(query.tags, 0)
    if counts:
        async for monitor in api.monitors():
            for tag in query.tags:
                counts[tag] += any(has_any_tag(monitor, current.group, [tag]) for current in group_statuses(monitor))
    for tag, count in counts.items():
        if count:
            found[tag] = "1 monitor" if count == 1 else f"{count} monitors"
        else:
            unknown.append(f"no monitor and no group has the tag {tag} now. Check how it is written in Datadog")
    return Checked(found=found, unknown=unknown)
