"""The settings of the process in harken.yaml: server, store, log, retention, HTTP, models and limits."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from harken.config.model_validation import Invalid, Strict
from harken.durations import parse_duration
from harken.errors import Misconfigured

__all__ = [
    "Agent",
    "Duration",
    "Files",
    "Http",
    "LabelMap",
    "LabelPrefix",
    "Log",
    "Metrics",
    "Models",
    "NotifyBlock",
    "OnFailure",
    "OutcomeType",
    "OutcomeWebhook",
    "Price",
    "Provider",
    "Queue",
    "Retention",
    "Server",
    "Services",
    "Settings",
    "Steps",
    "Tracing",
    "is_url",
    "local_base",
    "store_extra",
    "store_location",
]

DAY = 86_400.0
SCHEMES = ("sqlite", "postgresql", "postgres", "redis", "rediss")


def _parse_duration_text(value: object) -> float:
    if isinstance(value, (int, float)):
        raise Invalid("a duration needs a unit", f"Write {value}s for seconds or {value}m for minutes")
    try:
        return parse_duration(value)
    except Misconfigured as error:
        raise Invalid(error.message, error.fix) from None


Duration = Annotated[float, BeforeValidator(_parse_duration_text)]
"""Seconds, written as `30s`, `5m` or `1h30m`."""

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,29}", re.ASCII)


def _check_prefix(value: str) -> str:
    prefix = value.strip().removesuffix(":")
    if not _PREFIX.fullmatch(prefix):
        fix = "Use up to 30 letters, digits, dots, dashes and underscores"
        raise Invalid("this cannot be the beginning of a label on every platform", fix)
    return prefix


LabelPrefix = Annotated[str, AfterValidator(_check_prefix)]
"""What the labels begin with by which a ticket shows where its run is: `harken` for `harken:done`."""

LabelMap = dict[Annotated[str, Field(min_length=1)], Annotated[str, Field(min_length=1)]]
"""The pipeline of each label, in the order in which they are tried."""

Port = Annotated[int, Field(ge=0, le=65_535)]


class Server(Strict):
    """Where the API, the pages and the webhooks listen. Webhooks share the listener unless they have their own."""

    host: str = "127.0.0.1"
    port: Port = 9091
    webhook_host: str | None = None
    webhook_port: Port | None = None
    max_connections: int = Field(default=512, ge=1, le=100_000)
    max_connections_per_address: int = Field(default=64, ge=1, le=100_000)
    head_timeout: Duration = Field(default=10.0, gt=0, le=600)
    body_timeout: Duration = Field(default=30.0, gt=0, le=600)
    proxies: list[str] = Field(default_factory=list)
    requests_per_minute: int = Field(default=6_000, ge=0)
    hosts: list[str] = Field(default_factory=list)
    require_tokens: bool = False

    @field_validator("proxies")
    @classmethod
    def _check_proxies(cls, value: list[str]) -> list[str]:
        for each in value:
            try:
                ip_network(each)
            except ValueError:
                fix = "Write an address such as 10.0.0.5, or a network such as 10.0.0.0/24"
                raise Invalid(f"{each} is neither an address nor a network", fix) from None
        return value


class Oidc(Strict):
    """Login of people at an identity provider by OpenID Connect. Without it, tokens are the only way."""

    issuer: str = Field(min_length=1)
    client_id: str = Field(min_length=1)
    client_secret: SecretStr | None = None
    redirect_uri: str = Field(min_length=1)
    scopes: list[str] = Field(default_factory=lambda: ["profile", "email"])
    role_claim: str = Field(default="groups", min_length=1)
    admins: list[str] = Field(default_factory=list)
    operators: list[str] = Field(default_factory=list)
    viewers: list[str] = Field(default_factory=list)
    owner_claim: str = ""
    session: Duration = Field(default=8 * 3600.0, ge=60, le=30 * DAY)
    allow_private: bool = False

    @field_validator("issuer", "redirect_uri")
    @classmethod
    def _check_address(cls, value: str) -> str:
        found = urlsplit(value)
        local = found.hostname in ("127.0.0.1", "::1", "localhost")
        if not found.hostname or (found.scheme != "https" and not (found.scheme == "http" and local)):
            raise Invalid(f"{value} is not an https address", "Logins go over TLS, except on this machine itself")
        return value

    @field_validator("redirect_uri")
    @classmethod
    def _check_callback(cls, value: str) -> str:
        if urlsplit(value).path != "/auth/callback":
            raise Invalid(f"{value} does not lead back to us", "It ends with /auth/callback")
        return value

    @model_validator(mode="after")
    def _check_roles(self) -> Oidc:
        if not (self.admins or self.operators or self.viewers):
            raise Invalid("nobody may log in", "Name values of the claim role_claim under admins, operators or viewers")
        return self


class Metrics(Strict):
    enabled: bool = True


class Tracing(Strict):
    """Where spans are sent: the address of an OpenTelemetry collector (OTLP over HTTP); none switches tracing off."""

    endpoint: str | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    service_name: str = Field(default="harken", min_length=1)
    sample: float = Field(default=1.0, ge=0, le=1)

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise Invalid("this is not a URL", "Write it like http://127.0.0.1:4318")
        return value


class Log(Strict):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"


class Retention(Strict):
    """How long records are kept, and how many of the last events of each outcome of a trigger stay, however old."""

    events: Duration = 30 * DAY
    runs: Duration = 30 * DAY
    ticks: Duration = 7 * DAY
    audit: Duration = 365 * DAY
    keep_last: int = Field(default=200, ge=0, le=10_000)


class Http(Strict):
    """How outgoing requests are made."""

    proxy: str | None = None
    ca_bundle: str | None = None
    client_cert: str | None = None


class Provider(Strict):
    """An account at a model provider, or any server with an API like OpenAI's."""

    api_key: SecretStr | None = None
    base_url: str | None = None


class Price(Strict):
    """Dollars for a million tokens."""

    input: float = Field(ge=0, le=1_000_000)
    output: float = Field(ge=0, le=1_000_000)


class Models(Strict):
    """The model of each tier, as provider:model. `echo` is the offline model that repeats its prompt."""

    default: str | None = None
    fast: str | None = None
    balanced: str | None = None
    strategic: str | None = None
    providers: dict[str, Provider] = Field(default_factory=dict)
    prices: dict[str, Price] = Field(default_factory=dict)


class Steps(Strict):
    """What steps may do on this machine. `workspaces` is where agents work; relative to harken.yaml."""

    allow_shell: bool = False
    allow_agents: bool = False
    allow_python: bool | Literal["network"] = False
    workspaces: str | None = None


class Services(Strict):
    """What services may do on this machine."""

    allow_programs: bool = False


class Queue(Strict):
    max_parallel_jobs: int = Field(default=4, ge=1, le=1_024)
    shutdown_grace_seconds: float = Field(default=30.0, ge=0, le=3_600)
    consume_block_seconds: float = Field(default=5.0, gt=0, le=60)


class Agent(Strict):
    queue: Queue = Queue()


class Files(Strict):
    """Directories outside that of harken.yaml, in which `${file:…}` and links of workflows/ may end."""

    allow: list[str] = Field(default_factory=list)


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class NotifyBlock(Strict):
    """Where a message goes: the integration or kind that sends it, and its address there."""

    channel: str = Field(min_length=1)
    to: Annotated[str, BeforeValidator(_as_text)] = Field(min_length=1)
    template: str = ""


class OnFailure(Strict):
    """Who is told of every trouble. `dead_in_a_row` is how many runs of a trigger die before it is one."""

    notify: NotifyBlock | None = None
    workflow: str | None = Field(default=None, min_length=1)
    dead_in_a_row: int = Field(default=3, ge=1, le=100)

    @model_validator(mode="after")
    def _check_one(self) -> OnFailure:
        if self.notify is not None and self.workflow is not None:
            raise Invalid("notify and workflow exclude each other", "Keep one; a workflow may have a notify step")
        return self


OutcomeType = Literal["run.failed", "run.recovered", "trigger.stale", "gap.found", "dead.added"]


class OutcomeWebhook(Strict):
    """A program elsewhere that is told how runs and triggers fare: the integration that signs, and its address."""

    name: str = Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    channel: str = Field(min_length=1)
    to: str = Field(min_length=1)
    types: list[OutcomeType] = Field(default_factory=lambda: list(get_args(OutcomeType)), min_length=1)


class Settings(Strict):
    """All sections; one that is left out has its defaults."""

    server: Server = Server()
    oidc: Oidc | None = None
    store: str | None = None
    shards: int | None = Field(default=None, ge=1, le=1_024)
    metrics: Metrics = Metrics()
    tracing: Tracing = Tracing()
    log: Log = Log()
    retention: Retention = Retention()
    http: Http = Http()
    models: Models = Models()
    steps: Steps = Steps()
    services: Services = Services()
    agent: Agent = Agent()
    files: Files = Files()
    on_failure: OnFailure = OnFailure()
    outcome_webhooks: list[OutcomeWebhook] = Field(default_factory=list, max_length=50)
    label_prefix: LabelPrefix = "harken"
    pipeline_from_label: LabelMap | None = None
    default_pipeline: str | None = Field(default=None, min_length=1)

    @field_validator("store")
    @classmethod
    def _check_store(cls, value: str | None) -> str | None:
        return value if value is None else check_store(value)

    @field_validator("models", mode="before")
    @classmethod
    def _expand_models(cls, value: Any) -> Any:
        return {"default": value} if isinstance(value, str) else value


def check_store(value: str) -> str:
    """Return the store's name or address as written. Raise Invalid for one that does not exist."""
    scheme, separator, rest = value.partition("://")
    if separator and scheme not in SCHEMES:
        raise Invalid(f"there is no {scheme} store", "Name a file, or postgresql://host/database, or redis://host/0")
    try:
        _ = urlsplit(value).port
    except ValueError:
        fix = "Write special characters of the password as %2F, %23, %40 …"
        raise Invalid("the store's address cannot be read", fix) from None
    if separator and scheme != "sqlite" and not rest.strip("/"):
        raise Invalid(f"{scheme}:// names no server", "Name a file, or postgresql://host/database, or redis://host/0")
    return value


def store_location(settings: Settings, directory: Path, environ: Mapping[str, str]) -> str:
    """Return the store: HARKEN_STORE, `store:` in harken.yaml, REDIS_URL, or harken.db, in this order.

    A file is relative to harken.yaml. Raise Misconfigured when the environment names an unknown kind of store.
    """
    name = settings.store or "harken.db"
    for variable, value in _store_from_environment(settings, environ).items():
        try:
            name = check_store(value)
        except Invalid as error:
            raise Misconfigured(f"{variable}: {error.message}", fix=error.fix) from None
    if is_url(name):
        return name
    return str((directory / os.path.expanduser(name.removeprefix("sqlite://"))).absolute())


def _store_from_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    if named := environ.get("HARKEN_STORE", "").strip():
        return {"HARKEN_STORE": named}
    redis = environ.get("REDIS_URL", "").strip()
    return {"REDIS_URL": redis} if redis and settings.store is None else {}


def store_extra(location: str) -> str:
    """The extra that has the driver of the store; empty for a file."""
    if not is_url(location):
        return ""
    return "redis" if location.startswith(("redis://", "rediss://")) else "postgres"


def is_url(location: str) -> bool:
    """Whether the store is a server that replicas can share, and not a file."""
    return "://" in location and not location.startswith("sqlite://")


def local_base(location: str, directory: Path) -> Path:
    """Return the path that files beside the store are named after. Moving the store to a server keeps it."""
    return directory.absolute() / "harken.db" if is_url(location) else Path(location)
