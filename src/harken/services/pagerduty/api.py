"""A PagerDuty account, requests in its name, and what each error status asks the user to do.

https://developer.pagerduty.com/docs/authentication · https://developer.pagerduty.com/docs/errors
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator

from harken.http import Reply
from harken.kit import AccountModel, configure_hint
from harken.kit.credential_field_validation import one_word, split_server_address
from harken.kit.json_api import JsonApi, Params
from harken.source import Host

__all__ = ["Account", "Api", "Id"]

CONFIGURE = configure_hint("pagerduty")
_FIXES = {
    400: "Check that the ids are ids of this account",
    401: f"The token is wrong, expired or revoked: store a valid one with {CONFIGURE}",
    402: "The account's plan does not have what was asked for: leave out teams or urgencies",
    403: "The token may not do this: reading takes a read-only key (scope incidents.read), "
    f"writing a full one (incidents.write). Store one with {CONFIGURE}",
    404: "Check the id, and base_url (accounts in the EU: https://api.eu.pagerduty.com)",
}


def _check_id(value: str) -> str:
    """Refuse names: for a name instead of an id, the API finds nothing and gives no error."""
    if not (value.isascii() and value.replace("-", "").replace("_", "").isalnum() and len(value) <= 64):
        raise ValueError("this is not a PagerDuty id. It looks like P1ABC23, the end of the address of its page")
    return value


Id = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value), AfterValidator(_check_id)
]


class Account(AccountModel):
    """A REST API key, and the user in whose name it writes."""

    token: Annotated[SecretStr, one_word("an API key")] = Field(
        description="REST API key: your own (My Profile, User Settings), or a general one"
    )
    base_url: str = Field(
        "https://api.pagerduty.com", description="address of the API (in the EU: https://api.eu.pagerduty.com)"
    )
    from_email: str = Field(
        "", description="e-mail address of a PagerDuty user, in whose name a general key writes (optional)"
    )

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        split_server_address(value, "an address of an API, such as https://api.pagerduty.com")
        return value.rstrip("/")

    @field_validator("from_email")
    @classmethod
    def _mail(cls, value: str) -> str:
        value = value.strip()
        if value and ("@" not in value or " " in value or not value.isprintable()):
            raise ValueError("this is not an e-mail address")
        return value


class Api(JsonApi):
    """Requests in the name of one account. `sender` is the e-mail address of the user who writes."""

    def __init__(self, account: Account, host: Host) -> None:
        headers = {
            "Authorization": f"Token token={account.token.get_secret_value()}",
            "Accept": "application/vnd.pagerduty+json;version=2",
        }
        super().__init__(host, base_url=account.base_url, headers=headers, fixes=_FIXES)
        self._from_email = account.from_email

    async def read(self, *path: str, params: Params = ()) -> dict[str, Any]:
        """GET, and return the object in the reply; anything else raises."""
        return self.expect_object(await self.get(self.url(*path), params))

    async def write(self, method: str, *path: str, json: Any, sender: str = "") -> Reply:
        sender = sender or self._from_email
        return await self.send(method, self.url(*path), json=json, headers={"From": sender} if sender else None)
