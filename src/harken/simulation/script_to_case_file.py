"""Writes a script as a file of test cases, which `harken test` plays again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.config.yaml.writer import to_yaml
from harken.durations import format_duration
from harken.simulation.case_schema import FAULTS
from harken.simulation.reduced_configuration import Configuration
from harken.simulation.script import (
    START,
    Arrival,
    ClockJump,
    Crash,
    Freeze,
    Happening,
    Lock,
    OfProcess,
    Restart,
    Script,
    Sleep,
    StandIn,
    TicketChange,
    Trouble,
)
from harken.tickets import tracker_of

__all__ = ["case_of", "file_of"]

_FAULT_NAMES = {kind: name for name, kind in FAULTS.items()}


def file_of(cases: list[Mapping[str, Any]], environment: Mapping[str, str], *comments: str) -> str:
    """The text of a file with these cases."""
    head = "".join(f"# {line}\n" for line in comments)
    content: dict[str, Any] = {"environment": dict(environment)} if environment else {}
    return head + to_yaml({**content, "cases": cases})


def case_of(name: str, script: Script, configuration: Configuration, expect: Mapping[str, Any]) -> dict[str, Any]:
    """The case as plain values; `expect` as files have it."""
    labels = {feed.name: _label(feed.name, configuration) for feed in configuration.feeds}
    case: dict[str, Any] = {"name": name}
    if script.start != START:
        case["start"] = script.start.isoformat()
    if script.seed:
        case["seed"] = script.seed
    if script.replicas != 1:
        case["replicas"] = script.replicas
    if not script.baselined:
        case["first_read"] = "with"
    sources = {labels[feed]: _source(one) for feed, one in script.stand_ins.items() if one != StandIn()}
    if sources:
        case["sources"] = sources
    case["given"] = [_given(item, labels) for item in script.items]
    if script.seconds:
        case["for"] = format_duration(script.seconds)
    return {**case, "expect": dict(expect)}


def _label(feed: str, configuration: Configuration) -> str:
    """What people call the feed, if only one is called so."""
    label = configuration.feed(feed).display_name
    others = [one for one in configuration.loaded.feeds if one.display_name == label]
    return label if len(others) == 1 else feed


def _source(one: StandIn) -> dict[str, Any]:
    return {"view": one.view} | ({"page_size": one.page_size} if one.page_size != StandIn().page_size else {})


def _given(item: Happening, labels: Mapping[str, str]) -> dict[str, Any]:
    at = {"at": format_duration(item.at)}
    if isinstance(item, Arrival):
        return at | _event(item, labels)
    if isinstance(item, TicketChange):
        return at | _ticket(item)
    if isinstance(item, Trouble):
        given: dict[str, Any] = {"fault": _FAULT_NAMES[item.kind], "feed": labels[item.feed]}
        given["for"] = format_duration(item.seconds)
        return at | given | _known(retry_after=item.retry_after)
    if isinstance(item, OfProcess):
        return at | _of_process(item) | ({"replica": item.replica} if item.replica != 1 else {})
    if isinstance(item, Sleep):
        return at | {"sleep": format_duration(item.seconds)}
    assert isinstance(item, ClockJump)
    return at | {"clock": _signed(item.seconds)}


def _ticket(item: TicketChange) -> dict[str, Any]:
    given: dict[str, Any] = {"ticket": item.ticket, "does": item.what, "tracker": tracker_of(item.feed)}
    given |= {"labels": list(item.labels)} if item.labels else {}
    given |= {"project": item.project} if item.project else {}
    given |= {"webhooks": item.webhooks} if item.webhooks != 1 else {}
    return given | _known(lag=item.lag or None)


def _of_process(item: OfProcess) -> dict[str, Any]:
    if isinstance(item, Restart):
        return {"restart": format_duration(item.down)}
    verb, after = item.verb or True, {"after": True} if item.after else {}
    if isinstance(item, Lock):
        return {"lock": verb, "verbs": item.verbs} | after
    skip = {"skip": item.skip} if item.skip else {}
    if isinstance(item, Crash):
        return {"crash": verb} | skip | after | _known(down=item.down or None)
    name = "freeze" if isinstance(item, Freeze) else "cut"
    return {name: verb} | skip | after | {"for": format_duration(item.seconds)}


def _event(item: Arrival, labels: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {"event": dict(item.data), "feed": labels[item.feed], "subject": item.subject}
    given["type"] = item.type
    texts = {"key": item.key or None, "state": item.state}
    given |= {name: text for name, text in texts.items() if text is not None}
    if item.dated is None:
        given["undated"] = True
    elif item.dated != item.at:
        given["late"] = _signed(item.at - item.dated)
    return given | _known(gone=None if item.gone is None else item.gone - item.at)


def _signed(seconds: float) -> str:
    return f"-{format_duration(-seconds)}" if seconds < 0 else format_duration(seconds)


def _known(**seconds: float | None) -> dict[str, str]:
    return {name: format_duration(value) for name, value in seconds.items() if value is not None}
