"""The network between each replica and the store, which can be cut so that nothing comes through and nobody is told."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from ipaddress import IPv4Network
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.downloads import skip_or_fail
from tests.downloads.debian import environment, program

__all__ = ["Direct", "Namespace", "Proxies", "Proxy", "Scissors", "Wires"]

CHUNK = 1 << 16
CLONE_NEWNET = 0x40000000
NETWORKS = IPv4Network("198.18.0.0/15")


class Wires(Protocol):
    """A way to the store for each replica."""

    def url(self, replica: int) -> str: ...


class Scissors(Wires, Protocol):
    """Wires that can be cut."""

    def cut(self, replica: int) -> None: ...

    def mend(self, replica: int) -> None: ...


class Direct:
    """Nothing in between, and nothing to cut."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, replica: int) -> str:
        return self._url


class Proxy:
    """Passes everything on. While it is cut it reads and writes nothing, but all connections stay open."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._join(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        from_store, to_store = await asyncio.open_connection(*self._target)
        try:
            ways = [
                asyncio.ensure_future(self._pass(reader, to_store)),
                asyncio.ensure_future(self._pass(from_store, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            # the end of a connection is news as well, which does not come through a cut
            await self._whole.wait()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            to_store.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._whole.wait()
            writer.write(data)
            await writer.drain()


class Proxies:
    """A proxy for each replica: this needs no rights."""

    def __init__(self, url: str, proxies: list[Proxy]) -> None:
        self._url = url
        self._proxies = proxies

    @classmethod
    @asynccontextmanager
    async def to(cls, url: str, replicas: int) -> AsyncIterator[Proxies]:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        async with AsyncExitStack() as stack:
            proxies = [Proxy(parts.hostname, parts.port) for _ in range(replicas)]
            for proxy in proxies:
                await stack.enter_async_context(proxy.serve())
            yield cls(url, proxies)

    def url(self, replica: int) -> str:
        return _readdressed(self._url, "127.0.0.1", self._proxies[replica].port)

    def cut(self, replica: int) -> None:
        self._proxies[replica].cut()

    def mend(self, replica: int) -> None:
        self._proxies[replica].mend()


class Namespace:
    """A network of its own for the store, with an address for each replica: iptables drops the packets of one of them.

    Everything is done inside of it, so that the machine's own rules stay as they are. This needs to be root.
    """

    def __init__(self, replicas: int) -> None:
        mark = secrets.token_hex(4)
        self.name = f"harken-{mark}"
        self._outer, self._inner = f"hk{mark}a", f"hk{mark}b"
        # those that are meant for tests of networks
        self._net = secrets.choice(list(NETWORKS.subnets(new_prefix=28)))
        self._replicas = replicas
        self._ip, self._iptables = program("iproute2"), program("iptables")

    @classmethod
    @contextmanager
    def made(cls, replicas: int) -> Iterator[Namespace]:
        """Skip the test, with the reason, where this machine does not let us."""
        if os.getuid() != 0:
            skip_or_fail(
                "cutting the network with namespaces and iptables needs root; the proxies are cut all the same"
            )
        namespace = cls(replicas)
        try:
            namespace._make()
            yield namespace
        finally:
            namespace._run_ip("link", "delete", namespace._outer, check=False)
            namespace._run_ip("netns", "delete", namespace.name, check=False)

    def address(self, replica: int) -> str:
        return str(self._net[replica + 2])

    def use(self, url: str) -> None:
        self._url = url

    def url(self, replica: int) -> str:
        port = urlsplit(self._url).port
        assert port
        return _readdressed(self._url, self.address(replica), port)

    def cut(self, replica: int) -> None:
        self._rule("-A", replica)

    def mend(self, replica: int) -> None:
        self._rule("-D", replica)

    def inside(self, work: Callable[[], Any]) -> None:
        """Do it in the namespace: what is started there stays there."""
        failed: list[BaseException] = []

        def enter_and_work() -> None:
            try:
                with Path(f"/run/netns/{self.name}").open() as namespace:
                    # of this thread only
                    assert ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET) == 0
                work()
            except BaseException as error:
                failed.append(error)

        thread = Thread(target=enter_and_work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def _make(self) -> None:
        outer, inner = self._outer, self._inner
        try:
            self._run_ip("netns", "add", self.name)
            self._run_ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
            self._drop("-L", "INPUT")
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", b"").decode(errors="replace").strip() or error
            skip_or_fail(f"this machine makes no network namespace with veth and iptables: {why}")
        self._run_ip("address", "add", f"{self._net[1]}/28", "dev", outer)
        self._run_ip("link", "set", outer, "up")
        for replica in range(self._replicas):
            self._run_ip("-n", self.name, "address", "add", f"{self.address(replica)}/28", "dev", inner)
        for device in ("lo", inner):
            self._run_ip("-n", self.name, "link", "set", device, "up")

    def _rule(self, how: str, replica: int) -> None:
        self._drop(how, "INPUT", "-d", self.address(replica), "-j", "DROP")
        self._drop(how, "OUTPUT", "-s", self.address(replica), "-j", "DROP")

    def _drop(self, *words: str) -> None:
        extensions = _extensions(self._iptables.parents[1] / "lib")
        self._run_ip("netns", "exec", self.name, str(self._iptables), "-w", *words, env=extensions)

    def _run_ip(self, *words: str, check: bool = True, env: Mapping[str, str] = MappingProxyType({})) -> None:
        """Run `ip`, in an environment in which what it executes finds its libraries too."""
        surroundings = [environment(each) for each in (self._ip, self._iptables)]
        libraries = ":".join(filter(None, (each.get("LD_LIBRARY_PATH") for each in surroundings)))
        own = {**surroundings[0], **({"LD_LIBRARY_PATH": libraries} if libraries else {}), **env}
        subprocess.run([self._ip, *words], check=check, env=own, capture_output=True, timeout=30)


def _extensions(libraries: Path) -> dict[str, str]:
    found = sorted(libraries.glob("**/xtables"))
    return {"XTABLES_LIBDIR": str(found[0])} if found else {}


def _readdressed(url: str, host: str, port: int) -> str:
    parts = urlsplit(url)
    who = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{who}@{host}:{port}").geturl()
