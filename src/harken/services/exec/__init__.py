"""A poller in any language: a program that Harken starts and calls with JSON-RPC over stdio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec
from pydantic import Field, SecretStr, field_validator

from harken.errors import NeedsAttention, RetryLater
from harken.event import Event
from harken.kit import QueryModel
from harken.kit.subprocesses import Program, secrets_in
from harken.kit.values_from_payload import instant
from harken.services.exec.rpc import RpcClient, expect_shape
from harken.services.exec.tools_listed_by_program import discover
from harken.source import Batch, Cursor, Host, Plugin, Tool

__all__ = ["Query", "StdioPoller", "plugin"]

# below the engine's limit for a page: a slower answer is awaited by the next polls
PATIENCE_SECONDS = 5.0


class Query(QueryModel):
    """Which program to run, and its configuration."""

    command: list[str] = Field(min_length=1, description="the program and its arguments; no shell is used")
    env: dict[str, SecretStr] = Field(default_factory=dict, description="variables for the program; never shown again")
    config: dict[str, Any] = Field(default_factory=dict, description="passed to the program with initialize")
    timeout: float = Field(60.0, gt=0, le=3600, description="seconds for one answer; then the program is ended")
    restart: Literal["after_failure", "after_read"] = Field(
        "after_failure", description="after_read: a new process for every read; else it runs until it fails"
    )

    @field_validator("command")
    @classmethod
    def _is_program(cls, value: list[str]) -> list[str]:
        if not value[0].strip() or any("\0" in word for word in value):
            raise ValueError("must begin with a program, and hold no NUL")
        return value

    def program(self, host: Host) -> Program:
        env = {name: value.get_secret_value() for name, value in self.env.items()}
        secrets = frozenset([*secrets_in(env), *secrets_in(self.config)])
        return Program(command=tuple(self.command), env=env, directory=host.directory, secrets=secrets)

    def client(self, host: Host) -> RpcClient:
        return RpcClient(self.program(host), host, timeout=self.timeout, config=self.config)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    id: str | int
    data: Any = None
    state: str | int | float | bool | None = None
    occurred_at: str | int | float | None = None
    type: str = "exec.item"


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `poll_tick`."""

    items: list[Item]
    cursor: Any = None
    more: bool = False


class StdioPoller:
    """Calls the program in the background, so that an answer may take longer than the engine waits for a page."""

    def __init__(self, query: Query, host: Host) -> None:
        self._query = query
        self._name = query.program(host).name
        self._client = query.client(host)
        self._ticking: asyncio.Task[Batch] | None = None
        self._from: Cursor = None

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        if self._ticking is not None and self._from != cursor:
            await self._cancel()
        if self._ticking is None:
            self._from = cursor
            self._ticking = asyncio.create_task(self._tick(cursor, since), name=f"tick {self._name}")
        ticking = self._ticking
        done, _ = await asyncio.wait({ticking}, timeout=PATIENCE_SECONDS)
        if not done:
            return Batch(cursor=cursor, more=True)
        self._ticking = None
        if ticking.cancelled():
            raise RetryLater(f"{self._name} was stopped before it answered")
        return ticking.result()

    async def aclose(self) -> None:
        """Ask the program to shut down, then end it."""
        await self._cancel()
        await self._client.shutdown()

    async def _cancel(self) -> None:
        ticking, self._ticking = self._ticking, None
        if ticking is not None:
            ticking.cancel()
            await asyncio.wait({ticking})

    async def _tick(self, cursor: Cursor, since: datetime) -> Batch:
        answer = await self._client.request("poll_tick", {"cursor": cursor, "since": since.isoformat()})
        ticked = expect_shape(answer, TickResult, self._name, "poll_tick")
        if ticked.more and ticked.cursor == cursor:
            fix = "Let it move the cursor, or say more: false"
            raise NeedsAttention(f"{self._name} answered more: true without moving the cursor", fix=fix)
        events = [_event(item, self._name) for item in ticked.items]
        if not ticked.more and self._query.restart == "after_read":
            await self._client.shutdown()
        return Batch(events=events, cursor=ticked.cursor, more=ticked.more)


def _event(item: Item, name: str) -> Event:
    when = None if item.occurred_at is None else instant(item.occurred_at)
    if item.occurred_at is not None and when is None:
        fix = "Write RFC 3339, such as 2026-01-05T09:00:00Z"
        raise NeedsAttention(f"{name} gave an item an occurred_at that is not a time", fix=fix)
    if item.id == "":
        raise NeedsAttention(f"{name} gave an item an empty id", fix="The id has to name the object")
    data: Any = {} if item.data is None else item.data if isinstance(item.data, dict) else {"value": item.data}
    state = (
        item.state if item.state is None or isinstance(item.state, str) else msgspec.json.encode(item.state).decode()
    )
    return Event(
        subject=str(item.id), type=item.type or "exec.item", data={"id": item.id, **data}, state=state, occurred_at=when
    )


async def _discover(query: Query, account: object, host: Host) -> Mapping[str, Tool]:
    return await discover(lambda: query.client(host), query.program(host).name)


def _source(query: Query, account: object, host: Host) -> StdioPoller:
    return StdioPoller(query, host)


plugin = Plugin(
    kind="exec",
    summary="A poller in any language, as a program that speaks JSON-RPC over stdio",
    docs="reference/services/exec.md",
    query=Query,
    source=_source,
    discover=_discover,
    identity="change",
)
