"""moto: SQS, SNS and IAM on loopback, in a process that can be stopped, frozen and started again with its messages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import Request, urlopen

import boto3

from tests.servers.directory import START_SECONDS, ServerDirectory
from tests.servers.moto_process import COUNT_SECONDS, REGION
from tests.servers.ports import free_port

__all__ = ["COUNT_SECONDS", "REGION", "MotoServer"]

ROOT = Path(__file__).parents[2]


class MotoServer:
    """Started by `with`."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._directory = ServerDirectory("moto", durable=False)
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: dict[tuple[str, str, str], Any] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.thaw()
            self._process.kill()
            self._process.wait(120)
        self._directory.remove()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.servers.moto_process", str(self.port)]
        with (self._directory.path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._directory.path / "queues")], cwd=ROOT, stdout=log, stderr=log
            )
        self._wait(self._process)

    def stop(self) -> None:
        """Stop it; the next start has the same messages."""
        assert self._process
        self._process.terminate()
        self._process.wait(120)
        self._process = None

    def freeze(self) -> None:
        assert self._process
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        os.kill(self._process.pid, signal.SIGCONT)

    def require_signatures(self, *, after: int = 0) -> None:
        """Check the key and signature of every request from now on, but for so many at first."""
        headers = {"Content-Type": "text/plain"}
        request = Request(f"{self.url}/moto-api/reset-auth", str(after).encode(), headers, method="POST")
        with urlopen(request, timeout=60):
            pass

    def client(self, service: str, key: str = "test", secret: str = "test") -> Any:
        """Amazon's own client, as the other hand. It takes a tenth of a second to make: one for all tests."""
        name = (service, key, secret)
        if name not in self._clients:
            self._clients[name] = boto3.client(
                service,
                endpoint_url=self.url,
                region_name=REGION,
                aws_access_key_id=key,
                aws_secret_access_key=secret,
            )
        return self._clients[name]

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            with suppress(URLError, OSError), urlopen(f"{self.url}/moto-api/data.json", timeout=10):
                return
            time.sleep(0.05)
        raise AssertionError(f"moto did not start: {(self._directory.path / 'log').read_text('utf-8')[-2000:]}")
