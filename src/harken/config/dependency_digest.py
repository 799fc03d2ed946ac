"""What a compiled workflow depends on outside its own text, as a digest: whoever keeps one compares it."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from harken.config.findings import Place, Report
from harken.config.loaded import digest
from harken.config.resolver import Resolver

__all__ = ["Dependencies"]


class Dependencies:
    """The accounts, kinds of accounts and named feeds of one load. Each is looked up once."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._accounts: dict[str, tuple[str, frozenset[str]]] = {}
        self._states: dict[tuple[tuple[str, ...], ...], str] = {}

    def secrets_of(self, account: str) -> frozenset[str]:
        """The secrets of the account that this name means."""
        return self._account(account)[1]

    def state(self, accounts: tuple[str, ...], kinds: tuple[str, ...], feeds: tuple[str, ...]) -> str:
        """A digest of everything in the files and among the accounts that is meant by these names. Covers no secret."""
        key = (accounts, kinds, feeds)
        if key not in self._states:
            # first, as an account that the environment gives is known only when it was asked for
            meant = [self._account(name)[0] for name in accounts]
            known = self._resolver.kinds()
            specs = [self._resolver.feeds.get(name) for name in feeds]
            listened = [msgspec.structs.replace(spec.feed, label="") if spec else None for spec in specs]
            self._states[key] = digest([meant, [known.get(name, name) for name in kinds], listened])
        return self._states[key]

    def _account(self, name: str) -> tuple[str, frozenset[str]]:
        known = self._accounts.get(name)
        if known is None:
            resolver, secrets = self._resolver, self._resolver.secrets
            resolver.secrets = set()
            found = resolver.account(name, Place(""), Report(), ())
            state = digest([replace(found[0], model=None), found[0].model is None, found[1].kind]) if found else ""
            known = self._accounts[name] = (state, frozenset(resolver.secrets))
            resolver.secrets = secrets
        return known
