"""Where a controller listens, what it serves there, and the file in which it says so."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import aiohttp
import pytest

from harken.app import App, open_offline
from harken.app.application import Role, not_reading
from harken.cli.client import find
from harken.errors import Misconfigured
from harken.operate.controller_file import drop_run_file, write_run_file
from tests.servers.ports import free_port
from tests.system.kill.outside_world import HOOKS, signed

HOOK = "/webhooks/generic/hooks"


async def test_a_port_of_their_own_serves_webhooks_and_nothing_else(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "hooks.yaml").write_text(f"name: hooks\ntrigger: {{{HOOKS}}}\nsteps: []\n")
    (tmp_path / "harken.yaml").write_text(f"server: {{webhook_port: {port}}}\n")
    async with App.start(tmp_path, port=0) as app, aiohttp.ClientSession() as session:
        urls = (app.url, f"http://127.0.0.1:{port}")
        body, headers = signed("a")
        posts = [(await session.post(url + HOOK, data=body, headers=headers)).status for url in urls]
        gets = [(await session.get(url + "/health/ready")).status for url in urls]
    # the second is known already
    assert posts == [202, 200]
    assert gets == [200, 404]


@pytest.mark.parametrize(("settings", "host"), [("", "0.0.0.0"), ("server: {require_tokens: true}\n", "127.0.0.1")])
async def test_where_tokens_are_needed_nothing_starts_without_one(tmp_path: Path, settings: str, host: str) -> None:
    (tmp_path / "harken.yaml").write_text(settings)
    with pytest.raises(Misconfigured, match=r"does not listen on .* without tokens.*harken tokens create"):
        async with App.start(tmp_path, host=host, port=0):
            pass


async def test_on_another_address_tokens_are_needed_and_commands_beside_the_store_have_one(tmp_path: Path) -> None:
    (tmp_path / "harken.yaml").write_text("server: {hosts: [harken.internal]}\n")
    async with open_offline(tmp_path, write=True) as offline:
        token = (await offline.call("tokens.create", name="laptop", role="viewer"))["token"]
    async with App.start(tmp_path, host="0.0.0.0", port=0) as app, aiohttp.ClientSession() as session:
        url = f"{app.url}/api/triggers"
        sent: list[dict[str, str]] = [{}, {"Authorization": f"Bearer {token}"}]
        sent += [{**sent[1], "Host": "harken.internal"}, {**sent[1], "Host": "other.internal"}]
        statuses = [(await session.get(url, headers=headers)).status for headers in sent]
        beside = await asyncio.to_thread(find, tmp_path)
        assert beside is not None
        answer = await asyncio.to_thread(beside.call, "triggers.list", {})
    assert statuses == [401, 200, 200, 421]
    assert answer["items"] == []


def test_the_run_file_says_who_and_where_and_goes_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "harken.db.run.json"
    write_run_file(path, "http://127.0.0.1:9091", shared=False)
    assert json.loads(path.read_bytes()) == {"pid": os.getpid(), "url": "http://127.0.0.1:9091"}
    assert path.stat().st_mode & 0o777 == 0o600
    drop_run_file(path)
    assert not path.exists()


def test_the_run_file_of_another_process_stays(tmp_path: Path) -> None:
    path = tmp_path / "harken.db.run.json"
    path.write_text(json.dumps({"pid": os.getpid() + 1, "url": "http://127.0.0.1:9091"}))
    drop_run_file(path)
    assert path.exists()


def test_only_on_a_shared_store_the_run_file_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "read-only" / "harken.db.run.json"
    write_run_file(path, "http://127.0.0.1:9091", shared=True)
    with pytest.raises(FileNotFoundError):
        write_run_file(path, "http://127.0.0.1:9091", shared=False)


@pytest.mark.parametrize(
    ("role", "shared", "behind", "state"),
    [
        ("run", True, "", "disabled"),
        ("all", True, "", "up"),
        ("all", True, "another generation", "degraded"),
        ("ingest", False, "", "degraded"),
    ],
)
def test_without_a_lease_it_depends_on_the_others_how_we_are(role: Role, shared: bool, behind: str, state: str) -> None:
    assert not_reading(role, shared, behind)[0] == state
