"""A server on loopback that sends exactly the bytes of a test, and a scripted DNS resolver."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp.abc import AbstractResolver, ResolveResult

Answer = Callable[["Asked"], bytes]


class Asked:
    """One request as it arrived."""

    def __init__(self, head: str, body: bytes) -> None:
        first, *lines = head.split("\r\n")
        self.method, self.target, _ = first.split(" ", 2)
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body


class Server:
    """Answers every request with the bytes that `answer` returns, and records the requests."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.arrived = asyncio.Event()
        self.connections = 0
        self.answer: Answer = lambda _: reply(200)
        self.after: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None
        self.port = 0
        self.scheme = "http"

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip()
                size = int(Asked(head, b"").headers.get("content-length", "0"))
                asked = Asked(head, await reader.readexactly(size))
                self.asked.append(asked)
                self.arrived.set()
                answer = self.answer(asked)
                writer.write(answer)
                await writer.drain()
                if self.after is not None:
                    await self.after(writer)
                if b"Connection: close" in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Dns(AbstractResolver):
    """Has a list of answers for each name: every query takes the next one, and the last one is repeated."""

    def __init__(self, **names: list[list[str]]) -> None:
        self.names = {name.replace("_", "."): answers for name, answers in names.items()}
        self.questions = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.questions += 1
        answers = self.names[host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [found(host, address, port) for address in answer]

    async def close(self) -> None:
        pass


def found(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)


def reply(status: int, body: bytes = b"", length: bool = True, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}"] * length
    return "\r\n".join([*lines, "", ""]).encode() + body


async def start(server: Server, tls: ssl.SSLContext | None = None) -> asyncio.Server:
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    server.scheme = "https" if tls else "http"
    return listening
