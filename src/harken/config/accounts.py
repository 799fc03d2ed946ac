"""Integrations: accounts from harken.yaml, from the store and from environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol, get_args
from urllib.parse import urlsplit

import msgspec
from pydantic import BaseModel, Field, SecretStr, field_validator

from harken.config.findings import Path, Place, Report
from harken.config.interpolate import is_secret_name
from harken.config.loaded import Account, digest
from harken.config.model_validation import Invalid, Strict, as_table, check
from harken.config.settings import Duration
from harken.config.yaml.nodes import Items, Node, Scalar, Table, to_storable
from harken.errors import HarkenError
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = [
    "AccountStore",
    "Backoff",
    "Integration",
    "StoredSettings",
    "as_nodes",
    "implied_account",
    "plugin_of",
    "read_account",
    "secret_fields",
    "stored_account",
]

_RATE = re.compile(
    r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*/\s*(\d{0,9})\s*(s|sec|second|m|min|minute|h|hour|d|day)\s*", re.ASCII
)
_PER = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Backoff(Strict):
    """The first and the longest wait after 429 Too Many Requests. A Retry-After header wins."""

    initial: Annotated[Duration, Field(gt=0)] = 30.0
    max: Annotated[Duration, Field(gt=0)] = 600.0


class Integration(Strict):
    """The settings of every integration; all others belong to the service."""

    kind: str
    base_url: str | None = None
    allow_private_networks: bool = False
    allow_agents: list[str] | Literal["*"] | None = None
    rate_limit: float | None = None
    backoff: Backoff | None = None

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://x")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Invalid("this is not an http address", "Write https://host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            # it is shown to people, and paths are appended to it
            raise Invalid("an address has no user, password or query here", "Write https://host/path alone")
        return value

    @field_validator("rate_limit", mode="before")
    @classmethod
    def _per_second(cls, value: Any) -> Any:
        if isinstance(value, str) and (match := _RATE.fullmatch(value)):
            value = float(match[1]) / ((int(match[2] or 1) or 1) * _PER[match[3][0]])
        if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
            raise Invalid("this is not a rate", "Write calls per time, such as 10/s, 600/m or 5000/h")
        if value is not None and value <= 0:
            raise Invalid("the rate must be above 0", "Write calls per time, such as 10/s, 600/m or 5000/h")
        return value


class StoredSettings(Protocol):
    """The stored settings of an integration, with its secrets."""

    @property
    def kind(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...


class AccountStore(Protocol):
    """What `harken integrations NAME configure` stored. Both methods raise HarkenError when it cannot be read."""

    def accounts(self) -> Mapping[str, str]:
        """Return the kind of each account by name."""
        ...

    def account(self, name: str) -> StoredSettings | None: ...


def plugin_of(kind: str, plugins: Mapping[str, Plugin]) -> Plugin | None:
    """Return the service of this kind, by its name or one of its aliases."""
    found = plugins.get(kind)
    return found or next((plugin for plugin in plugins.values() if kind in plugin.aliases), None)


def read_account(
    name: str, node: Node, plugins: Mapping[str, Plugin], report: Report, path: Path, stored: AccountStore | None = None
) -> Account | None:
    """Return an account under `integrations:`; None when anything in it is wrong.

    If it has no secret in the file, its credential is taken from the store.
    """
    table = as_table(node, report, path)
    if table is None:
        return None
    own = set(Integration.model_fields)
    common = check(Integration, table.without(*(set(table.items) - own)), report, path)
    kind = table.items.get("kind")
    plugin = _read_kind(kind, plugins, report, path) if kind else None
    if plugin is None:
        return None
    filled = _with_stored_fields(name, table, plugin, stored, report, path)
    model = _read_model(plugin, filled, report, path)
    _suggest_configure(name, plugin, report, path)
    if common is None or report.failed:
        return None
    return Account(
        name=name,
        kind=plugin.kind,
        # derived from references, so that it reveals nothing about the secret
        credential=f"{plugin.kind}:{digest([_credential_identity(name, table), common.base_url], 12)}",
        model=model,
        base_url=common.base_url or "",
        allow_private=common.allow_private_networks,
        rate_limit=common.rate_limit,
        backoff=(common.backoff.initial, max(common.backoff.initial, common.backoff.max)) if common.backoff else None,
        origin="config" if filled is table else "stored",
        agents=None if common.allow_agents is None or "*" in common.allow_agents else frozenset(common.allow_agents),
    )


def stored_account(
    name: str, stored: AccountStore, plugins: Mapping[str, Plugin], place: Place, report: Report, path: Path
) -> Account | None:
    """Return the account that is stored under this name; None when it cannot be read or is wrong."""
    entry = _stored_settings(name, stored, place, report, path)
    if entry is None:
        return None
    items = {"kind": Scalar(value=entry.kind, place=place), **as_nodes(name, entry.fields, place)}
    table = Table(items=items, keys=dict.fromkeys(items, place), place=place)
    account = read_account(name, table, plugins, report, path)
    return replace(account, origin="stored") if account else None


def _stored_settings(
    name: str, stored: AccountStore, place: Place, report: Report, path: Path
) -> StoredSettings | None:
    try:
        return stored.account(name)
    except HarkenError as error:
        report.error(place, path, f"the stored account {name} cannot be used: {error.message}", error.fix, "unreadable")
        return None


def as_nodes(name: str, fields: Mapping[str, Any], place: Place) -> dict[str, Node]:
    """Return stored settings as nodes at this place, shown as references."""

    def node(key: str, value: Any) -> Node:
        if isinstance(value, list):
            return Items(items=tuple(node(key, inner) for inner in value), place=place)
        return Scalar(value=value, place=place, shown=f"${{stored:{name}.{key}}}")

    return {key: node(key, value) for key, value in fields.items()}


def _with_stored_fields(
    name: str, table: Table, plugin: Plugin, stored: AccountStore | None, report: Report, path: Path
) -> Table:
    """Return the table with its stored settings, unless the file has a secret: credentials are never mixed."""
    if stored is None or plugin.account is None or secret_fields(plugin.account) & set(table.items):
        return table
    entry = _stored_settings(name, stored, table.place, report, path)
    if entry is None or entry.kind != plugin.kind:
        return table
    known = {key: value for key, value in entry.fields.items() if key in plugin.account.model_fields}
    items = {**as_nodes(name, known, table.place), **table.items}
    return Table(items=items, keys={**dict.fromkeys(items, table.place), **table.keys}, place=table.place)


def secret_fields(model: type[BaseModel]) -> set[str]:
    """Return the settings of an account that hold a secret."""

    def holds(annotation: Any) -> bool:
        return annotation is SecretStr or any(map(holds, get_args(annotation)))

    return {name for name, field in model.model_fields.items() if holds(field.annotation)}


def _read_kind(kind: Node, plugins: Mapping[str, Plugin], report: Report, path: Path) -> Plugin | None:
    if not isinstance(kind, Scalar) or not isinstance(kind.value, str):
        return None
    plugin = plugin_of(kind.value, plugins)
    if plugin is None:
        fix = suggest_fix(kind.value, plugins)
        report.error(kind.place, (*path, "kind"), f"there is no service {kind.value!r}", fix, "unknown_name")
    return plugin


def _read_model(plugin: Plugin, table: Table, report: Report, path: Path) -> BaseModel | None:
    own = set(Integration.model_fields)
    wanted = set(plugin.account.model_fields) if plugin.account else set()
    fields = table.without(*(own - wanted))
    if plugin.account is not None:
        return check(plugin.account, fields, report, path)
    for key in fields.items:
        fix = suggest_fix(key, own)
        report.error(table.keys[key], (*path, key), f"{plugin.kind} has no such setting", fix, "unknown_key")
    return None


def _suggest_configure(name: str, plugin: Plugin, report: Report, path: Path) -> None:
    """Add `configure` to the fix for a missing secret: it need not be in the file."""
    secret = {(*path, field) for field in secret_fields(plugin.account)} if plugin.account else set()
    for at, found in enumerate(report.findings):
        if found.code == "missing" and found.path in secret:
            fix = f"{found.fix}, or run: harken integrations {name} configure"
            report.findings[at] = msgspec.structs.replace(found, fix=fix)


def _credential_identity(name: str, table: Table) -> Any:
    """Return what identifies the credential without revealing it: references, or the integration's name."""
    found = {}
    for key, node in table.items.items():
        if key not in Integration.model_fields:
            hidden = isinstance(node, Scalar) and node.shown is None and is_secret_name(key)
            found[key] = name if hidden else to_storable(node)
    return found or name


def implied_account(
    plugin: Plugin, environ: Mapping[str, str], place: Place, report: Report, path: Path
) -> Account | None:
    """Return the account of a kind that is not configured: none is needed, or the environment has it."""
    if plugin.account is None:
        return Account(name=plugin.kind, kind=plugin.kind, credential=plugin.kind, origin="none")
    found = {name: environ[variable] for variable, name in plugin.environment.items() if environ.get(variable)}
    required = {name for name, field in plugin.account.model_fields.items() if field.is_required()}
    if required - set(found):
        wanted = (required | secret_fields(plugin.account)) - set(found)
        missing = [variable for variable, name in plugin.environment.items() if name in wanted]
        store = f"harken integrations {plugin.kind} configure"
        fix = f"Run: {store}; or set {', '.join(missing)}" if missing else f"Run: {store}"
        report.error(place, path, f"{plugin.kind} has no account", fix, "unknown_name")
        return None
    items: dict[str, Node] = {name: Scalar(value=value, place=place) for name, value in found.items()}
    model = check(plugin.account, Table(items=items, keys=dict.fromkeys(items, place), place=place), report, path)
    if model is None:
        return None
    base_url = str(found.get("base_url", ""))
    credential = f"{plugin.kind}:{digest(['environment', sorted(found), base_url], 12)}"
    return Account(
        name=plugin.kind,
        kind=plugin.kind,
        credential=credential,
        model=model,
        base_url=base_url,
        origin="environment" if found else "none",
    )
