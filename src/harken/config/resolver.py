"""Resolve what items refer to while a configuration is read: services, accounts and feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel

from harken.config.accounts import AccountStore, implied_account, plugin_of, stored_account
from harken.config.findings import Path, Place, Report
from harken.config.interpolate import is_secret_name
from harken.config.loaded import Account
from harken.config.secret_values_to_mask import secrets_in
from harken.errors import HarkenError
from harken.feed import Feed
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = ["FeedSpec", "Resolver"]


@dataclass(frozen=True, kw_only=True)
class FeedSpec:
    """A feed, and the validated query that its source is built with.

    `given` is what the query was validated from, with references in place of secrets; None if other files were
    read for it.
    """

    feed: Feed
    query: BaseModel | None = None
    given: Mapping[str, Any] | None = None


@dataclass(kw_only=True)
class Resolver:
    """What is known so far: it fills with accounts, then feeds, then the accounts that workflows use.

    Files that are named are read below `directory`, that of harken.yaml, or one of those that are `allowed`.
    """

    plugins: Mapping[str, Plugin]
    environ: Mapping[str, str]
    references: Mapping[str, str]
    check_condition: Callable[[str], object]
    check_template: Callable[[str], object]
    check_key: Callable[[str], object]
    stored: AccountStore | None = None
    directory: FilePath = FilePath()
    allowed: Sequence[FilePath] = ()
    accounts: dict[str, Account] = field(default_factory=dict)
    feeds: dict[str, FeedSpec] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    # the names that were looked up: of accounts, and of what may be one
    asked: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)

    def account(self, name: str, place: Place, report: Report, path: Path) -> tuple[Account, Plugin] | None:
        """Return the account that `integration: NAME` means: a configured one, a stored one, or the environment's."""
        self.asked.add(name)
        service = plugin_of(name, self.plugins) if name not in self.kinds() else None
        if service is not None and service.uses:
            found = self.account(service.uses, place, report, path)
            return (found[0], service) if found else None
        account = self.accounts.get(name) or self._implied(name, place, report, path)
        plugin = plugin_of(account.kind, self.plugins) if account else None
        if account is None or plugin is None:
            return None
        self.secrets |= secrets_in(account.model)
        self.accounts[account.name] = account
        return account, plugin

    def require(self, name: str, place: Place, report: Report, path: Path) -> None:
        """Report an account that a step uses and that does not exist, if its service needs one."""
        self.named.add(name)
        plugin = plugin_of(self.kinds().get(name, name), self.plugins)
        if plugin is not None and plugin.account is not None:
            self.account(name, place, report, path)

    def require_channel(self, name: str, place: Place, report: Report, path: Path) -> bool:
        """Whether the channel of a step can deliver messages; report one that cannot, or that has no account."""
        self.named.add(name)
        plugin = plugin_of(self.kinds().get(name, name), self.plugins)
        if plugin is None:
            return self._implied(name, place, report, (*path, "channel")) is not None
        if plugin.destination is None:
            known = [kind for kind, found in self.plugins.items() if found.destination is not None]
            fix = suggest_fix(name, known)
            report.error(place, (*path, "channel"), f"{name!r} cannot deliver messages", fix, "unknown_name")
            return False
        self.require(name, place, report, (*path, "channel"))
        return True

    def check_recipient(self, channel: str, to: object, place: Place, report: Report, path: Path) -> None:
        """Report an address that a message can never reach. Templates are known only when the step runs."""
        plugin = plugin_of(self.kinds().get(channel, channel), self.plugins)
        if plugin is None or plugin.recipient is None or not isinstance(to, str) or not to or "{" in to:
            return
        try:
            plugin.recipient(to)
        except HarkenError as error:
            report.error(place, path, error.message, error.fix)

    @cached_property
    def _stored_kinds(self) -> Mapping[str, str]:
        """The kinds of the stored accounts by name; read once per load."""
        return self.stored.accounts() if self.stored else {}

    def kinds(self) -> Mapping[str, str]:
        """Return the kind of every named account, configured or stored."""
        try:
            stored = self._stored_kinds
        except HarkenError:
            # reported by `_stored`, when an account is needed; configured ones work without it
            stored = {}
        return {**stored, **{name: account.kind for name, account in self.accounts.items()}}

    def _implied(self, name: str, place: Place, report: Report, path: Path) -> Account | None:
        if f"integration:{name}" in self.refused:
            report.error(place, path, f"the integration {name} was refused", "Correct it first", "depends")
            return None
        plugin = plugin_of(name, self.plugins)
        if plugin is None and name not in self.kinds():
            fix = suggest_fix(name, {*self.kinds(), *self.plugins})
            report.error(place, path, f"there is no integration {name!r}", fix, "unknown_name")
            return None
        known = self.accounts.get(plugin.kind) if plugin else None
        if plugin is not None and known is not None and known.kind == plugin.kind:
            return known
        return self._stored(name, plugin, place, report, path)

    def _stored(self, name: str, plugin: Plugin | None, place: Place, report: Report, path: Path) -> Account | None:
        """Return the account that is stored under the name, or else the one in the environment."""
        if self.stored is not None and (plugin is None or plugin.account is not None):
            try:
                names = self._stored_kinds
            except HarkenError as error:
                report.error(place, path, f"stored accounts cannot be read: {error.message}", error.fix, "unreadable")
                return None
            wanted = name if name in names or plugin is None else plugin.kind
            if wanted in names:
                return stored_account(wanted, self.stored, self.plugins, place, report, path)
        assert plugin is not None
        self.secrets |= {
            self.environ[name] for name in plugin.environment if is_secret_name(name) and self.environ.get(name)
        }
        return implied_account(plugin, self.environ, place, report, path)

    def hide(self, value: Any) -> Any:
        """Return the value with references in place of secrets."""
        if isinstance(value, str):
            return self._hide(value)
        if isinstance(value, Mapping):
            return {key: self.hide(inner) for key, inner in value.items()}
        return [self.hide(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def _hide(self, text: str) -> str:
        by_length = sorted(self.references.items(), key=lambda pair: len(pair[1]), reverse=True)
        for reference, value in by_length:
            # a short secret occurs in many words, so it is only replaced when it is the whole text
            if text == value or (len(value) >= 6 and value in text):
                text = text.replace(value, reference)
        return text
