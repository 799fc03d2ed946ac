"""The actions mute and unmute, by downtimes. A second try finds the first one's downtime and creates no other.

https://docs.datadoghq.com/api/latest/downtimes/ (POST /monitor/ID/mute is older, and ends other people's downtimes)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field, field_validator, model_validator

from harken.durations import parse_duration
from harken.errors import HarkenError, Refused, RetryLater
from harken.http import raise_for
from harken.kit import ParamsModel
from harken.kit.values_from_payload import instant, text_of
from harken.language.dotted_paths import lookup
from harken.services.datadog.api import Api
from harken.source import Call

__all__ = ["Mute", "Unmute", "mute", "unmute"]

_PAGE = 100
# a scope is a search: a group's name must not contain operators, wildcards or quotes
_TAG = re.compile(r"\w[\w./-]*:[\w./@:-]+")


class Unmute(ParamsModel):
    """Which monitor, or which of its groups."""

    monitor: int = Field(gt=0, description="id of the monitor")
    group: str = Field("", description="name of the group, such as host:web-1; empty for the whole monitor")

    @field_validator("group")
    @classmethod
    def _plain(cls, value: str) -> str:
        if value and not all(_TAG.fullmatch(tag) for tag in value.split(",")):
            raise ValueError("this is not the name of a group, such as host:web-1 or host:web-1,env:prod")
        return value

    @property
    def scope(self) -> str:
        return " AND ".join(self.group.split(",")) if self.group else "*"


class Mute(Unmute):
    """What to mute, and for how long; without `for` and `until`, until someone ends it."""

    duration: str = Field("", alias="for", description="how long, such as 2h")
    until: str = Field("", description="an instant, such as 2026-01-05T18:00:00Z, in place of `for`")

    @model_validator(mode="after")
    def _has_one_end(self) -> Mute:
        if self.duration and self.until:
            raise ValueError("name `for` or `until`, not both")
        try:
            known = not self.duration or parse_duration(self.duration)
        except HarkenError as error:
            raise ValueError(str(error)) from None
        if not known or (self.until and instant(self.until) is None):
            raise ValueError("the end is neither a duration above 0 nor an instant with its date and time")
        return self

    def end(self, now: datetime) -> datetime | None:
        if self.duration:
            return (now + timedelta(seconds=parse_duration(self.duration))).replace(microsecond=0)
        return instant(self.until)


async def mute(call: Call) -> dict[str, Any]:
    """Schedule a downtime from now on, unless this step made one before or another lasts as long."""
    wanted: Mute = call.params
    now = call.host.clock.now()
    end = wanted.end(now)
    if end is not None and end <= now:
        raise Refused(f"monitor {wanted.monitor} cannot be muted until an instant that has passed", fix="Correct until")
    api, mark = Api(call.account, call.host), _mark(call.idempotency_key)
    async for downtime in _current(api, wanted):
        if mark in str(lookup(downtime, "attributes.message")) or _lasts_until(downtime, end):
            return _result(wanted, downtime, new=False)
    reply = await api.request("POST", "/api/v2/downtime", json=_request(wanted, end, mark))
    raise_for(reply)
    return _result(wanted, api.expect_object(reply).get("data"), new=True)


async def unmute(call: Call) -> dict[str, Any]:
    """End the downtimes of this monitor; with a group, only those of the group. It is no error if there are none."""
    wanted: Unmute = call.params
    api = Api(call.account, call.host)
    ended = [text_of(downtime, "id") or "" async for downtime in _current(api, wanted, any_scope=not wanted.group)]
    for downtime in ended:
        reply = await api.request("DELETE", f"/api/v2/downtime/{downtime}")
        if reply.status != 404:
            raise_for(reply)
    return {"monitor": wanted.monitor, "group": wanted.group, "ended": ended}


async def _current(api: Api, wanted: Unmute, *, any_scope: bool = False) -> AsyncIterator[dict[str, Any]]:
    """The current downtimes of this monitor alone; a downtime for a tag also covers others, so it is left out."""
    offset = 0
    while True:
        params: dict[str, str | int] = {"current_only": "true", "page[limit]": _PAGE, "page[offset]": offset}
        listed = api.expect_object(await api.request("GET", "/api/v2/downtime", params=params)).get("data") or []
        if not isinstance(listed, list):
            raise RetryLater(f"{api.name} answered without a list of downtimes", fix="Check site and base_url")
        for downtime in listed:
            ours = lookup(downtime, "attributes.monitor_identifier.monitor_id") == wanted.monitor
            if ours and (any_scope or _parts(lookup(downtime, "attributes.scope")) == _parts(wanted.scope)):
                yield downtime
        if not listed:
            return
        offset += len(listed)


def _request(wanted: Mute, end: datetime | None, mark: str) -> dict[str, Any]:
    schedule = {"start": None, "end": end.astimezone(UTC).isoformat() if end else None}
    attributes = {
        "monitor_identifier": {"monitor_id": wanted.monitor},
        "scope": wanted.scope,
        "schedule": schedule,
        "message": f"Muted by Harken ({mark})",
    }
    return {"data": {"type": "downtime", "attributes": attributes}}


def _result(wanted: Mute, downtime: Any, *, new: bool) -> dict[str, Any]:
    id, until = text_of(downtime, "id") or "", text_of(downtime, "attributes.schedule.end") or ""
    return {"downtime": id, "monitor": wanted.monitor, "group": wanted.group, "until": until, "new": new}


def _lasts_until(downtime: Any, end: datetime | None) -> bool:
    until = instant(lookup(downtime, "attributes.schedule.end"))
    return until is None or (end is not None and until >= end)


def _parts(scope: Any) -> set[str]:
    return set(re.split(r"\s+AND\s+|,", str(scope)))


def _mark(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
