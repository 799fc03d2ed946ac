"""Whatever goes wrong, our tokens stand in no file, log or answer: searched for in the raw bytes."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.credentials.parcel_server import Depot, install
from tests.system.hostile.misbehaving_server import PATIENCE, Harken, started, types, until

pytestmark = [pytest.mark.process, pytest.mark.worker_group("hostile-secrets")]

STORED, GIVEN, WRITTEN = "st0red/5ecret+token=aaaa", "g1ven-5ecret-token-bbbb", "wr1tten-5ecret-token-cccc"
USER = "ada@example.org"
KEY = "the-0perators-own-key-dddd"
PATHS = (
    "/api/status", "/api/doctor", "/api/diff", "/api/config/check", "/api/triggers", "/api/feeds", "/api/events",
    "/api/runs", "/api/dead", "/api/workflows", "/api/integrations", "/api/models", "/health", "/health/ready",
)  # fmt: skip

MAIN = """\
integrations:
  written: {{kind: parcel, user: {user}, token: '${{WRITTEN_TOKEN}}', base_url: '{url}', allow_private_networks: true}}
"""
WORKFLOW = """\
name: {name}
trigger:
  poll: {{integration: {account}, interval: 1s, query: {{allow_private_networks: true}}}}
steps:
{steps}"""
NOTE = "  - {{id: noted, action: {account}.note, text: hi}}\n"
ECHO = """\
  - id: echo
    action: http
    url: '{url}/echo'
    headers: {{Authorization: 'Basic ${{BASIC_TOKEN}}', X-Token: '${{WRITTEN_TOKEN}}'}}
    allow_private_networks: true
"""


def forms(token: str) -> list[bytes]:
    """The token as it might turn up: as it is, in an address, in Basic auth."""
    basic = base64.b64encode(f"{USER}:{token}".encode()).decode()
    bare = base64.b64encode(f":{token}".encode()).decode()
    return [form.encode() for form in (token, quote(token, safe=""), basic, bare)]


NEEDLES = [form for token in (STORED, GIVEN, WRITTEN, KEY) for form in forms(token)]


def leaks(where: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    return [(name, needle) for name, content in where for needle in NEEDLES if needle in content]


def files(directory: Path) -> list[tuple[str, bytes]]:
    return [(str(path), path.read_bytes()) for path in directory.rglob("*") if path.is_file()]


class House:
    """Three accounts, one for each place where a credential may come from, and a depot for each."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.directory = tmp_path / "site"
        self.depots = {"stored": Depot(), "parcel": Depot(), "written": Depot()}
        for depot, token in zip(self.depots.values(), (STORED, GIVEN, WRITTEN), strict=True):
            depot.token = token
        self.env: dict[str, str] = {}

    async def furnish(self) -> None:
        (self.directory / "workflows").mkdir(parents=True)
        (self.tmp_path / "token").write_text(STORED)
        self.env = {
            "PYTHONPATH": str(install(self.tmp_path)),
            "HOME": str(self.tmp_path / "home"),
            "HARKEN_KEYRING": "off",
            "HARKEN_ENCRYPTION_KEY": "",
            "PARCEL_TOKEN": GIVEN,
            "PARCEL_USER": USER,
            "PARCEL_BASE_URL": self.depots["parcel"].url,
            "WRITTEN_TOKEN": WRITTEN,
            "BASIC_TOKEN": base64.b64encode(f":{WRITTEN}".encode()).decode(),
        }
        main = MAIN.format(user=USER, url=self.depots["written"].url)
        (self.directory / "harken.yaml").write_text(main)
        for account in self.depots:
            steps = NOTE.format(account=account) if account != "parcel" else ""
            steps += ECHO.format(url=self.depots["written"].url)
            text = WORKFLOW.format(name=f"w-{account}", account=account, steps=steps)
            (self.directory / "workflows" / f"{account}.yaml").write_text(text)

    async def configure(self) -> tuple[int, str, str]:
        where = ("--base-url", self.depots["stored"].url, "--allow-private-networks", "--user", USER)
        token = ("--token", f"@{self.tmp_path}/token")
        return await types(
            self.directory, "integrations", "parcel", "configure", "--name", "stored", *token, *where, env=self.env
        )

    def parcel_arrives(self) -> None:
        for depot in self.depots.values():
            note = f"we were sent {depot.token}"
            depot.parcels.append({"key": "PRJ-1", "at": time.time(), "note": note, "token": depot.token})


async def all_done(harken: Harken) -> Any:
    runs = (await harken.ask("/api/runs"))[2]["items"]
    return runs if len(runs) == 3 and all(run["status"] in ("done", "failed", "dead") for run in runs) else None


async def answers(harken: Harken) -> list[tuple[str, bytes]]:
    """Everything that the API says."""
    found = [(path, str(await harken.ask(path)).encode()) for path in PATHS]
    for section in ("events", "runs"):
        for item in (await harken.ask(f"/api/{section}"))[2]["items"]:
            path = f"/api/{section}/{item['id']}"
            found.append((path, str(await harken.ask(path)).encode()))
    for feed in (await harken.ask("/api/feeds"))[2]["items"]:
        found.append((feed["name"], str(await harken.ask(f"/api/feeds/{feed['name']}")).encode()))
    for name in ("stored", "parcel", "written"):
        for path in (f"/api/triggers/w-{name}", f"/api/triggers/w-{name}/explain"):
            found.append((path, str(await harken.ask(path)).encode()))
        for path in (
            f"/api/integrations/{name}/test",
            f"/api/integrations/{name}/whoami",
            f"/api/triggers/w-{name}/test",
        ):
            posted = await harken.ask(path, b"{}", **{"Content-Type": "application/json"})
            found.append((path, str(posted).encode()))
    return found


async def test_no_token_is_written_or_said_whatever_fails(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with AsyncExitStack() as stack:
        for depot in house.depots.values():
            await stack.enter_async_context(depot.serve())
        await house.furnish()
        said = [await house.configure()]
        assert said[0][0] == 0, said
        harken = await stack.enter_async_context(started(house.directory, **house.env))
        await until(lambda: _read_once(house))
        house.parcel_arrives()
        runs = await until(lambda: all_done(harken))
        assert {run["status"] for run in runs} == {"done"}
        found = await answers(harken)
        house.depots["stored"].rude, house.depots["parcel"].rude, house.depots["written"].rude = 401, 418, 500
        failing = await until(lambda: _failing(harken))
        found += await answers(harken)
        for name in house.depots:
            said += [await harken.types("integrations", name, verb) for verb in ("test", "whoami")]
            said.append(await harken.types("triggers", "test", f"w-{name}"))
        said.append(await harken.types("integrations", "list"))
        found += [("terminal", str(words).encode()) for words in said]
        running = files(house.directory)
        harken.process.terminate()
        async with asyncio.timeout(PATIENCE):
            await harken.process.wait()
    assert leaks(found) == []
    assert leaks(running) == []
    assert leaks(files(house.directory)) == []
    assert leaks(files(tmp_path / "home")) == []
    assert any("bad token *** in Basic" in feed["error"] for feed in failing)
    assert any(b'"key": "PRJ-1"' in content.replace(b"'", b'"') for _, content in found)


async def _read_once(house: House) -> bool:
    return all(depot.seen for depot in house.depots.values())


async def _failing(harken: Harken) -> Any:
    feeds = [feed for feed in (await harken.ask("/api/feeds"))[2]["items"] if feed["kind"] == "parcel"]
    return feeds if all(feed["error"] for feed in feeds) else None


async def test_a_wrong_key_stops_only_what_needs_the_stored_account(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with AsyncExitStack() as stack:
        for depot in house.depots.values():
            await stack.enter_async_context(depot.serve())
        await house.furnish()
        house.env["HARKEN_ENCRYPTION_KEY"] = KEY
        assert (await house.configure())[0] == 0
        before = files(house.directory / "harken.db.secrets")
        house.env["HARKEN_ENCRYPTION_KEY"] = "another-k3y-entirely"
        code, out, _ = await types(house.directory, "config", "check", env=house.env)
        assert code == 1
        assert "sealed with another key" in out
        assert "Set HARKEN_ENCRYPTION_KEY to the key" in out
        harken = await stack.enter_async_context(started(house.directory, **house.env))
        await until(lambda: _read_once_by_others(house))
        refused = {row["name"]: row["status"] == "refused" for row in await harken.json("triggers", "list")}
        assert refused == {"w-parcel": False, "w-stored": True, "w-written": False}
    assert files(house.directory / "harken.db.secrets") == before
    assert leaks(files(house.directory)) == []


async def _read_once_by_others(house: House) -> bool:
    return bool(house.depots["parcel"].seen and house.depots["written"].seen)
