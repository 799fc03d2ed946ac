"""Agents: on whose behalf a job works, and which accounts it may use for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harken.config.accounts import plugin_of
from harken.config.findings import Path, Place, Report
from harken.config.loaded import Account, item
from harken.config.resolver import Resolver
from harken.config.validate import as_table
from harken.config.yaml.nodes import Node, Scalar, Table
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = ["Agent", "Agents", "read_agent"]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """`accounts` has the integration for each kind of service that the agent is bound to, right or wrong.

    `whole` says that nothing is wrong with what is written about it.
    """

    name: str
    accounts: Mapping[str, str]
    whole: bool = True


@dataclass(kw_only=True)
class Agents:
    """Who there is. Without a section, any name will do and uses the accounts that are called like their service."""

    known: dict[str, Agent]
    declared: bool = False

    def check(self, name: str, place: Place, report: Report, path: Path) -> None:
        if self._is_unknown(name):
            report.error(place, path, f"there is no agent {name!r}", suggest_fix(name, self.known), "unknown_name")

    def _is_unknown(self, name: str) -> bool:
        return self.declared and name not in self.known

    def account(
        self, agent: str, plugin: Plugin, around: Resolver, place: Place, report: Report, path: Path
    ) -> Account | None:
        """The account of the service that this agent uses; None, with a finding, when it may not or has none."""
        if self._is_unknown(agent):
            return None
        kind = plugin.uses or plugin.kind
        owner = plugin_of(kind, around.plugins)
        if owner is None:
            report.error(place, path, f"{plugin.kind} needs the service {kind}", "Install it", "unknown_name")
            return None
        bound = self.known.get(agent)
        name = bound.accounts.get(kind) if bound else kind
        if bound is not None and name is None and not bound.whole and owner.account is not None:
            # what was meant for this kind may be what is wrong: its messages must not go to everybody's account
            report.error(place, path, f"the agent {agent} was refused", "Correct it first", "depends")
            return None
        if name is None and not _needs_account(owner):
            name = kind
        if name is None:
            fix = f"Add {kind}: under agents: {agent}:"
            report.error(place, path, f"the agent {agent} has no account of {kind}", fix, "unknown_name")
            return None
        return self.named(agent, name, kind, around, place, report, path)

    def chosen(
        self, agent: str, name: str, kind: str, around: Resolver, place: Place, report: Report, path: Path
    ) -> Account | None:
        """The account of this name, which is not the agent's own only if its allow_agents names the agent."""
        account, bound = self.named(agent, name, kind, around, place, report, path), self.known.get(agent)
        if account is None or bound is None or account.agents is not None or name in bound.accounts.values():
            return account
        fix = f"Write {kind}: {name} under agents: {agent}:, or {agent} into its allow_agents"
        report.error(place, path, f"the agent {agent} is not bound to {name}", fix, "not_allowed")
        return None

    def named(
        self, agent: str, name: str, kind: str, around: Resolver, place: Place, report: Report, path: Path
    ) -> Account | None:
        """The account of this name, if it is of the kind and lets the agent use it."""
        found = around.account(name, place, report, path)
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


def read_agent(name: str, node: Node, around: Resolver, report: Report, path: Path) -> Agent:
    """Return the agent with its bindings. One that leads nowhere has a finding, and refuses the jobs that need it."""
    table = as_table(node, report, path)
    if table is None:
        return Agent(name=name, accounts={}, whole=False)
    accounts: dict[str, str] = {}
    for kind, inner in table.items.items():
        if plugin_of(kind, around.plugins) is None:
            fix = suggest_fix(kind, around.plugins)
            report.error(table.keys[kind], (*path, kind), f"there is no service {kind!r}", fix, "unknown_name")
        elif not isinstance(inner, Scalar) or not isinstance(inner.value, str):
            report.error(inner.place, (*path, kind), "must be the name of an integration", "", "wrong_type")
        else:
            _check_binding(name, kind, inner.value, table, around, report, (*path, kind))
            accounts[kind] = inner.value
    return Agent(name=name, accounts=accounts, whole=not report.failed)


def _check_binding(
    agent: str, kind: str, name: str, table: Table, around: Resolver, report: Report, path: Path
) -> None:
    place = table.items[kind].place
    if item("integration", name) in around.refused:
        report.error(place, path, f"the integration {name} was refused", "Correct it first", "depends")
        return
    Agents(known={}).named(agent, name, kind, around, place, report, path)
