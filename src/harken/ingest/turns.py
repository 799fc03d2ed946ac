"""Runs of a trigger that go out one after the other, however many reads have asked for them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from harken.event import Verdict
from harken.ingest.live import Live
from harken.match import Rules, in_turn

__all__ = ["count_fired", "let_go"]


def let_go(live: Live, rules: Rules, now: datetime) -> None:
    """Forget the runs of a trigger once the next one would be due: what is new goes out at once again."""
    known = {rule.uid: rule for rule in rules.rules}
    for uid, count in tuple(live.fired.items()):
        begun, rule = live.begun[uid], known.get(uid)
        # one that has yet to begin was noted before the clock was set back
        if rule is None or begun > now or in_turn(rule, rules, begun, count) <= now:
            del live.fired[uid], live.begun[uid]


def count_fired(live: Live, rules: Rules, verdicts: Iterable[Iterable[Verdict]], now: datetime) -> None:
    """Note what was committed, so that what comes later has its place behind it."""
    by_name = {rule.name: rule.uid for rule in rules.rules if rule.trigger.spacing is not None}
    if not by_name:
        return
    for verdict in (verdict for decided in verdicts for verdict in decided):
        uid = by_name.get(verdict.trigger)
        if uid is not None and verdict.outcome in ("fired", "held"):
            live.fired[uid] = live.fired.get(uid, 0) + 1
            live.begun.setdefault(uid, now)
