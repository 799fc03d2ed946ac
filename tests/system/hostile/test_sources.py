"""A source that lies gets a record with a reason, and harms nobody else."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.hostile.misbehaving_server import Source, never_ends, says, started, until, write

pytestmark = [pytest.mark.process, pytest.mark.worker_group("hostile-sources")]

MAIN = "store: harken.db\nintegrations:\n  shop: {kind: json, allow_private_networks: true}\nfeeds:\n"
FEED = '  {name}: {{integration: shop, interval: 1s, page_timeout: {wait}s, query: {{url: "{url}/{name}"{more}}}}}\n'
REASONS = {
    "garbage": "not HTTP",
    "page": "not JSON",
    "stream": "more than 32,000,000 bytes",
    "chunks": "more than 32,000,000 bytes",
    "bomb": "more than 32,000,000 bytes",
    "metadata": "never allowed",
    "circle": "redirects more than 5 times",
    "itself": "read already",
    "same": "the same page again and again",
    "silent": "gave no page within",
}
# whoever says too much is given the time to say it
WAIT = {"silent": 3}
PAGING = {"itself": ", items_path: items, paging: {next: next}", "same": ", paging: {page: {}}"}


async def _silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


def _lie(source: Source) -> None:
    async def garbage(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\xff garbage \r\n\r\n" * 100)

    source.answers = {
        "/garbage": garbage,
        "/page": says(b"<html>log in</html>"),
        "/stream": never_ends(piece=b" " * 65536),
        "/chunks": never_ends("Transfer-Encoding: chunked", piece=b"10000\r\n" + b" " * 65536 + b"\r\n"),
        "/bomb": says(gzip.compress(b" " * 200_000_000, 1), "200 OK", "Content-Encoding: gzip"),
        "/metadata": says(b"", "302 Found", "Location: http://169.254.169.254/latest/"),
        "/circle": says(b"", "302 Found", "Location: /circle"),
        "/itself": says(json.dumps({"items": [{"id": "a"}], "next": "/itself"}).encode()),
        "/same": says(b'[{"id": "a"}, {"id": "b"}]'),
        "/silent": _silence,
        "/good": says(b'[{"id": "a"}]'),
    }


def _memory_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1000


async def test_each_lie_is_recorded_with_its_reason_and_the_good_feed_goes_on(tmp_path: Path) -> None:
    async with Source.serve() as source:
        _lie(source)
        names = [*REASONS, "good"]
        feeds = "".join(
            FEED.format(name=name, url=source.url, more=PAGING.get(name, ""), wait=WAIT.get(name, 60)) for name in names
        )
        write(tmp_path, MAIN + feeds, **{name: f"trigger: {{feed: {name}}}\n" for name in names})
        async with started(tmp_path) as harken:

            async def told() -> Any:
                feeds = {feed["name"]: feed for feed in (await harken.ask("/api/feeds"))[2]["items"]}
                return feeds if all(feeds[name]["error"] for name in REASONS) else None

            found = await until(told)
            wrong = {
                name: found[name]["error"] for name, reason in REASONS.items() if reason not in found[name]["error"]
            }
            assert wrong == {}
            before = source.asked["/good"]

            async def read_again() -> bool:
                return source.asked["/good"] > before

            await until(read_again)
            assert found["good"]["error"] == ""
            assert _memory_mb(harken.process.pid) < 450
            assert "Traceback" not in harken.log


TORN = rb'[{"id": "one"}, {"id": "torn \ud83d", "n": 1e400, "v": NaN, "big": 12345678901234567890123}, {"id": "two"}]'


async def test_one_torn_item_does_not_hide_those_beside_it(tmp_path: Path) -> None:
    async with Source.serve() as source:
        source.answers["/torn"] = says(b"[]")
        write(
            tmp_path, MAIN + FEED.format(name="torn", url=source.url, more="", wait=10), torn="trigger: {feed: torn}\n"
        )
        async with started(tmp_path) as harken:

            async def read() -> bool:
                return source.asked.get("/torn", 0) > 1

            async def ran() -> Any:
                runs = await harken.runs("torn")
                return runs if len(runs) == 3 else None

            await until(read)
            source.answers["/torn"] = says(TORN)
            runs = await until(ran)
            assert {key for run in runs for key in run["event_keys"]} == {"one", "torn \ufffd", "two"}


async def test_our_own_token_is_written_nowhere(tmp_path: Path) -> None:
    token = "tok3n-5ecret-abcdef"
    async with Source.serve() as source:
        source.answers["/echo"] = says(f'{{"error": "bad token {token}"}}'.encode(), "500 Oops")
        query = f'{{url: "{source.url}/echo?key=${{TOKEN}}", headers: {{Authorization: "Bearer ${{TOKEN}}"}}}}'
        main = f"{MAIN}  echo: {{integration: shop, interval: 1s, query: {query}}}\n"
        write(tmp_path, main, echo="trigger: {feed: echo}\n")
        async with started(tmp_path, TOKEN=token) as harken:

            async def failed() -> bool:
                return bool((await harken.ask("/api/feeds/echo"))[2]["error"])

            await until(failed)
            asked = ("/api/feeds/echo", "/api/triggers/echo", "/api/triggers/echo/explain", "/api/status", "/health")
            answers = [str(await harken.ask(path)) for path in asked]
            files = [path.read_bytes() for path in tmp_path.glob("harken.*")]
    assert not [answer for answer in answers if token in answer]
    assert not [file for file in files if token.encode() in file]
