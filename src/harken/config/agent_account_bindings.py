"""Agents: a job works on behalf of one, and uses only the accounts that the agent is bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harken.config.accounts import plugin_of
from harken.config.findings import Path, Place, Report
from harken.config.loaded import Account, item
from harken.config.model_validation import as_table
from harken.config.resolver import Resolver
from harken.config.yaml.nodes import Node, Scalar, Table
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = ["Agent", "Agents", "read_agent"]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """`accounts` has the integration per kind of service that the agent is bound to, whether it exists or not.

    `valid` is false when anything in its section is wrong.
    """

    name: str
    accounts: Mapping[str, str]
    valid: bool = True


@dataclass(kw_only=True)
class Agents:
    """All agents. Without an `agents:` section every name is valid and uses the accounts named after their service."""

    known: dict[str, Agent]
    declared: bool = False

    def check(self, name: str, place: Place, report: Report, path: Path) -> None:
        if self._is_unknown(name):
            report.error(place, path, f"there is no agent {name!r}", suggest_fix(name, self.known), "unknown_name")

    def _is_unknown(self, name: str) -> bool:
        return self.declared and name not in self.known

    def account(
        self, agent: str, plugin: Plugin, resolver: Resolver, place: Place, report: Report, path: Path
    ) -> Account | None:
        """Return the agent's account of a service; None, with a finding, when it has none or may not use it."""
        if self._is_unknown(agent):
            return None
        kind = plugin.uses or plugin.kind
        owner = plugin_of(kind, resolver.plugins)
        if owner is None:
            report.error(place, path, f"{plugin.kind} needs the service {kind}", "Install it", "unknown_name")
            return None
        bound = self.known.get(agent)
        name = bound.accounts.get(kind) if bound else kind
        if bound is not None and name is None and not bound.valid and owner.account is not None:
            # the invalid binding may be of this kind: do not fall back to the shared account
            report.error(place, path, f"the agent {agent} was refused", "Correct it first", "depends")
            return None
        if name is None and not _needs_account(owner):
            name = kind
        if name is None:
            fix = f"Add {kind}: under agents: {agent}:"
            report.error(place, path, f"the agent {agent} has no account of {kind}", fix, "unknown_name")
            return None
        return self.account_by_name(agent, name, kind, resolver, place, report, path)

    def chosen_account(
        self, agent: str, name: str, kind: str, resolver: Resolver, place: Place, report: Report, path: Path
    ) -> Account | None:
        """Return the account of this name: one that the agent is bound to, or whose allow_agents names the agent."""
        account, bound = self.account_by_name(agent, name, kind, resolver, place, report, path), self.known.get(agent)
        if account is None or bound is None or account.agents is not None or name in bound.accounts.values():
            return account
        fix = f"Write {kind}: {name} under agents: {agent}:, or {agent} into its allow_agents"
        report.error(place, path, f"the agent {agent} is not bound to {name}", fix, "not_allowed")
        return None

    def account_by_name(
        self, agent: str, name: str, kind: str, resolver: Resolver, place: Place, report: Report, path: Path
    ) -> Account | None:
        """Return the account of this name if it is of the kind and its allow_agents permits the agent."""
        found = resolver.account(name, place, report, path)
        if found is None or self._is_unknown(agent):
            return None
        account = found[0]
        if account.kind != kind:
            report.error(place, path, f"{name} is an integration of {account.kind}, not of {kind}", "Name another")
            return None
        if account.agents is not None and agent not in account.agents:
            fix = f"Add {agent} to its allow_agents"
            report.error(
                place, path, f"the integration {account.name} is not for the agent {agent}", fix, "not_allowed"
            )
            return None
        return account


def _needs_account(plugin: Plugin) -> bool:
    return plugin.account is not None and any(field.is_required() for field in plugin.account.model_fields.values())


def read_agent(name: str, node: Node, resolver: Resolver, report: Report, path: Path) -> Agent:
    """Return the agent with its bindings. A wrong binding is reported, and jobs that need it are refused."""
    table = as_table(node, report, path)
    if table is None:
        return Agent(name=name, accounts={}, valid=False)
    accounts: dict[str, str] = {}
    for kind, inner in table.items.items():
        if plugin_of(kind, resolver.plugins) is None:
            fix = suggest_fix(kind, resolver.plugins)
            report.error(table.keys[kind], (*path, kind), f"there is no service {kind!r}", fix, "unknown_name")
        elif not isinstance(inner, Scalar) or not isinstance(inner.value, str):
            report.error(inner.place, (*path, kind), "must be the name of an integration", "", "wrong_type")
        else:
            _check_binding(name, kind, inner.value, table, resolver, report, (*path, kind))
            accounts[kind] = inner.value
    return Agent(name=name, accounts=accounts, valid=not report.failed)


def _check_binding(
    agent: str, kind: str, name: str, table: Table, resolver: Resolver, report: Report, path: Path
) -> None:
    place = table.items[kind].place
    if item("integration", name) in resolver.refused:
        report.error(place, path, f"the integration {name} was refused", "Correct it first", "depends")
        return
    Agents(known={}).account_by_name(agent, name, kind, resolver, place, report, path)
