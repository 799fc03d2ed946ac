"""A disk that is full or a database that is locked: nothing is acknowledged, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from tests.servers.ports import free_port
from tests.system.hostile.misbehaving_server import HOOK, Harken, launched, started, types, until, write

pytestmark = [pytest.mark.process, pytest.mark.worker_group("hostile-store")]


async def _keys(harken: Harken) -> list[str]:
    return sorted(key for run in await harken.runs("hook") for key in run["event_keys"])


def _store(health: Any) -> Any:
    return next(part for part in health["subsystems"] if part["name"] == "store")


async def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    async with started(tmp_path) as harken:
        assert await harken.hook("before") == 202
        harken.let_files_grow_to((tmp_path / "harken.db-wal").stat().st_size)
        answers = [await harken.hook(f"during-{n}") for n in range(20)]
        status, headers, _ = await harken.ask(
            "/webhooks/generic/hook", b'{"id": "during-20", "pad": "%b"}' % (b"x" * 9000)
        )
        assert (status, int(headers["Retry-After"]) > 0) == (503, True)
        assert (await harken.ask("/health/ready"))[0] == 503
        store = _store((await harken.ask("/health"))[2])
        assert (store["state"], bool(store["reason"])) == ("down", True)
        harken.let_files_grow_to(-1)
        assert await harken.hook("after") == 202
        assert _store((await harken.ask("/health"))[2])["state"] == "up"
        kept = [f"during-{n}" for n, answer in enumerate(answers) if answer == 202]

        async def all_ran() -> bool:
            return await _keys(harken) == sorted(["before", "after", *kept])

        await until(all_ran)
        assert (await harken.ask("/health/ready"))[0] == 200
        assert "store.down" in harken.log


async def test_a_locked_database_is_said_and_survived(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    async with started(tmp_path) as harken:
        other = apsw.Connection(str(tmp_path / "harken.db"))
        other.set_busy_timeout(30_000)  # the controller may just be writing something of its own
        other.execute("BEGIN IMMEDIATE")
        status, headers, answer = await harken.ask("/webhooks/generic/hook", b'{"id": "during"}')
        assert (status, int(headers["Retry-After"]) > 0) == (503, True)
        assert "another program" in answer["error"]
        assert "another program" in _store((await harken.ask("/health"))[2])["reason"]
        assert (await harken.ask("/health/ready"))[0] == 503
        other.execute("ROLLBACK")
        other.close()
        assert await harken.hook("after") == 202

        async def ran() -> bool:
            return await _keys(harken) == ["after"]

        await until(ran)


async def test_encryption_that_is_switched_on_leaves_no_plain_text(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    async with started(tmp_path) as harken:
        await harken.ask("/webhooks/generic/hook", b'{"id": "PLAIN-TEXT-1"}')
    key = "a long KEY-PHRASE of many words"
    async with started(tmp_path, HARKEN_ENCRYPTION_KEY=key) as harken:
        await harken.ask("/webhooks/generic/hook", b'{"id": "PLAIN-TEXT-2"}')
        assert len((await harken.ask("/api/events"))[2]["items"]) == 2
        files = [path.read_bytes() for path in tmp_path.glob("harken.db*")]
        assert not [file for file in files if b"PLAIN-TEXT" in file or b"KEY-PHRASE" in file]
        harken.process.terminate()
        await harken.process.wait()
    before = (tmp_path / "harken.db").read_bytes()
    wrong = await types(tmp_path, "events", "list", env={"HARKEN_ENCRYPTION_KEY": "another"})
    missing = await types(tmp_path, "start", env={"HARKEN_ENCRYPTION_KEY": ""})
    assert (wrong[0], "with another key" in wrong[2]) == (1, True)
    assert (missing[0], "is encrypted" in missing[2]) == (1, True)
    assert (tmp_path / "harken.db").read_bytes() == before


@pytest.mark.parametrize("names", [("harken.db",), ("harken.db-wal",), ("harken.db", "harken.db-wal", "harken.db-shm")])
async def test_a_store_whose_files_are_removed_does_not_go_on_saying_202(tmp_path: Path, names: Sequence[str]) -> None:
    write(tmp_path, hook=HOOK)
    async with started(tmp_path) as harken:
        assert await harken.hook("before") == 202
        for name in names:
            (tmp_path / name).unlink()

        async def down() -> bool:
            return bool(_store((await harken.ask("/health"))[2])["state"] == "down")

        await until(down)
        status, headers, answer = await harken.ask("/webhooks/generic/hook", b'{"id": "during"}')
        assert (status, int(headers["Retry-After"]) > 0) == (503, True)
        assert f"{names[0]} was removed" in answer["error"]
        assert (await harken.ask("/health/ready"))[0] == 503
        code, out, _ = await harken.types("doctor")
        assert (code, f"{names[0]} was removed" in out, "is writable" in out) == (1, True, False)
        code, _, err = await harken.types("store", "backup", str(tmp_path / "saved.db"))
        assert code == 0, err
        assert await harken.hook("later") == 503
        harken.process.terminate()
        assert await harken.process.wait() == 0
        assert "Traceback" not in harken.log
    code, _, err = await types(tmp_path, "store", "restore", str(tmp_path / "saved.db"))
    assert code == 0, err
    async with started(tmp_path) as harken:
        assert await harken.hook("after") == 202

        async def ran() -> bool:
            return await _keys(harken) == ["after", "before"]

        await until(ran)


async def test_a_start_that_would_make_a_new_store_beside_leftovers_stops_and_asks(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    async with started(tmp_path) as harken:
        assert await harken.hook("before") == 202
    (tmp_path / "harken.db").unlink()
    code, _, err = await types(tmp_path, "start", "--port", "0")
    assert (code, "left harken.db-wal, harken.db-shm, harken.db.lock and harken.db.run.json there" in err) == (1, True)
    assert "harken start --new-store" in err
    assert not (tmp_path / "harken.db").exists()
    async with started(tmp_path, "--new-store") as harken:
        assert await harken.hook("after") == 202
    assert (tmp_path / "harken.db.before-new-store-1-wal").stat().st_size > 0


@pytest.mark.parametrize("command", [("start", "--port", "0"), ("store", "check"), ("status",)])
async def test_a_damaged_file_is_no_fault_of_harken(tmp_path: Path, command: Sequence[str]) -> None:
    write(tmp_path, hook=HOOK)
    (tmp_path / "harken.db").write_bytes(b"no database at all" * 1000)
    code, _, err = await types(tmp_path, *command)
    assert code == 1
    assert "harken.db is damaged, or no database" in err
    assert "harken store restore" in err
    assert "fault of Harken" not in err


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
async def test_a_start_whose_store_neither_answers_nor_refuses_says_so(tmp_path: Path, scheme: str) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        write(tmp_path, f"store: {scheme}://harken:secret-word@{address}/0\n", hook=HOOK)
        port = free_port()
        async with launched(tmp_path, "--port", str(port)) as process:
            harken = Harken(tmp_path, process, f"http://127.0.0.1:{port}", {})
            store = _store(await _answer(harken))
            assert (store["state"], address in store["reason"]) == ("down", True)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(25):
                assert await process.wait() == 0
        assert "secret-word" not in harken.log


async def _answer(harken: Harken) -> Any:
    """What /health says, as soon as somebody listens."""

    async def answers() -> Any:
        try:
            return (await harken.ask("/health"))[2]
        except aiohttp.ClientConnectionError:
            return None

    return await until(answers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
async def test_a_start_that_waits_for_its_store_answers_health_and_stops_at_once(
    tmp_path: Path, scheme: str, number: signal.Signals
) -> None:
    away, port = free_port(), free_port()
    write(tmp_path, f"store: {scheme}://harken:secret-word@127.0.0.1:{away}/0\n", hook=HOOK)
    async with launched(tmp_path, "--port", str(port)) as process:
        harken = Harken(tmp_path, process, f"http://127.0.0.1:{port}", {})
        store = _store(await _answer(harken))
        assert store["state"] == "down"
        assert "until it answers" in store["reason"]
        assert "secret-word" not in store["reason"]
        assert (await harken.ask("/health/ready"))[0] == 503
        status, headers, _ = await harken.ask("/webhooks/generic/hook", b'{"id": "early"}')
        assert (status, int(headers["Retry-After"]) > 0) == (503, True)
        await asyncio.sleep(2)  # the pauses between the tries have become long
        process.send_signal(number)
        async with asyncio.timeout(25):
            assert await process.wait() == 0
        assert "Traceback" not in harken.log
