"""A real Redis on loopback, in a directory that is removed with it."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

from redis import ConnectionError, Redis

from tests.downloads.debian import environment, program
from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["RedisServer"]

PASSWORD = "p@ss/wörd-of-redis"


class RedisServer:
    """Started by `with`; it requires a password. It can be stopped, killed and started again in between.

    `settings` are directives of its configuration. With `appendonly` its data survives a restart.
    """

    password = PASSWORD

    def __init__(self, **settings: str) -> None:
        self.port = free_port()
        self._settings = {"appendonly": "no", "appendfsync": "always", **settings}
        self._directory = ServerDirectory("redis")
        self._program = program("redis-server")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()
        self._directory.remove()

    def start(self, **settings: str) -> None:
        """Start it with these directives, which also apply to later starts."""
        self._settings.update({name.replace("_", "-"): value for name, value in settings.items()})
        directives = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self._directory.path), "save": '""'}
        directives |= {"requirepass": f'"{self.password}"', "masterauth": f'"{self.password}"', **self._settings}
        config = self._directory.write("redis.conf", "".join(f"{name} {value}\n" for name, value in directives.items()))
        with (self._directory.path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, config], **self._directory.options(environment(self._program)), stdout=log, stderr=log
            )
        self._wait(self._process)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server, so that nothing more is written, as in a crash."""
        self._end(signal.SIGKILL)

    def url(self, database: int = 0) -> str:
        return f"redis://:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{database}"

    def files(self) -> list[Path]:
        """The append-only files."""
        return [
            path for path in self._directory.path.rglob("*") if path.is_file() and path.name.startswith("appendonly")
        ]

    def wait_for_its_primary(self) -> None:
        """Return once this replica is connected to its primary."""
        with Redis.from_url(self.url()) as client:
            until = time.monotonic() + START_SECONDS
            while client.info("replication")["master_link_status"] != "up" and time.monotonic() < until:
                time.sleep(0.02)

    @classmethod
    def of_a_cluster(cls) -> Self:
        return cls(**{"cluster-enabled": "yes", "cluster-port": str(free_port())})

    def hold_all_for(self, other: RedisServer) -> None:
        """Return once the two form a cluster in which this server has all slots."""
        with Redis.from_url(self.url()) as holder, Redis.from_url(other.url()) as client:
            holder.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.port, self._settings["cluster-port"])
            until = time.monotonic() + START_SECONDS
            while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")) and time.monotonic() < until:
                time.sleep(0.02)

    def _end(self, signal_: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(signal_)
        self._process.wait(120)
        self._process = None

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            with Redis.from_url(self.url()) as client, suppress(ConnectionError):
                # refused while it loads its data
                client.ping()
                return
            time.sleep(0.02)
        raise AssertionError(f"redis-server did not start: {(self._directory.path / 'log').read_text('utf-8')[-2000:]}")
