"""`harken doctor`: checks of this machine and configuration, each ok, warn or fail, with the fix."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from harken.config.env_file import ENV_FILE
from harken.durations import format_duration
from harken.feed import FeedState
from harken.http.service_clock import LARGEST_LAG
from harken.operate.context import Context
from harken.operate.language_models import configured_models
from harken.operate.load_and_check_configuration import Site, finding_row, finding_rows, site_findings, site_of
from harken.operate.output_rows import Plain, plain
from harken.operate.tracker_webhook_health import webhook_health
from harken.operate.trigger_status import offline_since
from harken.operate.triggers import list_triggers
from harken.operate.unreadable_tracker_locations import cursor_of, trouble_of
from harken.operate.wording import count, stamp
from harken.store import FUTURE_SECONDS, Space
from harken.tickets import TrackerSettings, feed_name
from harken.tickets.webhook_loss import Deliveries, stored_deliveries

__all__ = ["Check", "doctor"]

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "fuse.sshfs", "fuse.s3fs", "ncp")
MEGABYTE = 1 << 20
SHOWN = 3
AGREEMENT = 10.0
"""Seconds. Our clock is off if most services say so by at least this much, give or take half of it."""
SHARED_KINDS = ("json", "rss", "page")
"""Kinds whose feeds read servers that have nothing to do with each other."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: Literal["ok", "warn", "fail"] = "ok"
    message: str = ""
    fix: str = ""


async def doctor(context: Context) -> Plain:
    """Run every check. `ok` is False when one of them fails."""
    place = site_of(context.loaded)
    feeds = await context.store.feeds()
    newest = (await context.store.events(limit=1)).items
    checks = [
        check_config([*finding_rows(context.loaded), *_site_rows(context)]),
        check_store(context.store.trouble, place),
        check_file_system(place, _mounts()),
        check_disk(place),
        check_space(await context.store.space()),
        check_permissions(place),
        check_clock(context.clock.now(), newest[0].recorded_at if newest else None, await _ahead(context)),
        check_service_clocks(_by_service(context)),
        check_models(context),
        check_port(place, ours=str(context.engine.status().get("url", "")) if context.engine else ""),
        check_connections(context.engine.status() if context.engine else {}),
        check_network(feeds),
        check_feeds(feeds, context.feed_label),
        *check_trackers(context.loaded.trackers.values() if context.loaded else (), feeds),
        *check_webhooks(
            context.loaded.trackers.values() if context.loaded else (), await stored_deliveries(context.store)
        ),
        *check_triggers((await list_triggers(context))["items"]),
    ]
    return {"items": [plain(check) for check in checks], "ok": all(check.state != "fail" for check in checks)}


def check_trackers(trackers: Iterable[TrackerSettings], feeds: Iterable[FeedState]) -> list[Check]:
    """Tell of trackers of which some locations cannot be read. Those that cannot be read at all are failing feeds."""
    states = {state.name: state for state in feeds}
    found = [
        (tracker.name, trouble_of(cursor_of(states.get(feed_name(tracker.name))), tracker)) for tracker in trackers
    ]
    return [
        Check(name="trackers", state="warn", message=f"{name}: {trouble}", fix=f"See: harken trackers test {name}")
        for name, trouble in found
        if trouble
    ]


def check_webhooks(trackers: Iterable[TrackerSettings], counted: Mapping[str, Deliveries]) -> list[Check]:
    """Tell of trackers whose webhooks get lost. They are polled more often until that heals."""
    found = (webhook_health(tracker, counted.get(tracker.name)) for tracker in trackers)
    return [
        Check(name="webhooks", state="warn", message=health.problem, fix=health.fix)
        for health in found
        if health is not None and health.problem
    ]


def check_config(found: Iterable[Plain]) -> Check:
    rows = list(found)
    errors = [row for row in rows if row["severity"] == "error"]
    if errors:
        first = errors[0]["text"]
        return Check(
            name="config",
            state="fail",
            message=f"{count(len(errors), 'error')}; the first: {first}",
            fix="See all: harken config check",
        )
    if rows:
        message = f"{count(len(rows), 'warning')}; the first: {rows[0]['text']}"
        return Check(name="config", state="warn", message=message, fix="See all: harken config check")
    return Check(name="config", message="no findings")


def check_store(trouble: str, place: Site) -> Check:
    if trouble:
        fix = "Nothing is acknowledged until it can, so nothing is lost"
        return Check(name="store", state="fail", message=f"the store cannot write: {trouble}", fix=fix)
    path = place.store_path
    if path is None:
        return Check(name="store", message="the store answers")
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        return Check(
            name="store",
            state="fail",
            message=f"{target} is not writable",
            fix=f"Give your user the right to write {target}",
        )
    return Check(name="store", message=f"{path} is writable")


def check_file_system(place: Site, mounts: Iterable[tuple[str, str]]) -> Check:
    """Refuse network file systems, where SQLite's locks do not work."""
    path = place.store_path
    if path is None:
        return Check(name="file system", message="the store is not a file")
    home = str(path.resolve())
    inside = [(point, kind) for point, kind in mounts if home == point or home.startswith(point.rstrip("/") + "/")]
    kind = max(inside, key=lambda mount: len(mount[0]), default=("", "local"))[1]
    if kind.startswith(NETWORK_FILE_SYSTEMS):
        fix = "Set `store:` to a file on a local disk"
        return Check(name="file system", state="fail", message=f"{path} is on {kind}, a network file system", fix=fix)
    return Check(name="file system", message=f"{path.name} is on {kind}")


def check_disk(place: Site) -> Check:
    folder = place.store_path.parent if place.store_path else place.directory
    if not folder.exists():
        return Check(name="disk", state="warn", message=f"{folder} does not exist", fix="It is made by: harken start")
    free = shutil.disk_usage(folder).free // MEGABYTE
    if free < 1024:
        state: Literal["warn", "fail"] = "fail" if free < 100 else "warn"
        return Check(
            name="disk", state=state, message=f"{free} MB free in {folder}", fix="Free space, or shorten `retention:`"
        )
    return Check(name="disk", message=f"{free // 1024} GB free")


def check_space(space: Space) -> Check:
    unused = f", {space.unused // MEGABYTE} MB of it unused" if space.unused >= MEGABYTE else ""
    message = f"the store takes {space.bytes // MEGABYTE} MB{unused}"
    if space.advice and space.unused * 2 > space.bytes and space.unused >= MEGABYTE:
        return Check(name="space", state="warn", message=message, fix=space.advice)
    return Check(name="space", message=message)


def check_permissions(place: Site) -> Check:
    """State files must be private; configuration files must not be writable by others."""
    path = place.store_path
    state = [path, path.with_name(path.name + "-wal"), path.with_name(path.name + ".run.json")] if path else []
    state.append(place.directory / ENV_FILE)
    shown = [file for file in state if file.exists() and _mode(file) & 0o077]
    if shown:
        names = " ".join(str(file) for file in shown)
        return Check(name="permissions", state="warn", message=f"others may read {names}", fix=f"chmod 600 {names}")
    written = [file for file in sorted(place.directory.glob("*.yaml")) if _mode(file) & 0o022]
    if written:
        names = " ".join(str(file) for file in written)
        return Check(name="permissions", state="warn", message=f"others may change {names}", fix=f"chmod go-w {names}")
    return Check(name="permissions", message="private")


def check_clock(now: datetime, newest: datetime | None, ahead: Sequence[str] = ()) -> Check:
    """`ahead`: triggers whose start line is in the future."""
    if now.year < 2025:
        return Check(
            name="clock",
            state="fail",
            message=f"the clock says {stamp(now)}",
            fix="Set the clock, for example with NTP",
        )
    if newest is not None and newest - now > timedelta(minutes=1):
        message = f"the newest event was recorded at {stamp(newest)}, which is in the future"
        return Check(name="clock", state="warn", message=message, fix="The clock went back: check NTP")
    if ahead:
        more = f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
        whose = f"{', '.join(ahead[:SHOWN])}{more}"
        message = f"the start line of {whose} is in the future: the clock was ahead when it was set"
        fix = "A running controller moves it back within a minute: harken start"
        return Check(name="clock", state="warn", message=message, fix=fix)
    return Check(name="clock", message=stamp(now))


def check_service_clocks(known: Mapping[str, float]) -> Check:
    """`known`: seconds that a service is ahead of us, by the `Date` of its answers; 0 if it agrees with our clock."""
    skews = {name: skew for name, skew in known.items() if skew}
    if not skews:
        agree = f"{count(len(known), 'service')} agree{'s' if len(known) == 1 else ''} with ours"
        return Check(name="service clocks", message=agree if known else "none is known to differ from ours")
    ours = _our_skew(list(known.values()))
    if ours:
        off = f"{format_duration(round(abs(ours)))} {'ahead' if ours > 0 else 'behind'}"
        message = f"our clock is {off}: {_agreeing(known.values(), ours)} of {count(len(known), 'service')} say so"
        fix = "Set the clock, for example with NTP: timedatectl set-ntp true"
        return Check(name="service clocks", state="fail", message=message, fix=fix)
    first = max(skews, key=lambda name: (abs(skews[name]), name))
    skew = skews[first]
    off = f"{format_duration(round(abs(skew)))} {'ahead of' if skew > 0 else 'behind'} our clock"
    others = f", {count(len(skews) - 1, 'other')} less" if len(skews) > 1 else ""
    message = f"the service of {first} is {off}{others}"
    if skew < -LARGEST_LAG:
        message += "; that is too far to allow for, so what it dates may count as before a trigger's start line"
    return Check(name="service clocks", state="warn", message=message, fix="Compare our clock with NTP: timedatectl")


def _our_skew(known: Sequence[float]) -> float:
    """How far our own clock is ahead, if most services (at least two) agree that it is off; else 0."""
    ours = -median(known)
    wrong = len(known) > 1 and abs(ours) >= AGREEMENT and _agreeing(known, ours) * 2 > len(known)
    return ours if wrong else 0.0


def _agreeing(known: Iterable[float], ours: float) -> int:
    return sum(abs(skew + ours) < AGREEMENT / 2 for skew in known)


async def _ahead(context: Context) -> list[str]:
    limit = context.clock.now() + timedelta(seconds=FUTURE_SECONDS)
    return sorted(state.name for state in await context.store.triggers() if state.start_line > limit)


def _by_service(context: Context) -> dict[str, float]:
    """The difference of each service's clock, once for each service, however many feeds read it."""
    found: dict[str, float] = {}
    feeds = context.feeds()
    for name, skew in sorted((context.engine.service_clocks() if context.engine else {}).items()):
        feed = feeds.get(name)
        if feed is None or feed.kind in SHARED_KINDS:
            service = context.feed_label(name)
        else:
            service = feed.integration or feed.kind
        found[service] = max(found.get(service, 0.0), skew, key=abs)
    return found


def check_models(context: Context) -> Check:
    known = configured_models(context.loaded)
    needing = sorted(name for name, flow in context.workflows().items() if _uses_llm(flow.definition))
    if needing and not known:
        message = f"{', '.join(needing)} has llm steps, and no model is configured"
        return Check(
            name="models", state="warn", message=message, fix="Set `models:`; `models: {default: echo}` works offline"
        )
    return Check(name="models", message=", ".join(f"{tier}: {model}" for tier, model in known.items()) or "none needed")


def check_port(place: Site, *, ours: str) -> Check:
    """`ours` is the address of our own running controller, if any."""
    if ours:
        return Check(name="port", message=f"the controller listens at {ours}")
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place.host, place.port))
        except OSError as error:
            message = f"{place.host}:{place.port} cannot be used: {error.strerror}"
            return Check(name="port", state="warn", message=message, fix="Set `server.port`, or: harken start --port N")
    return Check(name="port", message=f"{place.host}:{place.port} is free")


def check_connections(controller: Mapping[str, Any]) -> Check:
    """What the listeners refused since the start. Strangers are no fault, but senders who found no place are one."""
    refused = controller.get("connections_refused", {})
    message = f"{count(controller.get('connections', 0), 'connection')} open"
    if not refused:
        return Check(name="connections", message=f"{message}, none was refused")
    message += "; refused since the start: " + ", ".join(f"{number} {reason}" for reason, number in refused.items())
    if not {"connections", "address"} & refused.keys():
        return Check(name="connections", message=message)
    fix = "If these were your senders: raise server.max_connections, and name proxies in front in server.proxies"
    return Check(name="connections", state="warn", message=message, fix=fix)


def check_network(feeds: Iterable[FeedState]) -> Check:
    waiting = sorted((feed for feed in feeds if feed.health.offline_since is not None), key=lambda feed: feed.name)
    since = offline_since(waiting)
    if since is None:
        return Check(name="network", message="no feed finds this machine offline")
    message = f"offline since {stamp(since)}; {count(len(waiting), 'feed')} waiting; {waiting[0].health.message}"
    fix = "Look at the network, DNS and proxy of this machine. Nothing is paused; it goes on by itself"
    return Check(name="network", state="warn", message=message, fix=fix)


def check_feeds(feeds: Iterable[FeedState], label: Callable[[str], str] = str) -> Check:
    """`label` turns the id of a feed into what people call it."""
    troubled = (feed for feed in feeds if not feed.health.clean and feed.health.offline_since is None)
    failing = sorted(troubled, key=lambda feed: feed.name)
    if not failing:
        return Check(name="feeds", message="none is failing")
    first = failing[0]
    state: Literal["warn", "fail"] = "fail" if any(feed.health.state == "paused" for feed in failing) else "warn"
    message = f"{count(len(failing), 'feed')} failing; {label(first.name)}: {first.health.message}"
    return Check(name="feeds", state=state, message=message, fix="See: harken feeds list")


def check_triggers(rows: Sequence[Plain]) -> list[Check]:
    """A check of the triggers' freshness, and one of runs that nobody executes unless a person does something."""
    stale = [row for row in rows if row["status"] == "stale"]
    fresh = Check(name="triggers", message=count(len(rows), "trigger"))
    if stale:
        message = f"{count(len(stale), 'trigger')} stale; {stale[0]['name']}: {stale[0]['reason']}"
        fresh = Check(name="triggers", state="warn", message=message, fix=stale[0]["advice"])
    stuck = [row for row in rows if row["needs_person"] and (row["held"] or row["dead"])]
    if not stuck:
        return [fresh, Check(name="runs", message="none is dead or held for a person")]
    message = "; ".join(f"{row['name']}: {row['reason']}" for row in stuck[:SHOWN])
    more = f"; and {len(stuck) - SHOWN} more" if len(stuck) > SHOWN else ""
    fix = ". ".join(row["advice"] for row in stuck[:SHOWN])
    return [fresh, Check(name="runs", state="warn", message=message + more, fix=fix)]


def _site_rows(context: Context) -> list[Plain]:
    return [finding_row(found) for found in site_findings(context.loaded)] if context.loaded else []


def _uses_llm(definition: object) -> bool:
    if isinstance(definition, dict):
        return "llm" in (definition.get("action"), definition.get("type")) or any(map(_uses_llm, definition.values()))
    return isinstance(definition, list | tuple) and any(map(_uses_llm, definition))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _mounts() -> list[tuple[str, str]]:
    table = Path("/proc/mounts")
    if not table.exists():
        return []
    rows = (line.split() for line in table.read_text().splitlines())
    return [(row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2]
