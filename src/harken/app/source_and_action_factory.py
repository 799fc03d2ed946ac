"""Makes sources, destinations and actions of plugins, accounts, the HTTP client and each credential's rate limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import structlog

from harken.app.agent_code_and_credentials import agent_host
from harken.app.redacting_services import (
    RedactingBell,
    RedactingClient,
    RedactingDestination,
    RedactingPush,
    RedactingSource,
    RedactingTickets,
    redacting_act,
)
from harken.app.ticket_sources import TicketSources
from harken.clock import Clock
from harken.config.feed_sources import credential_of, source_for
from harken.config.loaded import Account, Loaded
from harken.errors import HarkenError, NeedsAttention, NotFound, RetryLater
from harken.feed import Feed
from harken.http import Client, HttpSettings, Metered
from harken.http.known_secret_redaction import redact_error, scrub
from harken.operate.language_models import models_of
from harken.outgoing_rate_limit import Level, RateLimit
from harken.run.plan import Bracket
from harken.run.services_given_to_steps import Environment, unbracketed
from harken.runs import Claimed
from harken.source import Act, Destination, Host, Message, Plugin, PollSource, PushSource, RingingSource, Source
from harken.store import Registry, Store
from harken.store.document_kinds import RATE_LIMIT
from harken.ticket import TicketTracker
from harken.tickets import tracker_of

__all__ = ["Factory"]

log = structlog.get_logger("harken.app")


class Factory:
    """Makes what the configuration describes. `loaded` may be replaced by a reload; the rate limits stay.

    `store` is where trackers remember their tickets; without one they have no sources. `on_delivery` is called with
    the channel and the result of each message.
    """

    def __init__(
        self, loaded: Loaded, plugins: Mapping[str, Plugin], clock: Clock, random: Random, store: Store | None = None
    ) -> None:
        self.loaded = loaded
        self.plugins = plugins
        self._clock = clock
        self._random = random
        http = loaded.settings.http
        settings = HttpSettings(proxy=http.proxy, ca_bundle=http.ca_bundle, client_cert=http.client_cert)
        self.http = Client(clock, settings=settings)
        self._http_of_steps = RedactingClient(clock, settings, self.secrets, self.http.connectivity)
        self._rate_limits: dict[str, RateLimit] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        self._saved: dict[str, int] = {}
        self._saved_in: Registry | None = None
        self.on_delivery: Callable[[str, str], None] = lambda channel, result: None
        self.tickets = TicketSources(self, clock, store)
        self.bracket: Callable[[Claimed], Bracket | None] = unbracketed

    async def load_rate_limits(self, store: Registry, *, save: bool = True) -> None:
        """Load the rate limits that services reported before we stopped; with `save`, changes are stored at once."""
        self._saved_in = store if save else None
        for document in await store.documents(RATE_LIMIT):
            rate = self._rate(document.name)
            self._rate_limits[document.name] = RateLimit(self._clock, rate=rate, state=document.value)

    def budgets(self) -> Mapping[str, Level]:
        """How much of its rate limit each credential has left, as far as it is known."""
        return {name: limit.level for name, limit in self._rate_limits.items()}

    async def _save(self) -> None:
        if self._saved_in is not None:
            await self.save_rate_limits(self._saved_in)

    async def save_rate_limits(self, store: Registry) -> None:
        # a copy: another credential may be added while one is written
        for name, limit in list(self._rate_limits.items()):
            if self._saved.get(name, 0) == limit.revision:
                continue
            revision = limit.revision
            try:
                await store.put(RATE_LIMIT, name, limit.to_doc())
            except RetryLater as error:
                log.warning("store.trouble", reason=str(error))
                return
            self._saved[name] = revision

    async def close(self) -> None:
        await self.http.close()
        await self._http_of_steps.close()

    def secrets(self) -> frozenset[str]:
        """The current secrets, and those from before the last reload."""
        return self.loaded.secrets

    def source(self, feed: Feed) -> Source:
        try:
            return self._ticket_source(feed) if tracker_of(feed.name) else self._service_source(feed)
        except HarkenError as error:
            raise redact_error(error, self.secrets()) from None
        except Exception as error:
            # not its text, which may quote anything; and one bad plugin must not stop the others
            message = f"{feed.kind} broke with {type(error).__name__} before its first call"
            raise NeedsAttention(message, fix="This is a fault of the service's plugin: tell its author") from None

    def _service_source(self, feed: Feed) -> Source:
        client = self._client(credential_of(feed, self.loaded), feed.name)
        host = self._host(credential_of(feed, self.loaded), client)
        source = source_for(feed, self.loaded, self.plugins, host)
        if feed.way == "push" and isinstance(source, PushSource):
            return RedactingPush(source, self.secrets)
        if not isinstance(source, PollSource):
            return source
        by = _configured_by(self.plugins[feed.kind])
        if isinstance(source, RingingSource):
            return RedactingBell(source, source, self.secrets, by, feed.integration, client.service_clock)
        return RedactingSource(source, self.secrets, by, feed.integration, client.service_clock)

    def _ticket_source(self, feed: Feed) -> Source:
        source, client = self.tickets.source(feed), self.tickets.host(tracker_of(feed.name)).http
        clock = client.service_clock if isinstance(client, Metered) else None
        by = _configured_by(self.plugins[feed.kind])
        return RedactingTickets(source, self.secrets, by, feed.integration, clock)

    def trackers(self, name: str) -> Mapping[str, TicketTracker]:
        """What can be asked about the tickets of a tracker, by location."""
        return self.tickets.trackers(name)

    def lend(self, account: Account) -> Host:
        """A host for operations of people on this account; its calls count against the same rate limit."""
        return self.host_for(account, "people")

    def host_for(self, account: Account, who: str) -> Host:
        """A host for this account. Of several users of a credential each gets its share, by the name `who`."""
        client = self._client(account.credential, who)
        return self._host(account.credential, client, allow_private=account.allow_private)

    def channels(self) -> frozenset[str]:
        """The accounts through which messages can be delivered."""
        # only the kinds that are used: to look at one imports its service
        accounts = self.loaded.integrations.values()
        used = {account.kind: self.plugins.get(account.kind) for account in accounts}
        kinds = {kind for kind, plugin in used.items() if plugin is not None and plugin.destination is not None}
        return frozenset(account.name for account in accounts if account.kind in kinds)

    def environment(self) -> Environment:
        """What the steps of runs may touch."""
        return Environment(
            http=self._http_of_steps,
            clock=self._clock,
            random=self._random,
            models=models_of(self.loaded),
            destination=self._destination,
            action=self._action,
            workflow_rev=self._workflow_rev,
            allow_shell=self.loaded.settings.steps.allow_shell,
            allow_python=self.loaded.settings.steps.allow_python,
            agents=agent_host(lambda: self.loaded, self.plugins, self.host_for),
            redact=lambda value: scrub(value, self.secrets()),
            bracket=self._bracket,
        )

    def _bracket(self, claimed: Claimed) -> Bracket | None:
        # looked up each time: it is set when everything else is built
        return self.bracket(claimed)

    def _client(self, credential: str, who: str) -> Metered:
        limit = self._rate_limits.get(credential)
        if limit is None:
            limit = self._rate_limits[credential] = RateLimit(self._clock)
        limit.rate = self._rate(credential)
        return Metered(self.http, limit, who, self._save)

    def _host(self, credential: str, client: Metered, *, allow_private: bool = False) -> Host:
        shared = self._shared.setdefault(credential, {})
        return Host(
            http=client,
            clock=self._clock,
            random=self._random,
            allow_private=allow_private,
            shared=shared,
            directory=str(self.loaded.directory),
            allow_programs=self.loaded.settings.services.allow_programs,
        )

    def _rate(self, credential: str) -> float | None:
        accounts = self.loaded.integrations.values()
        return next((account.rate_limit for account in accounts if account.credential == credential), None)

    def _destination(self, channel: str) -> Destination:
        plugin, account, host = self._service(channel)
        if plugin.destination is None:
            raise NotFound(f"{channel} cannot deliver messages", fix="Use a channel such as webhook")
        redacting = RedactingDestination(plugin.destination(None, account, host), self.secrets, plugin.kind, channel)
        return ObservedDestination(redacting, lambda result: self.on_delivery(channel, result))

    def _action(self, name: str) -> tuple[Act, Any, Host]:
        channel, _, action = name.rpartition(".")
        plugin, account, host = self._service(channel)
        if action not in plugin.actions:
            known = ", ".join(plugin.actions) or "none"
            raise NotFound(f"{channel} has no action {action!r}", fix=f"It has: {known}")
        return redacting_act(plugin.actions[action], self.secrets, _configured_by(plugin), channel), account, host

    def _service(self, name: str) -> tuple[Plugin, Any, Host]:
        account = self.loaded.integrations.get(name)
        plugin = self.plugins.get(account.kind if account else name)
        if plugin is None:
            raise NotFound(f"there is no integration {name!r}", fix="See: harken integrations list")
        account = account or self.loaded.integrations.get(plugin.kind)
        if account is None and plugin.account is not None:
            fix = f"Run: harken integrations {plugin.kind} configure"
            raise NotFound(f"there is no account of {plugin.kind}", fix=fix)
        credential = account.credential if account else name
        private = bool(account and account.allow_private)
        host = self._host(credential, self._client(credential, "steps"), allow_private=private)
        return plugin, account.model if account else None, host

    def _workflow_rev(self, name: str) -> str | None:
        workflow = self.loaded.workflows.get(name)
        return workflow.rev if workflow else None


class ObservedDestination:
    """Reports how each delivery ended: `delivered`, `rate_limited` or `failed`."""

    def __init__(self, destination: Destination, observe: Callable[[str], None]) -> None:
        self._destination = destination
        self._observe = observe

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        try:
            answer = await self._destination.deliver(message)
        except Exception as error:
            limited = isinstance(error, RetryLater) and error.reason == "rate_limited"
            self._observe("rate_limited" if limited else "failed")
            raise
        self._observe("delivered")
        return answer


def _configured_by(plugin: Plugin) -> str:
    """The service whose `configure` command sets this one's credential."""
    return plugin.uses or plugin.kind
