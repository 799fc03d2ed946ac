"""The whole engine on virtual time, without its door: for tests of a service from its configuration to its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harken.app import App
from harken.app.store import opened_store
from harken.backends.sqlite import SqliteStore
from harken.clock import Clock
from harken.config.loaded import Loaded
from harken.operate.load_and_check_configuration import load_directory
from harken.timings import Timings


def write(directory: Path, main: str, **workflows: str) -> None:
    """The configuration, and the workflows by the names of their files."""
    (directory / "workflows").mkdir(exist_ok=True)
    (directory / "harken.yaml").write_text(main, "utf-8")
    for name, text in workflows.items():
        (directory / "workflows" / f"{name}.yaml").write_text(text, "utf-8")


@asynccontextmanager
async def running(
    directory: Path,
    clock: Clock,
    environ: Mapping[str, str] | None = None,
    *,
    timings: Timings = Timings(),
) -> AsyncIterator[App]:
    """Started on a configuration without findings, and stopped at the end of the block."""
    async with started(load_directory(directory, environ or {}), clock, timings=timings) as app:
        yield app


@asynccontextmanager
async def started(loaded: Loaded, clock: Clock, *, timings: Timings = Timings()) -> AsyncIterator[App]:
    """The same, of what has been loaded already."""
    assert [str(finding) for finding in loaded.findings] == []
    store = SqliteStore.at(loaded.directory / "harken.db", clock, inline=True)
    app = App(loaded, opened_store(store), clock, timings=timings)
    await app.begin()
    yield app
    await app.stop()
    await app.store.close()


async def occurrences(app: App) -> list[str]:
    """The keys that workflows ran for, each once, all runs being done."""
    runs: list[Any] = (await app.operator.call("runs.list", limit=1000))["items"]
    assert {run["status"] for run in runs} <= {"done"}, [run["error"] for run in runs]
    keys: list[str] = [key for run in runs for key in run["event_keys"]]
    assert len(keys) == len(set(keys)), "each occurrence once"
    return keys


async def fired(app: App, mark: str = "@") -> Counter[str]:
    """How often workflows ran for each thing: in the key of an occurrence its name is what comes before the mark."""
    return Counter(key.partition(mark)[0] for key in await occurrences(app))
