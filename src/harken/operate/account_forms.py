"""The form behind `harken integrations NAME configure`: its fields, known values and validation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from harken.credentials import Credentials, StoredAccount
from harken.errors import NotFound, Refused
from harken.http.known_secret_redaction import redact
from harken.operate.load_and_check_configuration import credentials_of, load_directory
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from harken.config.findings import Finding
    from harken.config.loaded import Loaded
    from harken.source import Plugin

__all__ = ["Field", "Form", "form_of"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field. `variable` is the environment variable for --from-env; `default` applies when omitted."""

    name: str
    description: str
    secret: bool
    required: bool
    default: str = ""
    variable: str = ""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The fields of one account. `stored` has its stored values, `written` the names of fields that harken.yaml sets.

    `plain` has the values from harken.yaml that are not secret.
    `own_secret`: harken.yaml has its own credential for it, which wins over whatever is stored.
    """

    directory: Path
    name: str
    kind: str
    plugin: Plugin = field(repr=False)
    fields: tuple[Field, ...]
    stored: Mapping[str, Any] = field(default_factory=dict, repr=False)
    written: frozenset[str] = frozenset()
    plain: Mapping[str, Any] = field(default_factory=dict)
    own_secret: bool = False
    exists: bool = False

    def from_environment(self) -> dict[str, str]:
        """The values that the environment has; Refused when it has none."""
        found = {one.name: os.environ[one.variable] for one in self.fields if os.environ.get(one.variable)}
        if not found:
            names = ", ".join(one.variable for one in self.fields if one.variable)
            raise Refused(f"the environment has nothing for {self.kind}", fix=f"Set {names}" if names else "")
        return found

    def problems(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Validation errors by field, without secrets. Fields that harken.yaml sets may be missing."""
        from harken.config.accounts import Integration, as_nodes
        from harken.config.findings import Place, Report
        from harken.config.model_validation import check
        from harken.config.yaml.nodes import Table

        assert self.plugin.account is not None
        place, report = Place("configure"), Report()
        for model in (self.plugin.account, Integration):
            mine = {key: value for key, value in self.settings(values).items() if key in model.model_fields}
            items = as_nodes(self.name, mine, place)
            check(model, Table(items=items, keys=dict.fromkeys(items, place), place=place), report)
        shown = [(str(found.path[0]) if found.path else "", found) for found in report.findings]
        hidden = [str(value) for value in values.values()]
        return {
            name: redact(". ".join(filter(None, (found.message, _fix(name, found)))), hidden)
            for name, found in shown
            if name != "kind" and not (found.code == "missing" and name in self.written)
        }

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values in the form in which they are stored: comma lists are split, empty values are left out."""
        assert self.plugin.account is not None
        known = self.plugin.account.model_fields
        return {
            name: _typed(known[name], value) if name in known else value
            for name, value in values.items()
            if value not in ("", None)
        }

    def load_with(self, values: Mapping[str, Any]) -> Loaded:
        """The configuration as it would be if these values were stored."""
        entry = StoredAccount(name=self.name, kind=self.kind, fields=self.settings(values))
        stored = _Overlaid(credentials_of(self.directory), entry)
        return load_directory(self.directory, stored=stored, wanted=(self.name,))

    def keep(self, values: Mapping[str, Any]) -> str:
        """Store the values and return where they are kept now."""
        entry = StoredAccount(name=self.name, kind=self.kind, fields=self.settings(values))
        return credentials_of(self.directory).store_account(entry)


def _fix(name: str, found: Finding) -> str:
    # the finding's own fix talks about harken.yaml, but here the value is typed
    return f"Give --{name.replace('_', '-')}" if found.code == "missing" else found.fix


class _Overlaid:
    """The stored accounts, with one entry replaced."""

    def __init__(self, credentials: Credentials, entry: StoredAccount) -> None:
        self._credentials = credentials
        self._entry = entry

    def accounts(self) -> Mapping[str, str]:
        return {**self._credentials.accounts(), self._entry.name: self._entry.kind}

    def account(self, name: str) -> StoredAccount | None:
        return self._entry if name == self._entry.name else self._credentials.account(name)


def form_of(directory: Path, name: str, store_as: str = "") -> Form:
    """The form for an account or kind called `name`; `store_as` stores it under another name."""
    from harken.config.accounts import secret_fields
    from harken.config.files import configured_accounts
    from harken.config.yaml.nodes import Scalar

    credentials = credentials_of(directory)
    written = configured_accounts(directory, os.environ)
    plugin = _plugin(name, credentials.accounts(), written)
    wanted = store_as or (plugin.kind if name in plugin.aliases else name)
    _free(wanted, plugin)
    if plugin.account is None:
        raise Refused(f"{plugin.kind} needs no account", fix="Use it as it is")
    entry = credentials.account(wanted)
    mine = written[wanted].items if wanted in written else {}
    secret = secret_fields(plugin.account)
    return Form(
        directory=directory,
        name=wanted,
        kind=plugin.kind,
        plugin=plugin,
        fields=tuple(_fields(plugin, secret)),
        stored=entry.fields if entry and entry.kind == plugin.kind else {},
        written=frozenset(mine),
        plain={key: node.value for key, node in mine.items() if isinstance(node, Scalar) and key not in secret},
        own_secret=bool(secret & set(mine)),
        exists=entry is not None,
    )


def _plugin(name: str, stored: Mapping[str, str], written: Mapping[str, Any]) -> Plugin:
    from harken.services import registry

    plugins = registry()
    kind = getattr(written[name].items.get("kind"), "value", None) if name in written else stored.get(name, name)
    plugin = plugins.get(str(kind))
    if plugin is None:
        known = {*(kind for kind in plugins if plugins[kind].account is not None), *stored, *written}
        raise NotFound(f"there is no integration {name}", fix=suggest_fix(name, known))
    return plugin


def _free(name: str, plugin: Plugin) -> None:
    """Refuse names that are taken: other service kinds, and words of the command itself."""
    from harken.services import registry

    other = registry().get(name)
    if name in ("list", "NAME") or (other is not None and other.kind != plugin.kind):
        raise Refused(f"an account of {plugin.kind} cannot be called {name}", fix="Choose another --name")


def _fields(plugin: Plugin, secret: set[str]) -> list[Field]:
    assert plugin.account is not None
    variables = {name: variable for variable, name in plugin.environment.items()}
    return [
        Field(
            name=name,
            description=info.description or name.replace("_", " "),
            secret=name in secret,
            required=info.is_required(),
            default="" if info.is_required() or name in secret else _default(info),
            variable=variables.get(name, ""),
        )
        for name, info in plugin.account.model_fields.items()
    ]


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True, validated_data={})
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def _is_list(info: FieldInfo) -> bool:
    return any(get_origin(one) in (list, tuple) for one in (info.annotation, *get_args(info.annotation)))


def _typed(info: FieldInfo, value: Any) -> Any:
    if isinstance(value, str) and _is_list(info):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value
