"""A real NATS server with JetStream on loopback, in a directory that is removed with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.ports import free_port

__all__ = ["NatsServer"]

PROGRAM = Path(sys.executable).parent / "nats-server"


class NatsServer:
    """Started by `with`; its data survives a restart. `settings` is added to its configuration."""

    password = "p@ss-of-nats"

    def __init__(self, settings: str = "") -> None:
        self.port = free_port()
        self.directory = ServerDirectory("nats")
        self.settings = settings or f'authorization {{ user: harken, password: "{self.password}" }}'
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()
        self.directory.remove()

    def start(self) -> None:
        text = f"""
            listen: "127.0.0.1:{self.port}"
            jetstream {{ store_dir: "{self.directory.path}/data", max_memory_store: 100MB, max_file_store: 500MB }}
            max_payload: 2MB
            {self.settings}
        """
        config = self.directory.write("nats.conf", text)
        with (self.directory.path / "log").open("ab") as log:
            options = self.directory.options(os.environ)
            self._process = subprocess.Popen([PROGRAM, "-c", config], **options, stdout=log, stderr=log)
        self._wait(self._process)

    def stop(self) -> None:
        assert self._process
        self.thaw()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)
        self._process = None

    def freeze(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                    if probe.recv(5).startswith(b"INFO"):
                        return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"nats-server did not start: {(self.directory.path / 'log').read_text()[-2000:]}")
