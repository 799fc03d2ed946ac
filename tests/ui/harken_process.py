"""A real `harken start` on a port of its own, with webhooks that a test sends and workflows that work or fail."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.forked_harken import ForkedHarken
from tests.servers.ports import free_port

__all__ = ["HarkenProcess"]

FILES = {
    "harken.yaml": "metrics: {enabled: false}\n",
    "workflows/deploys.yaml": """
name: deploys
trigger:
  webhook: {id: deploys, scheme: none, allow_unsigned: true, id_field: id}
  condition: event.service == "checkout"
steps:
  - id: note
    action: transform
    set: {text: "{{.trigger.event.service}} was deployed"}
""",
    "workflows/broken.yaml": """
name: broken
trigger:
  webhook: {id: broken, scheme: none, allow_unsigned: true, id_field: id}
steps:
  - id: number
    action: transform
    set: {number: "{{index .trigger.event.numbers 5}}"}
""",
}


class HarkenProcess:
    """`start` again after `stop` is the same installation at the same address."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: ForkedHarken | None = None

    def write(self, files: dict[str, str] | None = None) -> None:
        for name, text in (files or FILES).items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    async def start(self) -> None:
        args = ["--config", str(self.directory), "start", "--port", str(self.port)]
        log = self.directory / "log.txt"
        with log.open("ab") as errors:
            self._process = await ForkedHarken.start(args, os.environ, stderr=errors.fileno())
        said = b""
        while b"ready at" not in said:
            line = await self._process.stdout.readline()
            said += line
            assert line, said.decode() + log.read_text()

    async def stop(self) -> None:
        """Kill it, as a machine does that goes down."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it hang: its connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def send(self, webhook: str, **event: Any) -> None:
        """Deliver an event to a webhook; it is stored when this returns."""
        await self.call("POST", f"/webhooks/generic/{webhook}", event)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await asyncio.to_thread(self._call, method, path, body)

    def _call(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")
