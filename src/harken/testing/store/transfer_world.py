"""Fills a store with rows of every kind and state, and takes a snapshot of it, to compare a store with its copy."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from harken.circuit_breaker import Health
from harken.event import Event, Span, Verdict
from harken.feed import Budget
from harken.runs import Again, Dead, Failed, Finished, Park, StepRecord
from harken.store import Commit, Failure, GatherInto, IdleRead, NewRun, Store, Tick
from harken.store.document_kinds import REPLICA
from harken.store.transfer_protocol_and_exclusive_access import StoreTransfer
from harken.testing.store.event_decided_by_many_triggers import declined
from harken.testing.store.world import INBOX, INTERNAL_FEED, Given, definitions, feed, trigger

__all__ = ["BEFORE", "WORLD", "FilledRuns", "Place", "fill", "snapshot"]

HOOK = feed("hook", way="push", identity="once")
BOX = feed("box", identity="change", shard=3)
GONE = feed("gone")
TRIGGERS = (
    trigger("mail"),
    trigger("other"),
    trigger("digest"),
    trigger("single", overlap="queue", concurrency_key="k"),
    trigger("thrifty", budget=Budget(runs_per_hour=1, tokens_per_day=100)),
    trigger("resting"),
    trigger("pushed", on="hook"),
)
WORLD = definitions(feeds=(INBOX, INTERNAL_FEED, HOOK, BOX), triggers=TRIGGERS)
BEFORE = msgspec.structs.replace(
    WORLD, generation="g0", feeds=(*WORLD.feeds, GONE), triggers=(*TRIGGERS, trigger("former", on="gone"))
)
WINDOW = 3600.0


class Place(Protocol):
    """Where a store is: it can be opened, or copied."""

    async def open(self) -> Store: ...

    def transfer(self) -> StoreTransfer: ...


class FilledRuns(msgspec.Struct, kw_only=True):
    """Ids of the runs that `fill` made, by their state or kind."""

    finished: str
    failed: str
    dead: str
    cancelled: str
    again: str
    running: str
    journaled: str
    asleep: str
    asking: str
    parent: str
    child: str
    answered: str
    first: str
    second: str
    gathering: str
    flooded: str
    paused: str
    counted: str
    short: str
    replayed: str
    several: str
    hushed: str


async def fill(given: Given) -> FilledRuns:
    """Put rows of every kind into the store, and runs of every state."""
    await _fill_feeds(given)
    await _fill_registry(given)
    return await _fill_runs(given)


async def _fill_feeds(given: Given) -> None:
    """Feeds with reads of every result, and their memory."""
    now = given.now
    covered = Span(now(-600), now(-500))
    tick = Tick(result="events", started_at=now(-2), seconds=1.5, seen=3, new=2, covered=covered)
    entries = [given.entry(name, Verdict(trigger="mail", outcome="filtered", reason=f"no {name}")) for name in "ab"]
    await given.commit(*entries, cursor={"page": 7}, watermark=now(-1), next_due=now(60), tick=tick, done=True)
    await given.commit(entries[0], given.entry("c", state="open"))
    many = [declined(number) for number in range(30)]
    await given.commit(given.entry("many", *many[:9], given.intent("many", due_at=now(9000)), *many[9:]))
    await given.commit(given.entry("c", state="shut", expect=1, seq=2))
    given.clock.advance(1.5)
    await given.store.forget("inbox", given.lease.token, ["a", "c"], now(-1))
    later = Tick(result="changed", started_at=now(), seen=1, covered=Span(now(-100), now()))
    await given.commit(tick=later, done=True, next_due=now(60), health=Health())
    failing = Health(failures=3)
    await given.store.fail(
        Failure(
            feed="inbox",
            token=given.lease.token,
            health=failing,
            next_due=now(90),
            result="error",
            error="it does not answer: ünreachable",
            started_at=now(),
        )
    )
    lease = await given.store.lease(3, "a", 30.0)
    assert lease is not None
    times: dict[str, Any] = {"first_at": now(-9), "last_at": now(), "next_due": now(9)}
    await given.store.record_idle(
        [IdleRead(feed="box", token=lease.token, count=4, result="nothing_new", seen=9, **times)]
    )
    await _push(given, "p1")
    await _push(given, "p2", by="pushed")


async def _push(given: Given, subject: str, by: str = "") -> str:
    revision = (await given.store.state("hook")).revision
    raw = b'{ "id": "%s", "big": 12345678901234567890 }' % subject.encode()
    event = Event(subject=subject, type="push", data={"id": subject}, key=subject, raw=raw)
    decisions = (given.intent(subject, trigger=by),) if by else ()
    entry = msgspec.structs.replace(given.entry(subject, *decisions), event=event)
    answer = await given.store.commit(Commit(feed="hook", revision=revision, entries=(entry,), claim=1, holder="w"))
    [claim, *_] = answer.claimed or [None]  # type: ignore[union-attr]
    if claim is not None:
        await given.settle(claim, trigger=by)
    return subject


async def _fill_registry(given: Given) -> None:
    """Documents, audits and refused events."""
    store = given.store
    for value in ({"at": 1}, {"at": 2, "text": "ünïcode"}):
        await store.put("cooldown", "page", value)
    await store.put("budget", "acct", [1, None, 2.5])
    await store.put(REPLICA, "r1", {"host": "here"})
    await store.audit("me", "paused", "mail", {"why": "tired"})
    await store.audit("you", "resumed", "mail", {})
    await store.dead_letter("inbox", Event(subject="odd", type="mail", data={"x": 1}, key="odd:1"), "it is too large")
    await store.dead_letter("inbox", Event(subject="odder", type="mail", data={}, key="odd:2"), "it is no text")
    await store.drop_dead_letter("event-2")


async def _claimed(given: Given, subject: str, **intent: Any) -> Any:
    [run_id] = await given.fires(subject, **intent)
    [claim] = await given.claims(1)
    assert claim.id == run_id, "another run was due"
    return claim


async def _fill_runs(given: Given) -> FilledRuns:
    store, now = given.store, given.now
    found: dict[str, str] = {}
    step = StepRecord(path="ask", action="llm", status="ok", output={"n": 1}, tokens=60)
    for name, outcome in {
        "finished": Finished(output={"said": "done"}),
        "failed": Failed(error="no"),
        "dead": Dead(error="used up"),
        "again": Again(at=now(3600), error="busy"),
    }.items():
        claim = await _claimed(given, name, trigger="other", input=b'{"in":1}', watched=True)
        await given.settle(claim, outcome, record=step, trigger="other")
        found[name] = claim.id
    [found["cancelled"]] = await given.fires("cancelled", due_at=now(3600))
    await store.cancel(found["cancelled"])
    for name, park in {
        "asleep": Park(until=now(3600)),
        "asking": Park(waiting_for="approval"),
        "answered": Park(waiting_for="approval"),
    }.items():
        claim = await _claimed(given, name)
        await store.park(claim.id, claim.token, park, step)
        found[name] = claim.id
    parent = await _claimed(given, "parent", priority=-5)
    new = NewRun(trigger="", workflow="sub", workflow_rev="r1", id_key="child", parent=parent.id, due_at=now(1800))
    await store.journal(parent.id, parent.token, [step], start=[new])
    found["parent"], found["child"] = parent.id, await store.start(new)
    await store.park(parent.id, parent.token, Park(waiting_for=f"run:{found['child']}"))
    await _slots_and_windows(given, found)
    await _held(given, found)
    await _by_hand(given, found)
    journaled = await _claimed(given, "journaled", priority=9)
    await store.journal(journaled.id, journaled.token, [step])
    running = await _claimed(given, "running", priority=9, watched=True)
    await _deal_with(given, found["finished"], found["failed"])
    await store.cancel(running.id)
    await store.answer(found["answered"], {"yes": True})
    return FilledRuns(**found, running=running.id, journaled=journaled.id)


async def _deal_with(given: Given, *run_ids: str) -> None:
    moved = await given.store.moved_runs()
    await given.store.moved_runs({run.id: run.seen for run in moved if run.id in run_ids})


async def _slots_and_windows(given: Given, found: dict[str, str]) -> None:
    slot = {"trigger": "single", "slot": "k", "overlap": "queue", "due_at": given.now(7200)}
    found["first"], found["second"] = await given.fires("first", "second", **slot)
    into = GatherInto("k", given.now(WINDOW))
    for name in ("g1:None", "g2:None"):
        subject = name.split(":")[0]
        gathered = given.intent(name, trigger="digest", gather=into, due_at=into.due_at, reason="it fits")
        committed = await given.commit(given.entry(subject, gathered))
        found["gathering"] = committed.verdicts[0][0].run_id


async def _held(given: Given, found: dict[str, str]) -> None:
    [found["flooded"]] = await given.fires("flooded", hold="flood")
    quiet = Span(given.now(1800), given.now(9000))
    [found["hushed"]] = await given.fires("hushed", due_at=given.now(2000), quiet=quiet)
    await given.store.pause("resting", "until the summer")
    await given.refresh()
    [found["paused"]] = await given.fires("held", trigger="resting", hold="paused")
    counted = await _claimed(given, "counted", trigger="thrifty", priority=8)
    paid = StepRecord(path="ask", action="llm", status="ok", tokens=60)
    await given.settle(counted, record=paid, trigger="thrifty")
    found["counted"] = counted.id
    [found["short"]] = await given.fires("short", trigger="thrifty", due_at=given.now(0))


async def _by_hand(given: Given, found: dict[str, str]) -> None:
    newest = [event.id for event in await given.events(limit=2)]
    replay = NewRun(trigger="mail", workflow_rev="r1", id_key="replay", due_at=given.now(1800), replay_of=found["dead"])
    found["replayed"] = await given.store.start(msgspec.structs.replace(replay, event_ids=(newest[0],)))
    both = msgspec.structs.replace(replay, id_key="both", event_ids=tuple(newest))
    found["several"] = await given.store.start(both)


async def snapshot(store: Store) -> dict[str, Any]:
    """Everything that the store's queries return. Running runs are shown as ready, as claims are not copied."""
    feeds = await store.feeds()
    events = (await store.events(limit=1000)).items
    runs = [await store.run(run.id) for run in (await store.runs(limit=1000)).items]
    subjects = [("inbox", "a"), ("inbox", "c"), ("inbox", "never"), ("hook", "p1"), ("hook", "p2")]
    return {
        "feeds": [await store.state(each.name) for each in feeds],
        "listeners": [await store.listeners(each.name) for each in feeds],
        "triggers": await store.triggers(),
        "generation": await store.generation(),
        "events": events,
        "runs": [_unclaimed(run) for run in runs],
        "of events": [[run.id for run in (await store.runs(event_id=event.id)).items] for event in events],
        "of triggers": [[run.id for run in (await store.runs(trigger=name)).items] for name in ("mail", "single")],
        "dead": (await store.dead()).items,
        "moved": [_unclaimed(msgspec.structs.replace(run, seen=0)) for run in await store.moved_runs()],
        "ticks": [await store.ticks(each.name) for each in feeds],
        "documents": [await store.documents(kind) for kind in ("cooldown", "budget", "workflow")],
        "audits": (await store.audits()).items,
        "known": [await store.memory_of(*each) for each in subjects],
        "recalled": sorted((await store.recall("inbox", ["a", "b", "c", "never"])).items()),
        "refused": (await store.counts())["refused_events"],
    }


def _unclaimed(run: Any) -> Any:
    return msgspec.structs.replace(run, status="ready") if run.status == "running" else run
