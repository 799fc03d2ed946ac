"""Read one tracker or one project by itself. What depends on both is put together in `settings`."""

from __future__ import annotations

from dataclasses import dataclass

from harken.config.accounts import plugin_of
from harken.config.feeds import LOOPBACK_FLOOR, host_of, is_loopback
from harken.config.findings import Path, Report
from harken.config.loaded import Account
from harken.config.model_validation import Invalid, as_table, check
from harken.config.resolver import Resolver
from harken.config.secret_values_to_mask import secrets_by_name
from harken.config.trackers.account import credential_fields, is_scheme, read_tracker_account
from harken.config.trackers.address import Address, parse_address
from harken.config.trackers.schema import (
    IGNORED,
    PollingBlock,
    ProjectBlock,
    SourceBlock,
    TrackerBlock,
    check_name,
    kind_of,
)
from harken.config.yaml.nodes import Node, Scalar, Table, locate
from harken.durations import format_duration
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = ["KINDS", "ProjectSpec", "TrackerSpec", "check_interval", "read_project", "read_tracker"]

KINDS = ("github", "gitlab", "azure_devops", "jira")
_BAD_NAME = "Use letters, digits, dots, dashes and underscores"


@dataclass(frozen=True, kw_only=True)
class TrackerSpec:
    """A tracker without its projects. `address` has the organization and project that count."""

    name: str
    block: TrackerBlock
    table: Table
    path: Path
    plugin: Plugin
    account: Account
    address: Address

    @property
    def kind(self) -> str:
        return self.plugin.kind

    @property
    def floor(self) -> float:
        """The shortest interval at which it may be asked."""
        base_url = str(getattr(self.account.model, "base_url", "") or self.account.base_url)
        return LOOPBACK_FLOOR if is_loopback(host_of({}, base_url)) else self.plugin.floor_seconds


@dataclass(frozen=True, kw_only=True)
class ProjectSpec:
    name: str
    block: ProjectBlock
    table: Table
    path: Path


def read_tracker(name: str, node: Node, resolver: Resolver, report: Report, path: Path) -> TrackerSpec | None:
    """Return a tracker under `trackers:`, or `tickets:` of a project; None when anything in it is wrong."""
    table = as_table(node, report, path)
    if table is None:
        return None
    if not check_name(name):
        report.error(table.place, path, f"{name!r} cannot be part of an address", _BAD_NAME)
    plugin = _read_type(table, resolver, report, path)
    own = set(TrackerBlock.model_fields)
    fields = credential_fields(plugin) if plugin else frozenset()
    block = check(TrackerBlock, table.without(*(fields - own)), report, path)
    resolver.secrets |= _secrets(table)
    if block is None or plugin is None:
        return None
    warn_of_ignored(table, report, path)
    address = _read_address(block, plugin.kind, table, report, path)
    if address is None:
        return None
    account = read_tracker_account(name, block, table, plugin, address, resolver, report, path)
    if account is None or report.failed:
        return None
    spec = TrackerSpec(name=name, block=block, table=table, path=path, plugin=plugin, account=account, address=address)
    check_interval(spec, block.polling, table, report, path)
    return None if report.failed else spec


def _secrets(table: Table) -> set[str]:
    """Texts whose setting is named like a secret, also if they are written out."""
    auth = table.items.get("auth")
    token = {str(auth.value)} if isinstance(auth, Scalar) and auth.value and not is_scheme(auth.value) else set()
    return secrets_by_name(table) | token


def _read_type(table: Table, resolver: Resolver, report: Report, path: Path) -> Plugin | None:
    node = table.items.get("type")
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value:
        return None
    plugin = plugin_of(kind_of(node.value), resolver.plugins)
    if plugin is None or plugin.tracker is None:
        message = f"{node.value!r} is no tracker of tickets"
        report.error(node.place, (*path, "type"), message, suggest_fix(kind_of(node.value), KINDS), "unknown_name")
        return None
    return plugin


def _read_address(block: TrackerBlock, kind: str, table: Table, report: Report, path: Path) -> Address | None:
    """What the tracker says about where it is, from its address and from what is written beside it."""
    organization = block.organization or ""
    try:
        found = parse_address(kind, block.url, organization) if block.url else Address()
    except Invalid as error:
        report.error(locate(table, ("url",)), (*path, "url"), error.message, error.fix)
        return None
    if organization and found.organization and organization.casefold() != found.organization.casefold():
        fix = "Leave one of them out"
        report.error(locate(table, ("url",)), (*path, "url"), f"is of {found.organization}, not of {organization}", fix)
    project = block.project or ""
    if project and kind in ("github", "gitlab"):
        project = _full_name(project, organization or found.organization)
        if "/" not in project and not project.isdecimal():
            fix = "Write owner/name, or organization: beside it"
            report.error(locate(table, ("project",)), (*path, "project"), f"{project} is no whole name", fix)
    if project and found.project and project.casefold() != found.project.casefold():
        message = f"is of {found.project}, not of {project}"
        report.error(locate(table, ("url",)), (*path, "url"), message, "Leave one of them out")
    if kind == "azure_devops" and not (project or found.project):
        report.error(table.place, (*path, "project"), "is missing", "Add project:, or a url: that names it", "missing")
    if report.failed:
        return None
    return Address(
        base_url=_base_url(table) or found.base_url,
        organization=organization or found.organization,
        project=project or found.project,
    )


def _base_url(table: Table) -> str:
    """Where the API is, if that is written out."""
    node = table.items.get("base_url")
    return node.value.rstrip("/") if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _full_name(project: str, organization: str) -> str:
    return f"{organization}/{project}" if organization and "/" not in project and not project.isdecimal() else project


def check_interval(tracker: TrackerSpec, block: PollingBlock | None, table: Table, report: Report, path: Path) -> None:
    if block is None or not block.enabled or block.interval_seconds >= tracker.floor:
        return
    inside = ("polling", "interval_seconds")
    fix = f"Read it every {format_duration(tracker.floor)} at most"
    message = f"{tracker.kind} may not be read that often"
    report.error(locate(table, inside), (*path, *inside), message, fix, "too_often")


def read_project(name: str, node: Node, resolver: Resolver, report: Report, path: Path) -> ProjectSpec | None:
    """Return a project under `projects:`; None when anything in it is wrong. Its `tickets:` are read as a tracker."""
    table = as_table(node, report, path)
    if table is None:
        return None
    if not check_name(name):
        report.error(table.place, path, f"{name!r} cannot be part of the name of a trigger", _BAD_NAME)
    resolver.secrets |= secrets_by_name(table)
    block = check(ProjectBlock, table, report, path)
    if block is None:
        return None
    warn_of_ignored(table, report, path)
    if (block.tracker is None) == ("tickets" not in table.items):
        both = block.tracker is not None
        message = "has tracker: and tickets:" if both else "says nothing about its tickets"
        fix = "Keep one of them" if both else "Add tracker: with the name of one, or tickets: {type: …, url: …}"
        report.error(table.place, path, message, fix, "invalid" if both else "missing")
    if block.source is not None:
        _check_source(block.source, table, report, path)
    return None if report.failed else ProjectSpec(name=name, block=block, table=table, path=path)


def _check_source(source: SourceBlock, table: Table, report: Report, path: Path) -> None:
    where = (*path, "source", "url")
    place = locate(table, ("source", "url"))
    # git@host:owner/name is a user too, but names no secret
    if source.url and "@" in source.url.partition("://")[2].partition("/")[0] and source.url.startswith("http"):
        fix = "Write it without: git signs in by itself, or with a secret of the step"
        report.error(place, where, "an address has no user or password here", fix)
    if source.url and source.path:
        report.error(place, where, "stands beside path", "Keep one of them")


def warn_of_ignored(table: Table, report: Report, path: Path) -> None:
    for key in sorted(IGNORED & table.items.keys()):
        message = "is accepted from the older format, and nothing is done with it"
        report.warn(table.keys[key], (*path, key), message, "Remove it when you like", "ignored")
