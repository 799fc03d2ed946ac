"""What people and steps order of runs: start, cancel, retry, release, drop, answer."""

from __future__ import annotations

from typing import Any

from harken.backends.redis.codec import Ask, micros_or_false
from harken.backends.redis.transaction import Home
from harken.backends.run_states import run_id_of
from harken.errors import NotFound
from harken.store import NewRun

__all__ = ["answer", "cancel", "drop_dead", "new_run", "release", "retry", "start"]


async def new_run(home: Home, ask: Ask, new: NewRun) -> tuple[str, tuple[Any, ...]]:
    """The id of the run, and how Lua is told of it."""
    uid = await home.uid_of(new.trigger) if new.trigger else ""
    run_id = run_id_of(home.seal, uid or new.workflow, 0, new.id_key, "by hand")
    return run_id.hex(), (
        uid,
        ask.named(run_id),
        new.workflow_rev,
        micros_or_false(new.due_at),
        new.max_attempts,
        list(new.event_ids),
        ask.text(ask.seal.shut(new.input)) if new.input else False,
        ask.run(new.parent) if new.parent else False,
        ask.run(new.replay_of) if new.replay_of else False,
    )


async def start(home: Home, new: NewRun) -> str:
    ask = home.ask()
    run_id, instructions = await new_run(home, ask, new)
    await home.link.write("start", ask, instructions)
    return run_id


async def cancel(home: Home, run_id: str) -> bool:
    return await _of_run(home, "cancel", run_id)


async def retry(home: Home, run_id: str, workflow_rev: str) -> bool:
    return await _of_run(home, "retry", run_id, workflow_rev)


async def _of_run(home: Home, verb: str, run_id: str, *more: Any) -> bool:
    ask = home.ask()
    try:
        return bool(await home.link.write(verb, ask, (ask.run(run_id), *more)))
    except NotFound:
        raise NotFound(f"there is no run {run_id!r}") from None


async def release(home: Home, trigger: str, drop: bool, hold: str) -> int:
    return int(await home.link.write("release", home.ask(), (trigger, drop, hold)))


async def drop_dead(home: Home, run_id: str) -> bool:
    if run_id.startswith("event-"):
        return bool(await home.link.write("drop_event", home.ask(), (int(run_id[6:]),)))
    return await _of_run(home, "drop_dead", run_id)


async def answer(home: Home, run_id: str, value: Any) -> bool:
    ask = home.ask()
    return bool(await home.link.write("answer", ask, (ask.run(run_id), ask.shut_json(value))))
