"""A JSON service that notes when each feed was read, on as many loopback hosts as there shall be credentials.

It speaks in lines of JSON: its port first; then `{"news": true}` for a new item at each read, `"reads"` for how many
there were, and `{"moment": …, "feeds": …}` for how long after a moment that many feeds had been read.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_right
from collections import Counter
from typing import Any

import msgspec

from harken.app.http_protocol import Connections
from harken.app.inbound_connection_limits import Limits
from harken.app.server import Listener, bind

__all__ = ["HOSTS", "After", "Source", "main"]

HOSTS = tuple(f"127.0.0.{number}" for number in range(1, 17))
JSON = (b"content-type", b"application/json")


class After(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from a moment to the first read, and until so many feeds had been read; None: not yet."""

    first: float | None
    caught_up: float | None


class Source:
    def __init__(self) -> None:
        self.news = False
        self.reads = 0
        self._seen: dict[str, list[float]] = {}
        self._shown: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = self.answer(scope["path"], time.time())
        headers = [JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def answer(self, path: str, now: float) -> bytes:
        self.reads += 1
        self._seen.setdefault(path, []).append(now)
        self._shown[path] += self.news
        # without news the last item is shown again, so that there is something to recognise
        number = self._shown[path]
        return msgspec.json.encode([{"id": f"{path}-{number}", "title": "something"}] if number else [])

    def after(self, moment: float, feeds: int) -> After:
        """What was read after the moment: anything at all, and that many feeds, each once."""
        reads = sorted(at for times in self._seen.values() if (at := _first_after(times, moment)) is not None)
        return After(
            first=reads[0] - moment if reads else None,
            caught_up=reads[feeds - 1] - moment if 0 < feeds <= len(reads) else None,
        )


def _first_after(times: list[float], moment: float) -> float | None:
    found = bisect_right(times, moment)
    return times[found] if found < len(times) else None


async def _serve() -> None:
    source = Source()
    # whoever measures may connect as often as it likes
    connections = Connections(Limits(connections=100_000))
    first = Listener(source, bind(HOSTS[0], 0), connections)
    listeners = [first, *(Listener(source, bind(host, first.port), connections) for host in HOSTS[1:])]
    for listener in listeners:
        await listener.start()
    _say(first.port)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        _say(_obey(source, msgspec.json.decode(line)))


def _obey(source: Source, wish: Any) -> Any:
    if wish == "reads":
        return source.reads
    if "news" in wish:
        source.news = wish["news"]
        return "so be it"
    return source.after(**wish)


def _say(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    import uvloop

    uvloop.run(_serve())


if __name__ == "__main__":
    main()
