"""Triggers that are rows, filled in, compiled, and started with, in a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.engine import answer
from bench.processes import rss_megabytes
from harken.app.application import App
from harken.app.run_until_signal import settle_memory
from harken.app.store import open_store
from harken.app.stored_triggers import TriggerRows
from harken.clock import SystemClock
from harken.config.loaded import Loaded
from harken.config.stored_trigger_compiler import RowCompiler
from harken.operate.load_and_check_configuration import credentials_of, load_directory
from harken.store import DocumentChange, Store
from harken.store.document_kinds import CHANGES, TRIGGER_LOG, TRIGGER_NAME, TRIGGER_ROW

__all__ = ["Asked", "Started", "take"]

MAIN = (
    "store: {store}\nfeeds: {{all: {{integration: json, query: {{url: 'https://news.example/all'}}, interval: 24h}}}}\n"
)
HELLO = """\
name: hello
steps:
  - {id: say, action: transform, set: {text: hello}}
"""
LONG_AGO = "2026-01-01T00:00:00Z"
AT_ONCE = 500
CHANGED = 5
SHARING = 1_000
"""At most so many of the rows listen to one feed of the files."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`fill` writes the rows and compiles them, as the first start after an upgrade does; else Harken is started.

    `store` is the address of an empty one, or the name of a file in the directory."""

    rows: int
    directory: str
    store: str = "harken.db"
    fill: bool = False


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by the clock and of the processor until it is ready or filled, and how many rows were compiled for it.

    `change` and `change_compiled` are of one row that is changed then, the middle of several."""

    seconds: float
    cpu: float
    compiled: int
    triggers: int
    megabytes: float
    change: float = 0.0
    change_compiled: int = 0


async def take(asked: Asked) -> Started:
    directory = Path(asked.directory)
    counted = _count_compiled()
    if asked.fill:
        return await _fill(directory, asked.rows, asked.store, counted)
    began, used = time.perf_counter(), time.process_time()
    async with App.start(directory, port=0) as app:
        seconds, cpu, compiled = time.perf_counter() - began, time.process_time() - used, counted[0]
        settle_memory()
        megabytes, triggers = rss_megabytes(os.getpid()), len(app.loaded.triggers)
        change, change_compiled = await _change(app, counted)
    return Started(
        seconds=seconds,
        cpu=cpu,
        compiled=compiled,
        triggers=triggers,
        megabytes=megabytes,
        change=change,
        change_compiled=change_compiled,
    )


def _count_compiled() -> list[int]:
    """A number that rises with each row that is compiled from now on."""
    counted, compile = [0], RowCompiler.compile

    def count(self: RowCompiler, row: Any, **given: Any) -> Any:
        counted[0] += 1
        return compile(self, row, **given)

    RowCompiler.compile = count  # type: ignore[method-assign]
    return counted


async def _fill(directory: Path, rows: int, location: str, counted: list[int]) -> Started:
    directory.joinpath("harken.yaml").write_text(MAIN.format(store=location))
    directory.joinpath("workflows").mkdir()
    directory.joinpath("workflows/hello.yaml").write_text(HELLO)
    credentials_of(directory).store_secret("hook", "a secret of many webhooks")
    loaded = load_directory(directory)
    opened = open_store(loaded.store, SystemClock())
    await opened.connect()
    try:
        return await _fill_store(opened.store, loaded, rows, counted)
    finally:
        await opened.store.close()


async def _fill_store(store: Store, loaded: Loaded, rows: int, counted: list[int]) -> Started:
    await store.open(loaded.definitions())
    for begin in range(0, rows, AT_ONCE):
        changes = [change for number in range(begin, min(begin + AT_ONCE, rows)) for change in _row(number)]
        await store.change([*changes, DocumentChange(kind=TRIGGER_LOG, name=CHANGES, value={"recent": []})])
    began, used = time.perf_counter(), time.process_time()
    whole = await TriggerRows(store).load(loaded)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    # its feeds are due later: what is measured is the start, and not the reads after it
    await store.open(whole.definitions(starting=True))
    return Started(seconds=seconds, cpu=cpu, compiled=counted[0], triggers=len(whole.triggers), megabytes=0.0)


def _row(number: int) -> list[DocumentChange]:
    id, name = f"00000000-0000-4000-8000-{number:012d}", f"trigger-{number}"
    value = {"id": id, "name": name, "created_at": LONG_AGO, "updated_at": LONG_AGO, **_given(number)}
    return [
        DocumentChange(kind=TRIGGER_ROW, name=id, value=value),
        DocumentChange(kind=TRIGGER_NAME, name=name, value=id),
    ]


def _given(number: int) -> dict[str, Any]:
    """Webhooks, schedules and feeds in turn; every other row brings steps of its own."""
    steps = {"steps": [{"id": "say", "action": "transform", "set": {"text": f"hello {number}"}}]}
    workflow: Any = "hello" if number % 2 else steps
    if number % 3 == 0:
        return {
            "provider": "webhook",
            "config": {"secret": "${secret:hook}"},
            "condition": f"event.n == {number}",
            "workflow": workflow,
        }
    if number % 3 == 1 or number > 3 * SHARING:
        # at night, so that none is due while we measure
        return {"provider": "schedule", "config": {"cron": f"{number % 60} 3 1 1 *"}, "workflow": workflow}
    return {"provider": "feed", "config": "all", "condition": f"event.n == {number}", "workflow": workflow}


async def _change(app: App, counted: list[int]) -> tuple[float, int]:
    """Processor seconds for the change of one row, until it works, and how many rows were compiled for it."""
    costs: list[float] = []
    compiled = counted[0]
    for number in range(CHANGED):
        used = time.process_time()
        await app.operator.call("triggers.edit", name="trigger-1", condition=f"event.n == {number}", match="*")
        costs.append(time.process_time() - used)
    return sorted(costs)[len(costs) // 2], (counted[0] - compiled) // CHANGED


if __name__ == "__main__":
    answer(Asked, take)
