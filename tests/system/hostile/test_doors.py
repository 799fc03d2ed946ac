"""Senders, browser pages, terminals and signals."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.system.hostile.misbehaving_server import HOOK, started, types, until, write

pytestmark = [pytest.mark.process, pytest.mark.worker_group("hostile-doors")]

WIDE = "trigger: {webhook: {id: wide, scheme: none, allow_unsigned: true, id_field: id, max_bytes: 3000000}}\n"
SIGNED = "trigger: {webhook: {id: signed, secret: s3cret, id_field: id}}\n"
JSON = {"Content-Type": "application/json"}
PLAIN = {"Content-Type": "text/plain"}


async def test_senders_and_pages_get_the_answers_they_deserve(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK, wide=WIDE, signed=SIGNED)
    async with started(tmp_path) as harken:
        same = await asyncio.gather(*(harken.hook("same") for _ in range(50)))
        assert sorted(same) == [200] * 49 + [202]
        [run] = await harken.runs("hook")
        assert run["workflow"] == "hook"
        large = b'{"id": "large", "pad": "%b"}' % (b"x" * 2_000_000)
        posts = {
            ("hook", large): 413,
            ("wide", large): 202,
            ("hook", rb'{"id": "torn \ud83d"}'): 202,
            ("hook", b'{"id": "deep", "d": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"): 400,
            ("hook", b"hello"): 400,
            ("signed", b'{"id": "1"}'): 401,
            ("nobody", b"{}"): 404,
        }
        got = {(to, body): (await harken.ask(f"/webhooks/generic/{to}", body))[0] for to, body in posts}
        assert got == posts
        pages = [
            (await harken.ask("/api/status", Host="evil.example"))[0],
            (await harken.ask("/api/status", Origin="http://evil.example"))[0],
            (await harken.ask("/api/reload", b"{}", **PLAIN))[0],
            (await harken.ask("/api/triggers/..%2f..%2fetc%2fpasswd"))[0],
        ]
        assert pages == [421, 403, 415, 404]
        huge = "9" * 30
        asked = [f"/api/events/{huge}", f"/api/events?before={huge}", f"/api/runs?before={huge}", "/api/events?limt=1"]
        assert [(await harken.ask(path))[0] for path in asked] == [400] * 4
        far = await harken.ask("/api/triggers/hook/test", b'{"lookback": 1e300}', **JSON)
        tail = await harken.ask("/api/events/tail", None, **{"Last-Event-ID": huge})
        assert (far[0], tail[0]) == (409, 400)
        assert "Traceback" not in harken.log


async def test_one_controller_per_store_and_the_next_one_starts_at_once(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    begun = time.monotonic()
    async with started(tmp_path) as first:
        start_seconds = time.monotonic() - begun
        code, _, err = await types(tmp_path, "start", "--port", "0")
        assert (code, "another Harken process" in err) == (1, True)
        first.process.kill()
        await first.process.wait()
        began = time.monotonic()
        async with started(tmp_path) as second:
            # whoever waited for the lease of the dead would need 30 s
            assert time.monotonic() - began < 25 + start_seconds
            assert await second.hook("a") == 202
            second.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert await second.process.wait() == 0
            # runs in flight would get 30 s, and there are none
            assert time.monotonic() - began < 25 + start_seconds


async def test_a_typo_keeps_the_old_version_until_it_is_mended(tmp_path: Path) -> None:
    write(tmp_path, hook=HOOK)
    async with started(tmp_path) as harken:
        path = tmp_path / "workflows" / "hook.yaml"
        good = path.read_text()
        path.write_text(good.replace("transform", "transfrm"))
        differs = await harken.json("diff")
        assert "Did you mean" in str(differs).replace("did", "Did")

        async def refused() -> bool:
            return "hook" in next(
                part["reason"] for part in (await harken.ask("/health"))[2]["subsystems"] if part["name"] == "config"
            )

        harken.process.send_signal(signal.SIGHUP)
        await until(refused)
        assert await harken.hook("meanwhile") == 202
        path.write_text(good)
        harken.process.send_signal(signal.SIGHUP)

        async def mended() -> bool:
            return not await refused()

        await until(mended)
        assert len(await harken.runs("hook")) == 1


async def test_a_place_that_cannot_be_used_is_named_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(10))
    code, _, err = await types(file, "status")
    assert (code, str(file) in err, "fault of Harken" in err, "Traceback" in err) == (1, True, False, False)
