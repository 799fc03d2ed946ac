"""What all replicas wrote down, put together: was there ever more than one who could write a shard?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Grant", "History", "Write", "read_history"]


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that somebody was given or could renew; `granted` is by the store's clock, the rest by the machine's."""

    who: str
    shard: int
    token: int
    asked: float
    heard: float
    granted: float


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A write under a lease and what became of it: done, stale, refused or unknown."""

    who: str
    verb: str
    shard: int
    token: int
    asked: float
    heard: float
    outcome: str
    events: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class History:
    """All that was granted and written. `flaws` compares moments only where one had ended before the other began."""

    grants: tuple[Grant, ...]
    writes: tuple[Write, ...]

    def refused(self, who: str = "") -> list[Write]:
        return [write for write in self.writes if write.outcome == "refused" and write.who.startswith(who)]

    def accepted(self) -> list[Write]:
        return [write for write in self.writes if write.outcome == "done"]

    def flaws(self, recorded: Mapping[int, float]) -> list[str]:
        """Everything that must not be. `recorded` says when the store recorded each event, by its own clock."""
        return [
            *self._shared_tokens(),
            *self._fallen_tokens(),
            *self._strange_tokens(),
            *self._late_writes(),
            *self._late_events(recorded),
        ]

    def _shared_tokens(self) -> Iterable[str]:
        owners: dict[int, set[tuple[str, int]]] = {}
        for grant in self.grants:
            owners.setdefault(grant.token, set()).add((grant.who, grant.shard))
        return [f"token {token} was given to {sorted(all)}" for token, all in owners.items() if len(all) > 1]

    def _fallen_tokens(self) -> Iterable[str]:
        """A lease is given or renewed although somebody had heard of a newer one before that was asked for."""
        return [
            f"{grant.who} got shard {grant.shard} with token {grant.token} after {newest} was given out"
            for grant in self.grants
            if (newest := self._newest(grant.shard, grant.asked)) > grant.token
        ]

    def _strange_tokens(self) -> Iterable[str]:
        given = {(grant.who, grant.shard, grant.token) for grant in self.grants}
        return [
            f"{write.who} wrote shard {write.shard} with token {write.token}, which it was never given"
            for write in self.accepted()
            if (write.who, write.shard, write.token) not in given
        ]

    def _late_writes(self) -> Iterable[str]:
        return [
            f"{write.verb} of {write.who} with token {write.token} was taken after {newest} was given out"
            for write in self.accepted()
            if (newest := self._newest(write.shard, write.asked)) > write.token
        ]

    def _late_events(self, recorded: Mapping[int, float]) -> Iterable[str]:
        """The same by the store's clock alone: it leaves no gap between asking and hearing."""
        tokens = {(write.shard, write.token) for write in self.accepted()}
        ended = {token: self._superseded(shard, token) for shard, token in tokens}
        return [
            f"event {event} of {write.who} was recorded with token {write.token} after that had ended"
            for write in self.accepted()
            for event in write.events
            if recorded[event] > ended[write.token]
        ]

    def _newest(self, shard: int, before: float) -> int:
        """The highest token of the shard that anybody had heard of by then."""
        heard, highest = self._heard.get(shard, ([], []))
        count = bisect_left(heard, before)
        return highest[count - 1] if count else 0

    @cached_property
    def _heard(self) -> dict[int, tuple[list[float], list[int]]]:
        found: dict[int, tuple[list[float], list[int]]] = {}
        for grant in sorted(self.grants, key=lambda grant: grant.heard):
            heard, highest = found.setdefault(grant.shard, ([], []))
            heard.append(grant.heard)
            highest.append(max(grant.token, highest[-1] if highest else 0))
        return found

    def _superseded(self, shard: int, token: int) -> float:
        """When the store at the latest gave the shard to somebody with a newer token."""
        # the store took its time before it waited for those who write
        ends = [g.granted + g.heard - g.asked for g in self.grants if g.shard == shard and g.token > token]
        return min(ends, default=float("inf"))


def read_history(folder: Path) -> History:
    """Put together what all lives of all replicas have written there."""
    grants: list[Grant] = []
    writes: list[Write] = []
    for path in sorted(folder.glob("*.jsonl")):
        shards: dict[str, int] = {}
        for asked, heard in _calls(path):
            shards.update(asked.get("shards", {}))
            if asked["verb"] == "lease" and heard["outcome"] == "done":
                grants.append(msgspec.convert(asked | heard, Grant))
            writes.extend(
                msgspec.convert({**asked, **heard, "shard": shards[feed], "token": token}, Write)
                for feed, token in asked.get("writes", [])
            )
    return History(grants=tuple(grants), writes=tuple(writes))


def _calls(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each call with its answer. One that was never heard of may have happened."""
    asked: dict[int, dict[str, Any]] = {}
    heard: dict[int, dict[str, Any]] = {}
    for line in path.read_bytes().splitlines():
        said = msgspec.json.decode(line)
        (asked if "asked" in said else heard)[said["call"]] = said
    never = {"heard": float("inf"), "outcome": "unknown"}
    return [(call, heard.get(number, never)) for number, call in asked.items()]
