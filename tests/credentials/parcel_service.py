"""A small service for tests: parcels, with a Basic credential, names to check, and an action."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from harken.errors import NeedsAttention
from harken.event import Event
from harken.http import Reply, raise_for
from harken.source import Act, Batch, Call, Checked, Host, Plugin


class Account(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: SecretStr = Field(description="API token of your depot, from Settings")
    user: str = Field(default="", description="your e-mail address")
    base_url: str = Field(default="https://parcel.invalid", description="address of the depot's API")
    scopes: list[str] = Field(default_factory=list, description="what the token may do")

    @field_validator("token")
    @classmethod
    def _ours(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value().startswith("user-"):
            raise ValueError(f"{value.get_secret_value()} is a user token; a depot token is needed")
        return value


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    depots: list[str] = Field(default_factory=list)
    allow_private_networks: bool = False


class Note(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str


async def ask(account: Account, host: Host, path: str, method: str = "GET") -> Any:
    token = account.token.get_secret_value()
    basic = base64.b64encode(f"{account.user}:{token}".encode()).decode()
    sent = {"Authorization": f"Basic {basic}", "X-Token": token}
    reply = await host.http.request(method, account.base_url + path, headers=sent, allow_private=host.allow_private)
    complain(reply)
    return reply.json()


def complain(reply: Reply) -> None:
    """A careless author: what the server says goes into the error."""
    if reply.status == 418:
        raise ValueError(reply.text())
    if reply.status == 401:
        raise NeedsAttention(f"no: {reply.text()} {dict(reply.headers)}", fix=f"Not {reply.text()}")
    raise_for(reply)


class Source:
    def __init__(self, query: Query, account: Account, host: Host) -> None:
        self.account, self.host = account, host

    async def poll(self, cursor: Any, since: datetime) -> Batch:
        items = await ask(self.account, self.host, "/parcels")
        return Batch(events=[event(item) for item in items])


def event(item: dict[str, Any]) -> Event:
    at = datetime.fromtimestamp(item["at"], UTC)
    return Event(subject=item["key"], type="parcel", data=item, occurred_at=at)


async def whoami(account: Account, host: Host) -> dict[str, Any]:
    found = await ask(account, host, "/me")
    return {"id": found["id"], "name": found["name"], "echo": found.get("echo", "")}


async def check(query: Query, account: Account, host: Host) -> Checked:
    known = await ask(account, host, "/depots")
    found = {depot: known[depot] for depot in query.depots if depot in known}
    unknown = [f"there is no depot {depot}. See: harken integrations parcel whoami" for depot in query.depots]
    return Checked(found=found, unknown=[line for line in unknown if line.split()[4].rstrip(".") not in known])


async def note(call: Call) -> Any:
    return await ask(call.account, call.host, f"/notes/{call.params.text}", "POST")


plugin = Plugin(
    kind="parcel",
    account=Account,
    query=Query,
    source=Source,
    whoami=whoami,
    check=check,
    actions={"note": Act(params=Note, run=note)},
    environment={"PARCEL_TOKEN": "token", "PARCEL_USER": "user", "PARCEL_BASE_URL": "base_url"},
    floor_seconds=1.0,
)
