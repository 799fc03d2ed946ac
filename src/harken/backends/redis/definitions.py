"""Making a configuration current: what is known keeps its place, what is new begins, what is gone rests.

What changed is found out here, against definitions at one revision; the script refuses it if they moved on meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from harken.backends.codec import decode_feed
from harken.backends.redis.codec import Ask
from harken.backends.redis.standing import feed_states, rows_of, trigger_states
from harken.backends.redis.transaction import Home
from harken.errors import NotFound, StoreBusy
from harken.feed import Feed, Trigger
from harken.schedule import Every
from harken.store import Definitions, Opened

__all__ = ["facts", "open_all"]

TRIES = 20
Row = Mapping[str, bytes]


async def open_all(home: Home, wanted: Definitions) -> Opened:
    for _ in range(TRIES):
        epoch = await _open(home, wanted)
        if epoch is not None:
            break
    else:
        raise StoreBusy("others change the definitions all the time", after=1.0)
    return Opened(
        feeds={feed.name: feed for feed in await feed_states(home)},
        triggers={trigger.name: trigger for trigger in await trigger_states(home)},
        epoch=epoch,
    )


async def _open(home: Home, wanted: Definitions) -> int | None:
    """The store's epoch; None when somebody else opened something between our look and our write."""
    revision, names, uids = await home.link.read(
        ("GET", home.link.key("defs")), ("SMEMBERS", home.link.key("feeds")), ("HGETALL", home.link.key("tn"))
    )
    known = [name.decode() for name in names]
    feeds = dict(zip(known, await rows_of(home, [f"f:{name}" for name in known]), strict=True))
    named = {name.decode(): uid.decode() for name, uid in uids.items()}
    rows = await rows_of(home, [f"tr:{uid}" for uid in named.values()])
    ask = home.ask()
    changed: set[str] = set()
    triggers = _triggers(ask, wanted, named, dict(zip(named, rows, strict=True)), changed)
    pauses = _pauses(ask, wanted, named, changed)
    instructions = (
        int(revision or 0),
        triggers,
        _feeds(ask, wanted, feeds, changed),
        [(rev, _workflow(ask, name, definition)) for name, (rev, definition) in wanted.workflows.items()],
        pauses,
        wanted.generation,
        wanted.holder,
    )
    epoch = int(await home.link.write("open", ask, instructions))
    return epoch if epoch >= 0 else None


def _workflow(ask: Ask, name: str, definition: bytes) -> int:
    return ask.shut_json({"name": name, "definition": msgspec.Raw(definition)})


def _triggers(
    ask: Ask, wanted: Definitions, named: Mapping[str, str], known: Mapping[str, Row], changed: set[str]
) -> list[tuple[Any, ...]]:
    """What happens to each trigger that is new, other, gone or begins again; its feed is noted as changed."""
    found: list[tuple[Any, ...]] = []
    for trigger in wanted.triggers:
        row, encoded = known.get(trigger.name), msgspec.json.encode(trigger)
        removed = row is not None and "removed" in row
        earlier = "" if row is None else row["feed"].decode()
        startup = trigger.startup if wanted.starting and trigger.startup != "since_last" else ""
        if row is None:
            how = "new"
        elif removed or ask.seal.open(row["definition"]) != encoded:
            how = "edit"
        elif startup:
            how = "keep"
        else:
            continue
        changed |= {trigger.feed, earlier}
        uid = secrets.token_hex(8) if row is None else named[trigger.name]
        definition = ask.text(ask.seal.shut(encoded))
        found.append(
            (
                how,
                uid,
                trigger.name,
                trigger.feed,
                definition,
                earlier,
                facts(trigger),
                round(trigger.backfill * 1e6),
                trigger.flood_limit,
                startup,
                removed,
            )
        )
    for name in known.keys() - {trigger.name for trigger in wanted.triggers}:
        if "removed" not in known[name]:
            changed.add(known[name]["feed"].decode())
            found.append(("remove", named[name]))
    return found


def facts(trigger: Trigger) -> list[str]:
    """What Lua has to know of the definition, as fields of its hash."""
    budget = trigger.budget
    limits = (budget.runs_per_hour, budget.tokens_per_day, budget.usd_per_day) if budget else (None, None, None)
    flat = ["shares", "1" if trigger.max_age > 0 else "", "budget", "1" if budget else ""]
    flat += ["quiet", "1" if trigger.quiet else ""]
    for field, limit in zip(("brun", "btok", "busd"), limits, strict=True):
        flat += [field, "" if limit is None else str(limit)]
    return flat


def _pauses(ask: Ask, wanted: Definitions, named: Mapping[str, str], changed: set[str]) -> list[tuple[str, int]]:
    """Triggers that wait for a person from the start, before anyone can read for them."""
    if not wanted.starting:
        return []
    feeds = {trigger.name: trigger.feed for trigger in wanted.triggers}
    for name in wanted.pause:
        if name not in feeds:
            raise NotFound(f"there is no trigger {name!r}")
        changed.add(feeds[name])
    return [(name, ask.shut(reason)) for name, reason in wanted.pause.items()]


def _feeds(ask: Ask, wanted: Definitions, known: Mapping[str, Row], changed: set[str]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for feed in wanted.feeds:
        row, encoded = known.get(feed.name), msgspec.json.encode(feed)
        if row is None:
            heir = known.get(feed.inherits) if feed.inherits else None
            before = decode_feed(ask.seal.open(heir["definition"])) if heir else None
            found.append(_feed(ask, "new", feed, encoded, before))
        elif feed.name in changed or "removed" in row or ask.seal.open(row["definition"]) != encoded:
            found.append(_feed(ask, "edit", feed, encoded, decode_feed(ask.seal.open(row["definition"]))))
    for name in known.keys() - {feed.name for feed in wanted.feeds}:
        if "removed" not in known[name]:
            found.append(("remove", name))
    return found


def _feed(ask: Ask, how: str, feed: Feed, encoded: bytes, before: Feed | None) -> tuple[Any, ...]:
    return (
        how,
        feed.name,
        ask.text(ask.seal.shut(encoded)),
        feed.way != "poll",
        feed.identity,
        feed.inherits if before else False,
        before is None or before.identity == feed.identity,
        feed.first == "baseline",
        before is not None and _is_timed_otherwise(before, feed),
        feed.shard,
    )


def _is_timed_otherwise(before: Feed, feed: Feed) -> bool:
    # a shorter or longer interval is found out when the next read is planned
    regular = isinstance(before.schedule, Every) and isinstance(feed.schedule, Every)
    return before.schedule != feed.schedule and not regular
