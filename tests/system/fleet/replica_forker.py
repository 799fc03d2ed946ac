"""A process with everything imported, which forks replicas whenever it is asked: a start without the second of imports.

Run as `python replica.py`. It hears one JSON object a line: `{"start": …}` forks and answers with the pid, `{"reap":
pid}` waits for that child's end. Each replica writes down what it asks of the store (see recorded.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.system.fleet.recording_store import Gate, Pen, RecordedStore
from tests.system.kill.process_forker import NEEDED

STORES = ("harken.backends.postgres", "harken.backends.redis", "asyncpg", "redis.asyncio", "watchfiles")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long a replica's leases, claims and waits are; the defaults are those of a real one."""

    lease: float = 30.0
    claim: float = 60.0
    beat: float = 5.0
    alive: float = 20.0
    round: float = 5.0
    answer: float = 15.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of replica to start."""

    name: str
    directory: str
    port: int
    history: str
    log: str
    role: str = "all"
    environment: Mapping[str, str] = {}
    pace: Pace = Pace()


def timings_of(pace: Pace) -> Any:
    from harken.timings import Timings

    return Timings(
        lease_seconds=pace.lease,
        claim_seconds=pace.claim,
        beat=pace.beat,
        alive=pace.alive,
        housekeeping_round=pace.round,
    )


def limit_answers(seconds: float) -> None:
    """Wait no longer than that for an answer of the store."""
    from harken.backends.postgres import PostgresStore, Settings
    from harken.backends.redis import connection

    settings = Settings(answer=seconds, statement=seconds * 0.7, lock=seconds / 3, connect=seconds / 3)
    _set_default(PostgresStore.at.__func__, "settings", settings)  # type: ignore[attr-defined]
    for name, value in (("ANSWER_SECONDS", seconds), ("CONNECT_SECONDS", seconds / 3)):
        assert hasattr(connection, name), f"{connection.__name__} has no {name} any more"
        setattr(connection, name, value)


def _set_default(function: Any, name: str, value: Any) -> None:
    assert name in function.__kwdefaults__
    function.__kwdefaults__[name] = value


def keep_record(pen: Pen, gate: Gate) -> None:
    """Have whatever opens a store open one that is recorded."""
    from harken.app import store

    store.opened_store = _recording(store.opened_store, pen, gate)


def _recording(opens: Callable[..., Any], pen: Pen, gate: Gate) -> Callable[..., Any]:
    def open_recorded(*args: Any) -> Any:
        found = opens(*args)
        return replace(found, store=RecordedStore(found.store, pen, gate))

    return open_recorded


def live(order: Order) -> int:
    """Be a replica until a signal comes."""
    from harken.app import run

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order.environment)
    limit_answers(order.pace.answer)
    # for whoever wonders what it waits for
    signal.signal(signal.SIGUSR1, lambda *_: asyncio.get_running_loop().call_soon_threadsafe(_tell_tasks))
    who = f"{order.name}-{os.getpid()}"
    keep_record(Pen(Path(order.history) / f"{who}.jsonl", who), Gate(Path(order.history) / f"{order.name}.gate"))
    role: Any = order.role
    return run(Path(order.directory), port=order.port, role=role, timings=timings_of(order.pace))


def _tell_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


def _lived(order: Order) -> int:
    try:
        return live(order)
    except BaseException:
        # a child must never go on as its parent
        traceback.print_exc()
        return 70


def main() -> None:
    from harken.services import registry

    for name in (*NEEDED, *STORES):
        import_module(name)
    # a child has better things to do with its short life than to import every service
    dict(registry())
    for line in sys.stdin:
        said = msgspec.json.decode(line)
        if "reap" in said:
            answer = os.waitstatus_to_exitcode(os.waitpid(said["reap"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                os._exit(_lived(msgspec.convert(said["start"], Order)))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
