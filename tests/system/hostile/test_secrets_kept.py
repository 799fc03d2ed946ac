"""What is written down of a run, an event or a read holds none of our tokens, however they got into it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harken.app.redacting_services import RedactingPush, RedactingSource
from harken.app.source_and_action_factory import Factory
from harken.config.loaded import Loaded
from harken.errors import NeedsAttention
from harken.event import Event
from harken.feed import Feed
from harken.source import Batch, Cursor, Plugin, Request
from harken.testing import HandClock
from tests.system.hostile.misbehaving_server import NOTE, Harken, Source, says, started, types, until, write

TOKEN, OTHER = "t0k3n-Zq9x7Lm2Vb4c", "an0ther-Aa11Bb22Cc33"
NOW = datetime(2026, 1, 5, tzinfo=UTC)


class Echo:
    """Says our token back wherever it can, and remembers the cursors that it was asked with."""

    def __init__(self) -> None:
        self.asked: list[Cursor] = []

    def events(self) -> list[Event]:
        data = {"said": TOKEN, TOKEN: [TOKEN]}
        return [Event(subject=f"id-{TOKEN}", type=f"x.{TOKEN}", data=data, key=f"{TOKEN}/1", state=TOKEN)]

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        self.asked.append(cursor)
        return Batch(events=self.events(), cursor={"at": f"https://x.example/?token={TOKEN}&page=2"}, more=True)

    async def receive(self, request: Request) -> list[Event]:
        return self.events()


async def test_a_link_with_our_token_is_kept_without_it_and_followed_with_it() -> None:
    echo = Echo()
    source = RedactingSource(echo, lambda: {TOKEN, OTHER}, "json", "json")
    kept = (await source.poll(None, NOW)).cursor
    assert TOKEN not in json.dumps(kept)
    again = RedactingSource(echo, lambda: {OTHER, TOKEN}, "json", "json")
    assert (await again.poll(json.loads(json.dumps(kept)), NOW)).cursor == kept
    assert echo.asked == [None, {"at": f"https://x.example/?token={TOKEN}&page=2"}]


async def test_when_the_token_was_changed_meanwhile_the_read_begins_again() -> None:
    echo = Echo()
    kept = (await RedactingSource(echo, lambda: {TOKEN}, "json", "json").poll(None, NOW)).cursor
    await RedactingSource(echo, lambda: {OTHER}, "json", "json").poll(kept, NOW)
    assert echo.asked == [None, None]


async def test_a_server_cannot_ask_for_another_token_with_a_stand_in_of_its_own() -> None:
    echo = Echo()
    made_up = {"at": f"https://x.example/?token=***{'0' * 32}.0***"}
    await RedactingSource(echo, lambda: {TOKEN, OTHER}, "json", "json").poll(made_up, NOW)
    assert echo.asked == [None]


async def test_no_part_of_an_event_holds_a_token() -> None:
    read = (await RedactingSource(Echo(), lambda: {TOKEN}, "json", "json").poll(None, NOW)).events
    request = Request(headers={}, body=b"", received_at=NOW)
    pushed = await RedactingPush(Echo(), lambda: {TOKEN}).receive(request)
    expected = Event(subject="id-***", type="x.***", data={"said": "***", "***": ["***"]}, key="***/1", state="***")
    assert (list(read), pushed) == ([expected], [expected])


def test_a_plugin_that_breaks_before_it_reads_says_nothing_and_stops_nobody(tmp_path: Path) -> None:
    def broken(query: Any, account: Any, host: Any) -> Any:
        raise RuntimeError(f"cannot use {TOKEN}")

    factory = Factory(Loaded(directory=tmp_path), {"bad": Plugin(kind="bad", source=broken)}, HandClock(), Random(1))
    with pytest.raises(NeedsAttention, match="bad broke with RuntimeError") as told:
        factory.source(Feed(name="x", kind="bad", integration="bad", way="poll", query={}))
    assert TOKEN not in str(told.value)


HOOK = "name: hook\ntrigger: {webhook: {id: hook, scheme: none, allow_unsigned: true, id_field: id}}\n"
STEPS = """\
steps:
  - {{id: path, action: http, url: '{url}/hooks/${{MY_TOKEN}}', allow_private_networks: true, on_error: ignore}}
  - {{id: shell, action: shell, command: 'echo $X; exit 3', env: {{X: '${{MY_TOKEN}}'}}, on_error: ignore}}
  - {{id: words, action: shell, command: ['${{MY_TOKEN}}'], on_error: ignore}}
  - {{id: put, action: transform, set: {{auth: 'Bearer ${{MY_TOKEN}}'}}}}
  - {{id: ask, action: llm, prompt: 'use ${{MY_TOKEN}}'}}
  - {{id: tell, action: emit, type: told, data: {{x: '${{MY_TOKEN}}'}}}}
  - {{id: sub, action: workflow, workflow: below, inputs: {{t: '${{MY_TOKEN}}'}}}}
outputs: {{said: '${{MY_TOKEN}}'}}
"""
BELOW = "name: below\ninputs: {t: {default: x}}\nsteps:\n  - {id: x, action: transform, set: {y: '{{.inputs.t}}'}}\n"


def leaks(directory: Path, token: str) -> Sequence[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path.name for path in files if token.encode() in path.read_bytes()]


@pytest.mark.process
@pytest.mark.worker_group("hostile-secrets")
async def test_a_token_that_steps_pass_around_is_not_in_the_files(tmp_path: Path) -> None:
    async with Source.serve() as server:
        server.answers = {f"/hooks/{TOKEN}": says(b"", "500 Boom")}
        write(tmp_path, "store: harken.db\nsteps: {allow_shell: true}\nmodels: {default: echo}\n")
        (tmp_path / "workflows" / "hook.yaml").write_text(HOOK + STEPS.format(url=server.url))
        (tmp_path / "workflows" / "below.yaml").write_text(BELOW)
        async with started(tmp_path, MY_TOKEN=TOKEN) as harken:
            await harken.ask("/webhooks/generic/hook", json.dumps({"id": "1", "x": TOKEN}).encode())
            await until(lambda: all_done(harken))
            assert leaks(tmp_path, TOKEN) == []
            (run,) = [run for run in await harken.runs("hook") if run["workflow"] == "hook"]
            said = await harken.json("runs", "show", run["id"])
        assert said["output"] == {"said": "***"}
        assert {step["path"]: step["output"] for step in said["steps"]}["put"] == {"auth": "Bearer ***"}
        assert server.asked == {f"/hooks/{TOKEN}": 1}


async def all_done(harken: Harken) -> bool:
    runs = await harken.runs("hook")
    return len(runs) == 2 and all(run["status"] == "done" for run in runs)


@pytest.mark.process
@pytest.mark.worker_group("hostile-secrets")
async def test_what_was_kept_before_it_was_a_secret_is_not_told_without_a_controller(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "workflows" / "hook.yaml").write_text(HOOK + NOTE)
    async with started(tmp_path) as harken:
        await harken.ask("/webhooks/generic/hook", json.dumps({"id": "1", "x": TOKEN}).encode())
        (event,) = (await harken.ask("/api/events"))[2]["items"]
    (tmp_path / "workflows" / "uses.yaml").write_text(
        HOOK.replace(" hook", " uses") + "steps:\n  - {id: x, action: http, url: 'https://x.example/${MY_TOKEN}'}\n"
    )
    code, out, err = await types(tmp_path, "events", "show", str(event["id"]), "--json", env={"MY_TOKEN": TOKEN})
    assert (code, json.loads(out)["data"]["x"], TOKEN in err) == (0, "***", False)
