"""Requests to Datadog: two keys, one site, monitors page by page, and errors that say which of the keys is wrong.

https://docs.datadoghq.com/api/latest/authentication/ · https://docs.datadoghq.com/api/latest/monitors/
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from pydantic import Field, SecretStr, field_validator

from harken.errors import Garbled, NeedsAttention
from harken.http import Reply, raise_for
from harken.kit import AccountModel, JsonApi, configure_hint
from harken.kit.credential_field_validation import check_word, split_server_address
from harken.kit.values_from_payload import instant
from harken.outgoing_rate_limit import is_rate_limited
from harken.services.datadog.event import number_of
from harken.source import Host

__all__ = ["Account", "Api", "Page"]

CONFIGURE = configure_hint("datadog")
PAGE_SIZE = 200
MONITOR_PARAMS = {"group_states": "all", "with_downtimes": "true"}
_SITE = re.compile(r"(?=.{4,100}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,30}")


class Account(AccountModel):
    """Two keys and the site that they belong to."""

    api_key: SecretStr = Field(description="API key (Organization Settings, API Keys)")
    app_key: SecretStr = Field(description="application key with the scope monitors_read (Organization Settings)")
    site: str = Field("datadoghq.com", description="site of your account, such as datadoghq.com or us5.datadoghq.com")
    base_url: str = Field("", description="address of the API, if it is not https://api.SITE (a proxy)")

    @field_validator("api_key", "app_key")
    @classmethod
    def _one_word(cls, value: SecretStr) -> SecretStr:
        return SecretStr(check_word(value.get_secret_value(), "a Datadog key: it is one word of letters and digits"))

    @field_validator("site")
    @classmethod
    def _host_name(cls, value: str) -> str:
        # it becomes part of the host that gets the keys, so accept nothing but a host name
        site = value.strip().lower().removeprefix("app.").removeprefix("api.")
        if not _SITE.fullmatch(site):
            raise ValueError("this is not a Datadog site. Write its name alone, such as datadoghq.eu")
        return site

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            split_server_address(value, "the address of an API, such as https://api.datadoghq.com")
        return value.rstrip("/")

    @property
    def api(self) -> str:
        return self.base_url or f"https://api.{self.site}"

    @property
    def web(self) -> str:
        """The address of the web application; sites with a subdomain, such as us5, have no `app.` before it."""
        return f"https://{self.site}" if self.site.count(".") > 1 else f"https://app.{self.site}"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Monitors, and the time of the answer by Datadog's clock. The next page starts after the id `after`.

    `page` is above 0 if only numbered pages work; those drift when monitors are deleted.
    """

    monitors: list[Any]
    at: datetime
    after: int = 0
    page: int = 0
    last: bool = False


class Api(JsonApi):
    """Requests in the name of one account. The API key goes with all of them, the application key with `request`."""

    def __init__(self, account: Account, host: Host) -> None:
        api_key = {"DD-API-KEY": account.api_key.get_secret_value()}
        super().__init__(host, base_url=account.api, headers=api_key, follow_redirects=False)
        self._site = account.site
        self._app_key = {"DD-APPLICATION-KEY": account.app_key.get_secret_value()}

    async def page(self, after: int = 0, page: int = 0) -> Page:
        """The monitors with an id above `after`, ordered by id, so that deletions hide none."""
        numbered = {"page": page, "page_size": PAGE_SIZE, **({} if page else {"id_offset": after})}
        reply = await self.request("GET", "/api/v1/monitor", params={**MONITOR_PARAMS, **numbered})
        raise_for(reply)
        monitors = reply.json()
        if not isinstance(monitors, list):
            raise Garbled(f"{self.name} answered without a list of monitors", fix="Check site and base_url")
        following = self._next_page(monitors, after, page)
        return Page(monitors=monitors, at=self.answered_at(reply), **following)

    def _next_page(self, monitors: list[Any], after: int, page: int) -> Mapping[str, Any]:
        """The position of the next page. Only an empty page is the last: a short one proves nothing."""
        numbers = [number for number in map(number_of, monitors) if number is not None]
        if not monitors or (page and numbers and max(numbers) <= after):
            return {"last": True}
        if not numbers:
            raise Garbled(f"{self.name} lists monitors without ids", fix="Check site and base_url")
        ignored = not page and min(numbers) <= after
        return {"after": max(after, *numbers), "page": page + 1 if page or ignored else 0}

    async def monitors(self) -> AsyncIterator[Any]:
        """Every monitor that the keys may see."""
        page = Page(monitors=[], at=self.host.clock.now())
        while not page.last:
            page = await self.page(page.after, page.page)
            for monitor in page.monitors:
                yield monitor

    async def monitor(self, number: int) -> tuple[Any, datetime] | None:
        """One monitor, and the time of the answer; None if it does not exist."""
        reply = await self.request("GET", f"/api/v1/monitor/{number}", params=MONITOR_PARAMS)
        if reply.status == 404:
            return None
        return self.expect_object(reply), self.answered_at(reply)

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str | int] | None = None, json: Any = None
    ) -> Reply:
        """The reply, whatever its status; raises only if the keys are not accepted."""
        reply = await self.send(method, path, params=params or (), headers=self._app_key, json=json)
        if reply.status in (401, 403) and not is_rate_limited(reply.status, reply.headers):
            raise await self._refusal(reply, path)
        return reply

    def answered_at(self, reply: Reply) -> datetime:
        return instant(reply.headers.get("Date")) or self.host.clock.now()

    async def _refusal(self, reply: Reply, path: str) -> NeedsAttention:
        """Test the API key alone: Datadog answers 403 whichever of the two keys is wrong."""
        alone = await self.get("/api/v1/validate")
        if alone.status in (401, 403) and not is_rate_limited(alone.status, alone.headers):
            fix = f"Check the key and the site ({self._site}), then: {CONFIGURE}"
            return NeedsAttention(f"{self.name} does not accept the API key", fix=fix)
        scope = "monitors_downtime" if "downtime" in path else "monitors_read"
        message = f"{self.name} answered {reply.status}: the application key is wrong, or it lacks the scope {scope}"
        return NeedsAttention(message, fix=f"Make one with that scope, then: {CONFIGURE}")
