"""`respond: when_done`: the sender of a webhook gets the outputs of its workflow, from whichever replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harken.app import App
from tests.servers.redis import RedisServer
from tests.system.fleet.replica_processes import until

SAYS = "steps: [{id: say, action: transform, set: {text: 'hello {{.trigger.event.name}}'}}]\n"
OUTPUTS = "outputs: {text: '{{.steps.say.output.text}}'}\n"
FAILS = "steps: [{id: ask, action: http, url: 'http://127.0.0.1:9/', retry: {max_attempts: 1}}]\n"


def hook(more: str = "", trigger: str = "") -> str:
    query = f"id: hello, scheme: none, allow_unsigned: true, id_field: id, respond: when_done{more}"
    return f"name: hello\ntrigger:\n  webhook: {{{query}}}\n{trigger}"


def write(directory: Path, workflow: str, settings: str = "") -> Path:
    (directory / "workflows").mkdir(parents=True)
    (directory / "workflows" / "hello.yaml").write_text(workflow)
    (directory / "harken.yaml").write_text(settings)
    return directory


@asynccontextmanager
async def started(directory: Path, **options: Any) -> AsyncIterator[App]:
    async with App.start(directory, port=0, **options) as app:
        yield app


async def send(app: App, id: str = "a", **more: Any) -> tuple[int, Any, Mapping[str, str]]:
    async with aiohttp.ClientSession() as session:
        reply = await session.post(f"{app.url}/webhooks/generic/hello", json={"id": id, "name": "you", **more})
        return reply.status, await reply.json(), reply.headers


async def test_the_outputs_are_the_answer_and_a_repeat_gets_them_again(tmp_path: Path) -> None:
    async with started(write(tmp_path, hook() + SAYS + OUTPUTS)) as app:
        first = await send(app)
        second = await send(app, name="another")
        page = await app.store.runs()
    assert first[:2] == second[:2] == (200, {"text": "hello you"})
    assert [run.id for run in page.items] == [first[2]["Harken-Run"]] == [second[2]["Harken-Run"]]


async def test_a_run_that_fails_is_500_without_its_reason(tmp_path: Path) -> None:
    async with started(write(tmp_path, hook(trigger="  max_attempts: 1\n") + FAILS)) as app:
        status, answer, headers = await send(app)
    assert (status, answer["error"], answer["run"]) == (500, "the run did not succeed", headers["Harken-Run"])
    assert "127.0.0.1" not in str(answer)


async def test_after_the_time_limit_the_run_can_be_looked_up(tmp_path: Path) -> None:
    waits = "steps: [{id: ok, action: approve, prompt: 'Really?'}]\n"
    async with started(write(tmp_path, hook(", respond_within: 100ms") + waits)) as app:
        status, answer, headers = await send(app)
        async with aiohttp.ClientSession() as session:
            shown = await (await session.get(app.url + headers["Location"])).json()
    assert (status, answer["status"]) == (202, "waiting")
    assert headers["Location"] == answer["look"] == f"/api/runs/{answer['run']}"
    assert shown["id"] == answer["run"]


async def test_what_the_condition_filters_has_no_run(tmp_path: Path) -> None:
    async with started(write(tmp_path, hook(trigger="  condition: event.name == 'me'\n") + SAYS)) as app:
        status, answer, _ = await send(app)
    assert (status, answer) == (202, {"run": None, "status": "filtered"})


async def test_a_held_run_is_answered_at_once(tmp_path: Path) -> None:
    budget = "  budget: {runs_per_hour: 1}\n"
    async with started(write(tmp_path, hook(", respond_within: 5m", trigger=budget) + SAYS)) as app:
        assert (await send(app))[0] == 200
        status, answer, _ = await send(app, "b")
    assert (status, answer["status"], answer["held"]) == (202, "held", "budget")


async def is_waiting(app: App) -> bool:
    return bool((await app.store.counts()).get("runs_waiting"))


async def test_a_stop_answers_those_who_wait(tmp_path: Path) -> None:
    waits = "steps: [{id: ok, action: approve, prompt: 'Really?'}]\n"
    async with started(write(tmp_path, hook(", respond_within: 5m") + waits)) as app:
        waiting = asyncio.create_task(send(app))
        await until(lambda: is_waiting(app), 10, lambda: "no run waits")
        assert not waiting.done()
    status, answer, _ = await waiting
    assert (status, answer["status"]) == (202, "waiting")


async def test_another_replica_may_execute_the_run(tmp_path: Path) -> None:
    with RedisServer(appendonly="yes", appendfsync="always") as server:
        settings = f"store: {server.url()}\n"
        here, there = (write(tmp_path / name, hook() + SAYS + OUTPUTS, settings) for name in ("a", "b"))
        async with started(here, role="ingest") as taking, started(there, role="run") as executing:
            status, answer, _ = await send(taking)
            assert (status, answer) == (200, {"text": "hello you"})
            assert (taking.worker.done, executing.worker.done) == (0, 1)


@pytest.mark.parametrize("name", ["a", "b"])
async def test_nothing_is_answered_with_outputs_unless_asked_for(tmp_path: Path, name: str) -> None:
    plain = (hook() + SAYS + OUTPUTS).replace(", respond: when_done", ", respond: at_once" * (name == "b"))
    async with started(write(tmp_path, plain)) as app:
        status, answer, headers = await send(app)
    assert (status, answer) == (202, {"accepted": 1, "duplicate": 0})
    assert "Harken-Run" not in headers
