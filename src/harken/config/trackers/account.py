"""With which account a tracker is asked: an integration, or what is written on the tracker and in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.config.accounts import read_account, secret_fields
from harken.config.findings import Path, Place, Report
from harken.config.loaded import Account
from harken.config.resolver import Resolver
from harken.config.secret_values_to_mask import secrets_in
from harken.config.trackers.address import Address, is_cloud
from harken.config.trackers.schema import TrackerBlock
from harken.config.yaml.nodes import Node, Scalar, Table, locate
from harken.source import Plugin

__all__ = ["account_name", "credential_fields", "is_scheme", "read_tracker_account"]

SCHEMES = ("token", "basic", "pat")
"""How people of the older format say how they sign in; what is written beside it, or the environment, has the rest."""
_OF_THE_ADDRESS = ("base_url", "organization")


def account_name(tracker: str) -> str:
    """The account of a tracker that does not use an integration."""
    return f"tracker/{tracker}"


def is_scheme(value: object) -> bool:
    """Whether `auth:` only says how to sign in, and is no credential."""
    return isinstance(value, str) and value.strip().casefold() in SCHEMES


def credential_fields(plugin: Plugin) -> frozenset[str]:
    """The settings of the service's account, which may stand on a tracker."""
    return frozenset(plugin.account.model_fields) if plugin.account else frozenset()


def read_tracker_account(
    name: str,
    block: TrackerBlock,
    table: Table,
    plugin: Plugin,
    address: Address,
    resolver: Resolver,
    report: Report,
    path: Path,
) -> Account | None:
    """Return the account; None, with a finding, when there is none or it is one of another server."""
    written = _written(table, plugin, report, path)
    if block.integration is not None:
        place, where = table.items["integration"].place, (*path, "integration")
        if beside := written.keys() - set(_OF_THE_ADDRESS):
            fix = "Keep the integration, or what is written here"
            report.error(place, where, f"stands beside {', '.join(sorted(beside))}", fix)
            return None
        return _of_integration(block.integration, plugin, address, resolver, place, report, where)
    of_address = _from_address(address, plugin, table)
    if written.keys() & secret_fields_of(plugin):
        return _own_account(name, block, of_address | written, table, plugin, resolver, report, path)
    if not _is_known(plugin.kind, resolver):
        given = _from_environment(plugin, resolver, table.place)
        fields = given | of_address | written
        # a token is never sent to another server than the one that the environment names beside it
        agrees = all(_value(given[key]) == _value(fields[key]) for key in given)
        if agrees and fields.keys() != given.keys() and _is_complete(plugin, fields):
            return _own_account(name, block, fields, table, plugin, resolver, report, path)
    place = locate(table, ("type",))
    return _of_integration(plugin.kind, plugin, address, resolver, place, report, (*path, "type"))


def secret_fields_of(plugin: Plugin) -> set[str]:
    return secret_fields(plugin.account) if plugin.account else set()


def _written(table: Table, plugin: Plugin, report: Report, path: Path) -> dict[str, Node]:
    """The fields of the account that stand on the tracker or below `auth:`."""
    known = credential_fields(plugin)
    found = {key: node for key, node in table.items.items() if key in known}
    auth = table.items.get("auth")
    if isinstance(auth, Table):
        for key, node in auth.items.items():
            if key in known:
                found[key] = node
            elif key not in ("type", "scheme"):
                fix = f"It may have: {', '.join(sorted(known))}"
                report.error(auth.keys[key], (*path, "auth", key), "there is no such setting", fix, "unknown_key")
    elif isinstance(auth, Scalar) and isinstance(auth.value, str) and not is_scheme(auth.value):
        found.setdefault("token", auth)
    elif auth is not None and not isinstance(auth, Scalar):
        report.error(auth.place, (*path, "auth"), "must be token, basic, pat or a token", "Write auth: ${TOKEN}")
    return found


def _is_known(kind: str, resolver: Resolver) -> bool:
    """Whether an account of this name is configured or stored. One of the environment is made anew for each tracker."""
    account = resolver.accounts.get(kind)
    if account is not None and account.origin == "environment":
        return False
    return kind in resolver.kinds() or f"integration:{kind}" in resolver.refused


def _from_environment(plugin: Plugin, resolver: Resolver, place: Place) -> dict[str, Node]:
    found: dict[str, Node] = {}
    secret = secret_fields_of(plugin)
    for variable, field in plugin.environment.items():
        value = resolver.environ.get(variable, "")
        if value:
            found.setdefault(field, Scalar(value=value, place=place, shown=f"${{{variable}}}"))
            if field in secret:
                resolver.secrets.add(value)
    return found


def _from_address(address: Address, plugin: Plugin, table: Table) -> dict[str, Node]:
    place = locate(table, ("url",))
    known = plugin.account.model_fields if plugin.account else {}
    given = {"base_url": address.base_url, "organization": address.organization}
    return {
        key: Scalar(value=value, place=place)
        for key, value in given.items()
        # without the address that the service has anyway, so that one token has one quota
        if value and key in known and value != known[key].default
    }


def _value(node: Node) -> object:
    return node.value if isinstance(node, Scalar) else node


def _is_complete(plugin: Plugin, fields: Mapping[str, Node]) -> bool:
    if plugin.account is None:
        return False
    required = {name for name, field in plugin.account.model_fields.items() if field.is_required()}
    return required <= fields.keys() and bool(secret_fields(plugin.account) & fields.keys())


def _own_account(
    name: str,
    block: TrackerBlock,
    fields: Mapping[str, Node],
    table: Table,
    plugin: Plugin,
    resolver: Resolver,
    report: Report,
    path: Path,
) -> Account | None:
    known = credential_fields(plugin)
    base = fields.get("base_url")
    base_url = str(base.value) if isinstance(base, Scalar) else ""
    # who writes the address of a server of their own means it, also if that is in a private network
    own_server = bool(base_url) and not is_cloud(base_url)
    private = own_server if block.allow_private_networks is None else block.allow_private_networks
    more: dict[str, Any] = {"kind": plugin.kind, "allow_private_networks": private}
    nodes: dict[str, Node] = {key: node for key, node in fields.items() if key in known or key == "base_url"}
    nodes |= {key: Scalar(value=value, place=table.place) for key, value in more.items()}
    keys = {key: table.keys.get(key, node.place) for key, node in nodes.items()}
    whole = Table(items=nodes, keys=keys, place=table.place)
    account = read_account(account_name(name), whole, resolver.plugins, report, path)
    if account is None:
        return None
    resolver.secrets |= secrets_in(account.model)
    resolver.accounts[account.name] = account
    return account


def _of_integration(
    name: str, plugin: Plugin, address: Address, resolver: Resolver, place: Place, report: Report, path: Path
) -> Account | None:
    found = resolver.account(name, place, report, path)
    if found is None:
        return None
    account = found[0]
    if found[1].kind != plugin.kind:
        message, fix = f"{name} is an integration of {found[1].kind}", f"Name one of kind {plugin.kind}"
        report.error(place, path, message, fix)
        return None
    for field, wanted in (("base_url", address.base_url), ("organization", address.organization)):
        has = str(getattr(account.model, field, "") or "")
        if wanted and has and has.rstrip("/").casefold() != wanted.rstrip("/").casefold():
            # a token is never sent to a server that it was not stored for
            fix = "Write token: ${…} on the tracker, or integration: with the account of that server"
            report.error(place, path, f"the account {account.name} is of {has}, the tracker at {wanted}", fix)
            return None
    return account
