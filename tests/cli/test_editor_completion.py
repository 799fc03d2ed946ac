"""A real language server, the one that most editors use, completes and checks our files with the schema."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from harken.cli.root import run
from tests.downloads.node_programs import command

SERVER = "yaml-language-server"


class Editor:
    """Speaks the language server protocol, as an editor does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._number = 0
        self.diagnostics: dict[str, list[Any]] = {}

    async def send(self, method: str, params: Any, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        body = json.dumps(message if number is None else {**message, "id": number}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await self._in.drain()

    async def ask(self, method: str, params: Any) -> Any:
        self._number += 1
        number = self._number
        await self.send(method, params, number)
        while True:
            message = await self.receive()
            if message.get("id") == number and "method" not in message:
                return message["result"]

    async def receive(self) -> Any:
        head = await self._out.readuntil(b"\r\n\r\n")
        length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))[15:])
        message = json.loads(await self._out.readexactly(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:
            wanted = message["method"] == "workspace/configuration"
            answer = [None] * len(message["params"]["items"]) if wanted else None
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}).encode()
            self._in.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await self._in.drain()
        return message

    async def open(self, uri: str, text: str) -> None:
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        await self.send("textDocument/didOpen", {"textDocument": document})

    async def completions(self, uri: str, line: int, character: int) -> set[str]:
        params = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
        found = await self.ask("textDocument/completion", params)
        items = found["items"] if isinstance(found, dict) else found or []
        return {item["label"] for item in items}


async def editing(schema: Path, text: str, line: int, character: int) -> tuple[set[str], list[str]]:
    """What is offered at this place of a file, and what the server says is wrong in it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command(SERVER), "--stdio", stdin=pipe, stdout=pipe)
    try:
        async with asyncio.timeout(120):
            editor = Editor(process)
            await editor.ask("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": {}})
            await editor.send("initialized", {})
            uri = (schema.parent / "x.yaml").as_uri()
            await editor.open(uri, f"# yaml-language-server: $schema={schema.as_uri()}\n{text}")
            offered = await editor.completions(uri, line + 1, character)
            while uri not in editor.diagnostics:
                await editor.receive()
            return offered, [one["message"] for one in editor.diagnostics[uri]]
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    assert run(["config", "schema", "--write", str(tmp_path)]) == 0
    return tmp_path / "workflow.schema.json"


async def test_keys_of_a_trigger_are_offered(schema: Path) -> None:
    offered, _ = await editing(schema, "name: x\ntrigger:\n  \nsteps: []\n", 2, 2)
    assert {"poll", "webhook", "schedule", "condition", "gather"} <= offered


async def test_actions_and_their_parameters_are_offered(schema: Path) -> None:
    offered, _ = await editing(schema, "name: x\nsteps:\n  - action: \n", 2, 12)
    assert {"http", "notify", "slack.post"} <= offered
    offered, _ = await editing(schema, "name: x\nsteps:\n  - action: http\n    \n", 3, 4)
    assert {"url", "headers", "retry"} <= offered


async def test_fields_of_a_query_are_offered_by_its_service(schema: Path) -> None:
    text = "name: x\ntrigger:\n  poll:\n    integration: rss\n    query:\n      \nsteps: []\n"
    offered, _ = await editing(schema, text, 5, 6)
    assert "feed_url" in offered


async def test_what_does_not_exist_is_marked(schema: Path) -> None:
    _, wrong = await editing(schema, "name: x\nsteps:\n  - action: http\n    metod: GET\n", 3, 4)
    assert any("metod" in message for message in wrong)
    _, wrong = await editing(schema, "name: x\nsteps:\n  - action: http\n    url: https://x.example\n", 3, 4)
    assert wrong == []
