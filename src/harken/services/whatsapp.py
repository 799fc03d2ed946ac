"""WhatsApp: messages from a business number, through Meta's Cloud API.

https://developers.facebook.com/docs/whatsapp/cloud-api/reference/messages. Errors are classified by their code, as Meta
advises, not by their status (a missing permission has status 500).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http import Reply, raise_for
from harken.kit import AccountModel, configure_hint
from harken.kit.message_text import cut, one_line, title_and_text
from harken.kit.values_from_payload import text_of
from harken.outgoing_rate_limit import requested_wait
from harken.source import Host, Message, Plugin

__all__ = ["Account", "plugin", "whoami"]

LIMIT = 4096
PARAMETER_LENGTH = 900
"""Characters of a template's value: with the template's own text, the limit is 1,024."""
CONFIGURE = configure_hint("whatsapp")
_PERSON_SUFFIX = "@s.whatsapp.net"
_PHONE = re.compile(r"[1-9][0-9]{5,14}")
_WRITTEN_NUMBER = re.compile(r"\+?[0-9][0-9 ()./-]*")
_TEMPLATE = re.compile(r"[a-z0-9_]{1,512}")
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Za-z]{2,4})?")
_RATE_LIMITED = frozenset({4, 80007, 130429, 131056})
_TEMPORARY = frozenset({1, 2, 131000, 131016, 131057, 133004})
_CREDENTIAL = frozenset({0, 3, 10, 190, *range(200, 300)})
_USE_TEMPLATE = "Name an approved template: `template:` of the integration, or data: {template: …} of the step"
_KNOWN_ERRORS = {
    131026: ("the message cannot reach this number", "Check that the number is on WhatsApp and has not blocked yours"),
    131030: ("the number is not among those that a test number may write to", "Add it in the app's API setup"),
    131031: ("Meta has locked the account", "See the Business Manager"),
    131042: ("the account has no valid payment method", "See the account's payment settings"),
    131047: ("more than 24 hours have passed since this person last wrote", _USE_TEMPLATE),
    131048: ("too many of your messages were taken for spam", "See the quality rating in the WhatsApp Manager"),
    132000: ("the template takes another number of values", "Use a template whose body has one, {{1}}"),
    132001: ("there is no such template in this language", "Check its name and language, and that it is approved"),
    132015: ("the template is paused because of its quality", "Change it in the WhatsApp Manager, or use another"),
    133010: ("the phone number is not registered", "Register it with the Cloud API"),
}


class Account(AccountModel):
    """A business phone number."""

    token: SecretStr = Field(description="access token of a system user, with whatsapp_business_messaging")
    phone_number_id: str = Field(pattern=r"^[0-9]{5,25}$", description="id of your number (not the number itself)")
    template: str = Field("", pattern=r"^[a-z0-9_]{0,512}$", description="approved template with one value, {{1}}")
    language: str = Field("en", pattern=r"^[a-z]{2,3}(_[A-Za-z]{2,4})?$", description="language of the template")
    version: str = Field("v23.0", pattern=r"^v[0-9]{2}\.[0-9]$", description="version of the Graph API")
    base_url: str = Field("https://graph.facebook.com", description="address of the Graph API")


class WhatsAppDestination:
    """Writes to people. The API has no idempotency key: a message whose answer was lost can appear twice."""

    def __init__(self, account: Account, host: Host) -> None:
        self._account = account
        self._url = f"{account.base_url.rstrip('/')}/{account.version}/{account.phone_number_id}"
        self._headers = {"Authorization": f"Bearer {account.token.get_secret_value().strip()}"}
        self._host = host

    async def deliver(self, message: Message) -> Mapping[str, Any]:
        recipient = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": _phone(message.to)}
        body = await self.call("POST", "/messages", {**recipient, **self._content(message)})
        sent = body.get("messages")
        first = sent[0] if isinstance(sent, list) and sent else {}
        if not text_of(first, "id"):
            server = urlsplit(self._url).hostname
            raise RetryLater(f"{server} did not answer like WhatsApp", fix="Check base_url if this persists")
        return {"message_id": text_of(first, "id") or "", "status": text_of(first, "message_status") or "accepted"}

    async def call(self, method: str, path: str, json: Any = None, fields: str = "") -> Mapping[str, Any]:
        reply = await self._host.request(
            method,
            self._url + path,
            json=json,
            params={"fields": fields} if fields else None,
            headers=self._headers,
            follow_redirects=False,
        )
        body = _body(reply)
        code = body.get("error", {}).get("code") if isinstance(body.get("error"), dict) else None
        if isinstance(code, int):
            raise _to_harken_error(code, reply)
        raise_for(reply, what="a message", fix=f"Check phone_number_id and base_url: {CONFIGURE}")
        return body

    def _content(self, message: Message) -> dict[str, Any]:
        name, language = self._template(message.data)
        if not name:
            return {"type": "text", "text": {"body": cut(title_and_text(message), LIMIT), "preview_url": False}}
        # WhatsApp refuses values with line ends or many consecutive spaces
        value = {"type": "text", "text": cut(one_line(title_and_text(message)), PARAMETER_LENGTH)}
        body = [{"type": "body", "parameters": [value]}]
        return {"type": "template", "template": {"name": name, "language": {"code": language}, "components": body}}

    def _template(self, data: Mapping[str, Any]) -> tuple[str, str]:
        name, language = data.get("template", self._account.template), data.get("language", self._account.language)
        if name in ("", None, False):
            return "", ""
        if not isinstance(name, str) or not _TEMPLATE.fullmatch(name):
            fix = "Write it as the WhatsApp Manager does"
            raise NeedsAttention("data.template is not the name of a template", fix=fix)
        if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
            raise NeedsAttention("data.language is not the language of a template", fix="Write it like en, or pt_BR")
        return name, language


def _body(reply: Reply) -> Mapping[str, Any]:
    try:
        body = reply.json()
    except RetryLater:
        # a gateway's error page: its status says what it means
        raise_for(reply, what="a message", fix=f"Check base_url: {CONFIGURE}")
        raise
    return body if isinstance(body, dict) else {}


def _to_harken_error(code: int, reply: Reply) -> HarkenError:
    message = f"WhatsApp answered with error {code}"
    after = requested_wait(reply.status, reply.headers, reply.at)
    if code in _RATE_LIMITED:
        return RetryLater(f"{message}: too many messages", after=after, reason="rate_limited")
    if code in _TEMPORARY:
        return RetryLater(message, after=after)
    if code in _CREDENTIAL:
        fix = f"Make a token of a system user with whatsapp_business_messaging, then: {CONFIGURE}"
        return NeedsAttention(f"{message}: the token is not accepted, or lacks a permission", fix=fix)
    why, fix = _KNOWN_ERRORS.get(code, ("", "See Meta's list of error codes of the Cloud API"))
    return NeedsAttention(f"{message}: {why}" if why else message, fix=fix)


def _phone(to: str) -> str:
    """The digits of the number, with the country code. Also accepts a JID of other WhatsApp programs."""
    text = to.strip()
    if text.endswith("@g.us"):
        why = "this is a group, and the Cloud API writes only to people (not to groups made in the app)"
        raise NeedsAttention(why, fix="Write the number of a person, or use another channel for the group")
    if text.endswith(_PERSON_SUFFIX):
        # a JID may have the number of a device after the phone number
        text = text.removesuffix(_PERSON_SUFFIX).partition(":")[0]
    digits = re.sub(r"[^0-9]", "", text).removeprefix("00") if _WRITTEN_NUMBER.fullmatch(text) else ""
    if not _PHONE.fullmatch(digits):
        fix = "Write it with the country's code, such as +49 151 23456789"
        raise NeedsAttention("`to` is not a phone number", fix=fix)
    return digits


def _destination(query: object, account: Account, host: Host) -> WhatsAppDestination:
    return WhatsAppDestination(account, host)


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The number that messages come from."""
    fields = {"id": "id", "number": "display_phone_number", "name": "verified_name", "quality": "quality_rating"}
    body = await WhatsAppDestination(account, host).call("GET", "", fields=",".join(fields.values()))
    return {name: text_of(body, path) or "" for name, path in fields.items()}


plugin = Plugin(
    kind="whatsapp",
    summary="Messages from a WhatsApp business number",
    docs="reference/services/whatsapp.md",
    account=Account,
    destination=_destination,
    recipient=_phone,
    whoami=whoami,
    environment={
        "WHATSAPP_TOKEN": "token",
        "WHATSAPP_PHONE_NUMBER_ID": "phone_number_id",
        "WHATSAPP_TEMPLATE": "template",
        "WHATSAPP_LANGUAGE": "language",
        "WHATSAPP_BASE_URL": "base_url",
    },
)
