"""A GitHub that others wrote, on loopback: `emulate`, which remembers what is written to it."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.downloads.node_programs import command
from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["EmulatedGitHub"]


class EmulatedGitHub:
    """Started by `with`. `seed` is its configuration: tokens, users and repositories; see its README."""

    def __init__(self, seed: str) -> None:
        self._command = command("emulate")
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._seed = seed
        self._directory = ServerDirectory("emulate", durable=False)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        seed = self._directory.write("seed.yaml", self._seed)
        words = [*self._command, "start", "--service", "github", "--port", str(self._port), "--seed", str(seed)]
        env = {"PATH": str(Path(words[0]).parent), "HOME": str(self._directory.path)}
        with (self._directory.path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, **self._directory.options(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait(self._process)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(120)
        self._directory.remove()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5):
                return
            time.sleep(0.02)
        raise AssertionError(f"emulate did not start: {(self._directory.path / 'log').read_text('utf-8')[-2000:]}")
