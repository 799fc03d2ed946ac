"""Sources, destinations and actions, made of plugins, accounts, the HTTP client and each credential's budget."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import structlog

from harken.budget import Budget
from harken.clock import Clock
from harken.config import Loaded, credential_of, source_for
from harken.errors import NotFound, RetryLater
from harken.feed import Feed
from harken.http import Client, HttpSettings, Metered
from harken.operate.models import models_of
from harken.run.reach import Reach
from harken.source import Act, Destination, Host, Plugin, Source
from harken.store import Registry

__all__ = ["Parts"]

log = structlog.get_logger("harken.app")

BUDGETS = "budget"


class Parts:
    """What the configuration describes, ready for use. `loaded` may be exchanged; budgets outlive it."""

    def __init__(self, loaded: Loaded, plugins: Mapping[str, Plugin], clock: Clock, random: Random) -> None:
        self.loaded = loaded
        self.plugins = plugins
        self._clock = clock
        self._random = random
        http = loaded.settings.http
        self.http = Client(
            clock, settings=HttpSettings(proxy=http.proxy, ca_bundle=http.ca_bundle, client_cert=http.client_cert)
        )
        self._budgets: dict[str, Budget] = {}
        self._saved: dict[str, int] = {}

    async def recall_budgets(self, store: Registry) -> None:
        """Take up the limits that other people's servers told us before we stopped."""
        for document in await store.documents(BUDGETS):
            self._budgets[document.name] = Budget(self._clock, state=document.value)

    async def save_budgets(self, store: Registry) -> None:
        for name, budget in self._budgets.items():
            if self._saved.get(name, 0) == budget.revision:
                continue
            revision = budget.revision
            try:
                await store.put(BUDGETS, name, budget.to_doc())
            except RetryLater as error:
                log.warning("store.trouble", reason=str(error))
                return
            self._saved[name] = revision

    def source(self, feed: Feed) -> Source:
        return source_for(feed, self.loaded, self.plugins, self._host(credential_of(feed, self.loaded), feed.name))

    def reach(self) -> Reach:
        """What the steps of runs may touch."""
        return Reach(
            http=self.http,
            clock=self._clock,
            random=self._random,
            models=models_of(self.loaded),
            destination=self._destination,
            action=self._action,
            workflow_rev=self._workflow_rev,
            allow_shell=self.loaded.settings.steps.allow_shell,
        )

    def _host(self, credential: str, who: str, *, allow_private: bool = False) -> Host:
        budget = self._budgets.get(credential)
        if budget is None:
            budget = self._budgets[credential] = Budget(self._clock, rate=self._rate(credential))
        client = Metered(self.http, budget, who)
        return Host(http=client, clock=self._clock, random=self._random, allow_private=allow_private)

    def _rate(self, credential: str) -> float | None:
        accounts = self.loaded.integrations.values()
        return next((account.rate_limit for account in accounts if account.credential == credential), None)

    def _destination(self, channel: str) -> Destination:
        plugin, account, host = self._service(channel)
        if plugin.destination is None:
            raise NotFound(f"{channel} cannot deliver messages", fix="Use a channel such as webhook")
        return plugin.destination(None, account, host)

    def _action(self, name: str) -> tuple[Act, Any, Host]:
        channel, _, verb = name.rpartition(".")
        plugin, account, host = self._service(channel)
        if verb not in plugin.actions:
            known = ", ".join(plugin.actions) or "none"
            raise NotFound(f"{channel} has no action {verb!r}", fix=f"It has: {known}")
        return plugin.actions[verb], account, host

    def _service(self, name: str) -> tuple[Plugin, Any, Host]:
        account = self.loaded.integrations.get(name)
        plugin = self.plugins.get(account.kind if account else name)
        if plugin is None:
            raise NotFound(f"there is no integration {name!r}", fix="Name one of integrations: in harken.yaml")
        credential = account.credential if account else name
        private = bool(account and account.allow_private)
        return plugin, account.model if account else None, self._host(credential, "steps", allow_private=private)

    def _workflow_rev(self, name: str) -> str | None:
        workflow = self.loaded.workflows.get(name)
        return workflow.rev if workflow else None
