"""Small services and directories for the tests of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from harken.config.findings import Finding
from harken.config.loaded import Loaded
from harken.config.loader import load
from harken.errors import Misconfigured
from harken.schedule import Missed
from harken.source import Plugin


class Forbid(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class JsonQuery(Forbid):
    url: str
    method: Literal["GET", "POST"] = "GET"
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    items_path: str = ""
    max_per_tick: int = 20
    allow_private_networks: bool = False


class CronQuery(Forbid):
    cron: str = ""
    every: float | None = None
    at: str | None = None
    tz: str = "UTC"
    missed: Missed = "coalesce"


class PagerAccount(Forbid):
    token: SecretStr
    base_url: str = "https://api.pager.example"


class PagerQuery(BaseModel):
    """Ignores unknown keys, as a careless author would have it."""

    user_id: str | None = None
    services: list[str] = Field(default_factory=list)
    statuses: list[Literal["triggered", "acknowledged", "resolved"]] = Field(default_factory=list)


class HookQuery(Forbid):
    secret: SecretStr | None = None
    header: str = "x-signature"


class Built:
    def __init__(self, query: Any, account: Any, host: Any) -> None:
        self.query, self.account, self.host = query, account, host

    async def poll(self, cursor: Any, since: Any) -> Any: ...

    async def receive(self, request: Any) -> Any: ...


PLUGINS: Mapping[str, Plugin] = MappingProxyType(
    {
        "json": Plugin(kind="json", query=JsonQuery, source=Built, aliases=("webhook_poll",)),
        "cron": Plugin(kind="cron", query=CronQuery, source=Built, floor_seconds=1.0, first="deliver"),
        "webhook": Plugin(kind="webhook", webhook_query=HookQuery, webhook=Built),
        "pagerduty": Plugin(
            kind="pagerduty",
            account=PagerAccount,
            query=PagerQuery,
            source=Built,
            identity="transition",
            environment={"PAGERDUTY_TOKEN": "token"},
        ),
    }
)


def accept(_source: str) -> None:
    """Takes any condition or template but those that say bad."""
    if "bad" in _source:
        raise Misconfigured("it does not compile", fix="Write something else")


def write(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).lstrip("\n").encode())
    return directory


def read(directory: Path, files: Mapping[str, str | bytes], **more: Any) -> Loaded:
    write(directory, files)
    given = {
        "plugins": PLUGINS,
        "environ": {},
        "check_condition": accept,
        "check_template": accept,
        "check_key": accept,
        **more,
    }
    return load(directory, **given)


def lines(findings: tuple[Finding, ...]) -> list[str]:
    return [str(finding) for finding in findings]


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def workflow(
    name: str, trigger: str = "schedule: '0 9 * * *'", steps: str = "- {id: one, action: llm, prompt: hi}"
) -> str:
    return f"name: {name}\ntrigger: {{{trigger}}}\nsteps:\n  {steps}\n"


def poll(url: str = "https://api.example/items", rest: str = "") -> str:
    return f"poll: {{integration: json, query: {{url: '{url}'}}{', ' + rest if rest else ''}}}"
