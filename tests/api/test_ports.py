"""Where a controller listens, what it serves there, and the file in which it says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import aiohttp
import pytest

from harken.app import App
from harken.app.application import Role, not_reading
from harken.errors import Misconfigured
from harken.operate.run_file import drop_run_file, write_run_file
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


async def test_the_api_listens_on_loopback_alone(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"does not listen on 0\.0\.0\.0.*webhook_host may be any address"):
        async with App.start(tmp_path, host="0.0.0.0", port=0):
            pass


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
