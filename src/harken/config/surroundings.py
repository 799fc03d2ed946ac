"""What an item may refer to while it is read: services, accounts, feeds and the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from harken.config.accounts import implied_account, plugin_of, secrets_in
from harken.config.findings import Path, Place, Report, nearest
from harken.config.interpolate import is_secret_name
from harken.config.loaded import Account
from harken.feed import Feed
from harken.source import Plugin

__all__ = ["Made", "Surroundings"]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A feed, and the validated query that its source is built with."""

    feed: Feed
    query: BaseModel | None = None


@dataclass(kw_only=True)
class Surroundings:
    """Grows while a configuration is read: first accounts, then feeds, then what workflows ask for."""

    plugins: Mapping[str, Plugin]
    environ: Mapping[str, str]
    references: Mapping[str, str]
    check_condition: Callable[[str], object]
    check_template: Callable[[str], object]
    accounts: dict[str, Account] = field(default_factory=dict)
    feeds: dict[str, Made] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)

    def account(self, name: str, place: Place, report: Report, path: Path) -> tuple[Account, Plugin] | None:
        """The account that `integration: NAME` means: a configured one, or a kind that needs no configuration."""
        account = self.accounts.get(name) or self._implied(name, place, report, path)
        plugin = plugin_of(account.kind, self.plugins) if account else None
        if account is None or plugin is None:
            return None
        self.secrets |= secrets_in(account.model)
        self.accounts[account.name] = account
        return account, plugin

    def _implied(self, name: str, place: Place, report: Report, path: Path) -> Account | None:
        if f"integration:{name}" in self.refused:
            report.error(place, path, f"the integration {name} was refused", "Correct it first", "depends")
            return None
        plugin = plugin_of(name, self.plugins)
        if plugin is None:
            fix = nearest(name, {*self.accounts, *self.plugins})
            report.error(place, path, f"there is no integration {name!r}", fix, "unknown_name")
            return None
        known = self.accounts.get(plugin.kind)
        if known is not None and known.kind == plugin.kind:
            return known
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
            # a short secret is found in every other word, so it counts only when it is all there is
            if text == value or (len(value) >= 6 and value in text):
                text = text.replace(value, reference)
        return text
