"""The settings of harken.yaml that belong to the process: where it listens, what it keeps, whom it may call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from harken.config.validate import Invalid, Strict
from harken.durations import parse_duration
from harken.errors import Misconfigured

__all__ = [
    "Agent",
    "Duration",
    "Http",
    "Log",
    "Metrics",
    "Models",
    "Price",
    "Provider",
    "Queue",
    "Retention",
    "Server",
    "Services",
    "Settings",
    "Steps",
    "store_location",
]

DAY = 86_400.0


def _written(value: object) -> float:
    if isinstance(value, (int, float)):
        raise Invalid("a duration needs a unit", f"Write {value}s for seconds or {value}m for minutes")
    try:
        return parse_duration(value)
    except Misconfigured as error:
        raise Invalid(error.message, error.fix) from None


Duration = Annotated[float, BeforeValidator(_written)]
"""Seconds, written as `30s`, `5m` or `1h30m`."""

Port = Annotated[int, Field(ge=0, le=65_535)]


class Server(Strict):
    """Where the API, the pages and the webhooks listen. Webhooks share the listener unless they have their own."""

    host: str = "127.0.0.1"
    port: Port = 9091
    webhook_host: str | None = None
    webhook_port: Port | None = None


class Metrics(Strict):
    enabled: bool = True


class Log(Strict):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"


class Retention(Strict):
    """How long records are kept."""

    events: Duration = 30 * DAY
    runs: Duration = 30 * DAY
    ticks: Duration = 7 * DAY


class Http(Strict):
    """How other machines are called."""

    proxy: str | None = None
    ca_bundle: str | None = None
    client_cert: str | None = None


class Provider(Strict):
    """An account at a model provider, or any server that speaks OpenAI's language."""

    api_key: SecretStr | None = None
    base_url: str | None = None


class Price(Strict):
    """Dollars for a million tokens."""

    input: float = Field(ge=0, le=1_000_000)
    output: float = Field(ge=0, le=1_000_000)


class Models(Strict):
    """Tiers and what they stand for, as provider:model. `echo` is the offline stand-in."""

    default: str | None = None
    fast: str | None = None
    balanced: str | None = None
    strategic: str | None = None
    providers: dict[str, Provider] = Field(default_factory=dict)
    prices: dict[str, Price] = Field(default_factory=dict)


class Steps(Strict):
    allow_shell: bool = False


class Services(Strict):
    """What services may do on this machine."""

    allow_programs: bool = False


class Queue(Strict):
    max_parallel_jobs: int = Field(default=4, ge=1, le=1_024)
    shutdown_grace_seconds: float = Field(default=30.0, ge=0, le=3_600)
    consume_block_seconds: float = Field(default=5.0, gt=0, le=60)


class Agent(Strict):
    queue: Queue = Queue()


class Settings(Strict):
    """All of them; each section has its defaults when it is left out."""

    server: Server = Server()
    store: str | None = None
    metrics: Metrics = Metrics()
    log: Log = Log()
    retention: Retention = Retention()
    http: Http = Http()
    models: Models = Models()
    steps: Steps = Steps()
    services: Services = Services()
    agent: Agent = Agent()

    @field_validator("store")
    @classmethod
    def _one_store(cls, value: str | None) -> str | None:
        scheme, separator, _ = (value or "").partition("://")
        if separator and scheme in ("postgresql", "postgres", "redis", "rediss"):
            raise Invalid(f"this version has no {scheme} store yet", "Name a file; without store: it is harken.db")
        if separator and scheme != "sqlite":
            raise Invalid(f"there is no {scheme} store", "Name a file, or sqlite:///path/to/harken.db")
        return value

    @field_validator("models", mode="before")
    @classmethod
    def _short_models(cls, value: Any) -> Any:
        return {"default": value} if isinstance(value, str) else value


def store_location(settings: Settings, directory: Path) -> str:
    """The store's file: absolute, and beside harken.yaml unless it says otherwise."""
    name = (settings.store or "harken.db").removeprefix("sqlite://")
    return str((directory / os.path.expanduser(name)).absolute())
