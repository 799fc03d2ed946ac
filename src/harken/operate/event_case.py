"""A recorded event and its verdict as a test case, without secrets and without people: `harken test add` writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from harken.config.loaded import Loaded
from harken.config.yaml.writer import to_yaml
from harken.durations import format_duration
from harken.errors import NotFound, Refused
from harken.event import Event, Verdict
from harken.feed import INTERNAL, Feed, Trigger, TriggerState
from harken.http.known_secret_redaction import contains_token, redact
from harken.language.cel import compile_condition
from harken.language.cel.explain import clauses
from harken.match import Read, Rule, Rules, match, recognise
from harken.operate import events
from harken.operate.anonymize import Anonymiser
from harken.operate.context import Context
from harken.operate.output_rows import Plain
from harken.operate.owner_access import visible_rows
from harken.suggest import suggest_fix

__all__ = ["EventCase", "make", "make_case"]

REPEATABLE = ("fired", "filtered", "error", "gathered", "before_start")
"""Verdicts that depend on the event and the rules alone, and not on what else was there."""
FIRST = timedelta(seconds=1)
"""When the event comes, after the start of the case."""
LONG_BEFORE = timedelta(hours=1)
MOST_BYTES = 65_536
"""A larger event is not made into a case while others wait."""
FieldPath = tuple[str | int, ...]


class EventCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case, and the file with it as YAML. `kept` are the fields whose values the condition needs as they are."""

    name: str
    trigger: str
    outcome: str
    kept: tuple[str, ...]
    yaml: str


async def make(context: Context, *, id: int, trigger: str = "") -> Plain:
    """The event and its verdict as a test case in YAML, without secrets and without people.

    `trigger` says whose verdict, if several have decided. `kept` are the fields whose values the condition needs."""
    loaded = context.loaded
    if loaded is None:
        raise Refused("no configuration is loaded", fix="See: harken config check")
    # not even what is refused may name the triggers of others
    seen = visible_rows(context, "verdicts", [await events.show(context, id=id)])
    if not seen:
        raise NotFound(f"there is no event {id}")
    if len(msgspec.json.encode(seen[0]["data"])) > MOST_BYTES:
        message = f"event {id} has more than {MOST_BYTES:,} bytes, which is much for a test case that is shown"
        raise Refused(message, fix=f"Have it written to a file: harken test add {id}")
    case = make_case(loaded, seen[0], trigger=trigger)
    return {
        "name": case.name,
        "trigger": case.trigger,
        "outcome": case.outcome,
        "kept": list(case.kept),
        "yaml": case.yaml,
    }


def make_case(loaded: Loaded, event: Mapping[str, Any], *, trigger: str = "", name: str = "") -> EventCase:
    """A case of this event, as `events show` returns it, and of its verdict for the trigger.

    Raise Refused if the configuration decides otherwise by now, or if the verdict depends on more than the event.
    """
    chosen = _chosen(event, trigger, loaded)
    outcome = next(one["outcome"] for one in event["verdicts"] if one["trigger"] == chosen.name)
    if outcome not in REPEATABLE or event["feed_id"] == INTERNAL:
        message = f"the verdict {outcome} depends on more than this event"
        raise Refused(message, fix=f"Choose an event that was one of: {', '.join(REPEATABLE)}")
    feed = loaded.feed(event["feed_id"])
    if feed is None:
        raise _not_configured(f"feed {event['feed_id']}", loaded)
    maker = _Maker(loaded, feed, chosen, event, outcome)
    maker.refuse_changed()
    redacted, verdict, kept = maker.redacted()
    title = redact(name or f"event {event['id']} is {outcome} for {chosen.name}", loaded.secrets)
    case = {
        "name": title,
        "start": maker.start.isoformat(),
        "given": [_given(redacted, _label(feed, loaded), maker.start)],
        "expect": _expected(chosen, verdict),
    }
    names = tuple(".".join(map(str, path)) for path in kept)
    head = f"# The condition needs these values as they are: {', '.join(names)}\n" if names else ""
    text = head + to_yaml({"cases": [case]})
    if contains_token(text.encode(), loaded.secrets):
        raise Refused("the case would hold a secret of this installation", fix="Write it by hand, without the secret")
    return EventCase(
        name=title,
        trigger=chosen.name,
        outcome=outcome,
        kept=names,
        yaml=text,
    )


def _chosen(event: Mapping[str, Any], name: str, loaded: Loaded) -> Trigger:
    """The trigger that is meant: the only one with a verdict, unless one is named."""
    decided = [verdict["trigger"] for verdict in event["verdicts"]]
    if name and name not in decided:
        raise NotFound(f"event {event['id']} has no verdict of {name}", fix=suggest_fix(name, decided))
    if not name and len(decided) != 1:
        fix = f"Name one with --trigger: {', '.join(decided)}" if decided else "Choose another event"
        raise Refused(f"{len(decided)} triggers have decided about event {event['id']}", fix=fix)
    wanted = name or decided[0]
    trigger = loaded.trigger(wanted)
    if trigger is None:
        raise _not_configured(f"trigger {wanted}", loaded)
    if wanted in loaded.rows:
        fix = f"Write it to a file, see: harken triggers export {wanted}"
        raise Refused(f"trigger {wanted} is in no file, and test cases are about files", fix=fix)
    return trigger


def _not_configured(what: str, loaded: Loaded) -> NotFound:
    if any(finding.severity == "error" for finding in loaded.findings):
        message = f"{what} is not configured now, or has an error in its file"
        return NotFound(message, fix="Mend what is wrong, then add the case: harken config check")
    return NotFound(f"{what} is not configured now", fix="Put it back, then add the case")


class _Maker:
    """Tries out how much of an event can be replaced without another verdict."""

    def __init__(self, loaded: Loaded, feed: Feed, trigger: Trigger, event: Mapping[str, Any], outcome: str) -> None:
        self.start = datetime.fromisoformat(event["recorded_at"]).replace(microsecond=0)
        self._feed = feed
        self._trigger = trigger
        self._event = event
        self._outcome = outcome
        self._secrets = loaded.secrets
        # it listens since the start of the case
        state = TriggerState(uid=trigger.name, name=trigger.name, epoch=1, start_line=self.start, created_at=self.start)
        self._rules = Rules(0, feed, (Rule(trigger, state, feed.name),))
        self._clause = ""

    def refuse_changed(self) -> None:
        """Raise Refused if the configuration decides about the event as it was recorded in another way."""
        recorded = self._event
        verdict = self._decide(self._at(recorded["data"], recorded["subject"], recorded["state"], recorded["type"]))
        if verdict is None or verdict.outcome != self._outcome:
            found = f"{verdict.outcome}: {verdict.reason}" if verdict else "no verdict"
            message = (
                f"event {self._event['id']} was {self._outcome} for {self._trigger.name}, and would now be {found}"
            )
            fix = "The rules have changed since: choose a newer event, or write the case by hand"
            raise Refused(redact(message.rstrip(": "), self._secrets), fix=fix)
        self._clause = _clause_of(self._trigger, verdict)

    def redacted(self) -> tuple[Event, Verdict, Sequence[FieldPath]]:
        """As little of the event as gives the same verdict, and the fields that had to stay."""
        kept: list[FieldPath] = [] if self._same([]) else self._needed()
        event = self._without_people(kept)
        verdict = self._decide(event)
        if verdict is None or not self._is_same(verdict):
            message = "without the secrets in this event its verdict is another one"
            raise Refused(message, fix="Write the case by hand, with values of your own")
        return event, verdict, kept

    def _needed(self) -> list[FieldPath]:
        reads = (
            [path[1:] for _, path in compile_condition(self._trigger.condition).reads]
            if self._trigger.condition
            else []
        )
        kept: list[FieldPath] = [path for path in dict.fromkeys(reads) if path]
        for path in list(kept):
            fewer = [one for one in kept if one != path]
            if self._same(fewer):
                kept = fewer
        return kept

    def _same(self, kept: Collection[FieldPath]) -> bool:
        verdict = self._decide(self._without_people(kept))
        return verdict is not None and self._is_same(verdict)

    def _is_same(self, verdict: Verdict) -> bool:
        return verdict.outcome == self._outcome and _clause_of(self._trigger, verdict) == self._clause

    def _without_people(self, kept: Collection[FieldPath]) -> Event:
        """The event without secrets and people, except for these fields."""
        anonymiser, state = Anonymiser(self._secrets), self._event["state"]
        data = anonymiser.data(self._event["data"], kept)
        subject = anonymiser.text(self._event["subject"])
        state = None if state is None else anonymiser.text(state)
        return self._at(data, subject, state, anonymiser.text(self._event["type"]))

    def _at(self, data: Any, subject: str, state: str | None, type: str) -> Event:
        """The event at its time in the case."""
        happened: datetime | None = self.start + FIRST
        if self._event["occurred_at"] is None:
            happened = None
        elif self._outcome == "before_start":
            happened = self.start + FIRST - LONG_BEFORE
        return Event(
            subject=subject,
            type=type,
            data=data if isinstance(data, Mapping) else {"value": data},
            state=state,
            occurred_at=happened,
        )

    def _decide(self, event: Event) -> Verdict | None:
        """What the trigger makes of the event if nothing else ever came; None if it does not listen to it."""
        sightings = recognise([event], {}, self._feed.identity)
        [entry] = match(sightings, self._rules, Read(now=self.start + FIRST))
        if not entry.decisions:
            return None
        [decision] = entry.decisions
        if isinstance(decision, Verdict):
            return decision
        outcome: Any = "fired" if decision.gather is None else "gathered"
        return Verdict(trigger=self._trigger.name, outcome=outcome, reason=decision.reason)


def _clause_of(trigger: Trigger, verdict: Verdict) -> str:
    """The part of the condition that decided, as the reason has it; empty if none did."""
    if not trigger.condition or verdict.outcome not in ("filtered", "error"):
        return ""
    labels = [clause.label for clause in clauses(compile_condition(trigger.condition))]
    return next((label for label in labels if label in verdict.reason), "")


def _expected(trigger: Trigger, verdict: Verdict) -> dict[str, Any]:
    wanted: dict[str, Any] = {"trigger": trigger.name, "outcome": verdict.outcome}
    if clause := _clause_of(trigger, verdict):
        wanted["clause"] = clause
    return {"verdicts": [wanted]}


def _label(feed: Feed, loaded: Loaded) -> str:
    """What people call the feed, if only one is called so."""
    alike = [one for one in loaded.feeds if one.display_name == feed.display_name]
    return feed.display_name if len(alike) == 1 else feed.name


def _given(event: Event, feed: str, start: datetime) -> dict[str, Any]:
    """The event as files of test cases have it."""
    at = format_duration(FIRST.total_seconds())
    given: dict[str, Any] = {"at": at, "event": dict(event.data), "feed": feed, "subject": event.subject}
    given["type"] = event.type
    if event.state is not None:
        given["state"] = event.state
    if event.occurred_at is None:
        given["undated"] = True
    elif event.occurred_at != start + FIRST:
        given["late"] = format_duration((start + FIRST - event.occurred_at).total_seconds())
    return given
