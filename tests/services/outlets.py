"""What is at the other end of each destination, as the contract and the tests of the services look at it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from harken.clock import Clock
from harken.services import apprise, discord, email, ntfy, telegram, webhook, whatsapp
from harken.services.slack.actions import SlackDestination
from harken.source import Destination, Host
from harken.testing.destination import Refusal
from harken.testing.fakes.discord import HOOK_TOKEN, FakeDiscord
from harken.testing.fakes.discord import TOKEN as DISCORD
from harken.testing.fakes.ntfy import PASSWORD as NTFY_PASSWORD
from harken.testing.fakes.ntfy import TOKEN as NTFY
from harken.testing.fakes.ntfy import FakeNtfy
from harken.testing.fakes.server import Answer, FakeServer, Handler
from harken.testing.fakes.slack import TOKEN as SLACK
from harken.testing.fakes.slack import FakeSlack
from harken.testing.fakes.smtp_server import PASSWORD, FakeMail
from harken.testing.fakes.telegram import TOKEN as TELEGRAM
from harken.testing.fakes.telegram import FakeTelegram
from harken.testing.fakes.whatsapp import NUMBER, FakeWhatsApp
from harken.testing.fakes.whatsapp import TOKEN as WHATSAPP
from tests.services.slack_world import account as slack_account

APPRISE, WEBHOOK, HOOK_KEY = "fake-apprise-password-0123", "fake-webhook-secret-0123", "fake-webhook-key-0123"


class FakeHook(FakeServer):
    """Takes messages as JSON at /hook. With `keyed`, it shows those of one Idempotency-Key once."""

    keyed = False

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.sent: list[Mapping[str, Any]] = []
        self._keys: set[str] = set()

    def routes(self) -> Mapping[str, Handler]:
        return {"/hook": self._hook}

    async def _hook(self, request: web.Request) -> web.Response:
        key = request.headers.get("Idempotency-Key", "")
        if not (self.keyed and key and key in self._keys):
            self.sent.append(msgspec.json.decode(await request.read()))
        self._keys.add(key)
        return web.Response()


def statuses(why: Refusal, seconds: int) -> Answer:
    """How a plain web server refuses."""
    status: Mapping[Refusal, int] = {"credential": 401, "recipient": 404, "limited": 429, "down": 503}
    return Answer(status=status[why], headers={"Retry-After": str(seconds)} if why == "limited" else {})


class OnApprise:
    to, shows_repeats_once, tells_wait = "phone", False, False
    secrets: Sequence[str] = (APPRISE,)

    def __init__(self, fake: FakeHook, host: Host) -> None:
        self._fake = fake
        url = f"json://ana:{APPRISE}@{fake.url.removeprefix('http://')}/hook"
        self.account = apprise.Account.model_validate({"urls": {"phone": url}})
        self.destination: Destination = apprise.AppriseDestination(self.account, host)

    def shown(self) -> Sequence[str]:
        return [f"{one['title']}\n{one['message']}" for one in self._fake.sent]

    def refuse(self, why: Refusal, seconds: int) -> None:
        self._fake.answers.append(statuses(why, seconds))


class OnWebhook:
    shows_repeats_once, tells_wait = True, True
    secrets: Sequence[str] = (WEBHOOK, HOOK_KEY)

    def __init__(self, fake: FakeHook, host: Host) -> None:
        self._fake = fake
        fake.keyed = True
        self.to = f"{fake.url}/hook?key={HOOK_KEY}"
        self.account = webhook.OutgoingQuery.model_validate({"secret": WEBHOOK})
        self.destination: Destination = webhook.Outgoing(self.account, host)

    def shown(self) -> Sequence[str]:
        return [f"{one['title']}\n{one['text']}" for one in self._fake.sent]

    def refuse(self, why: Refusal, seconds: int) -> None:
        self._fake.answers.append(statuses(why, seconds))


class OnTelegram:
    to, shows_repeats_once, tells_wait = "42", False, True
    secrets: Sequence[str] = (TELEGRAM,)

    def __init__(self, fake: FakeTelegram, host: Host, **fields: Any) -> None:
        self._fake = fake
        account = telegram.Account.model_validate({"token": TELEGRAM, "base_url": fake.url, **fields})
        self.destination: Destination = telegram.TelegramDestination(account, host)

    def shown(self) -> Sequence[str]:
        return [text for _, text in self._fake.sent]

    def refuse(self, why: Refusal, seconds: int) -> None:
        troubles: Mapping[Refusal, tuple[int, str, Mapping[str, Any]]] = {
            "credential": (401, "Unauthorized", {}),
            "recipient": (403, "Forbidden: bot was blocked by the user", {}),
            "limited": (429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds}),
            "down": (502, "Bad Gateway", {}),
        }
        self._fake.trouble.append(troubles[why])


class OnDiscord:
    tells_wait = True

    def __init__(self, fake: FakeDiscord, host: Host, *, hook: bool) -> None:
        self._fake = fake
        self.shows_repeats_once = not hook
        self.to = "78" if hook else "77"
        self.secrets: Sequence[str] = (HOOK_TOKEN, DISCORD)
        credential = {"webhook_url": fake.webhook_url} if hook else {"token": DISCORD}
        self.account = discord.Account.model_validate({**credential, "base_url": fake.url})
        self.destination: Destination = discord.DiscordDestination(self.account, host)

    def shown(self) -> Sequence[str]:
        return [one["content"] for one in self._fake.sent]

    def refuse(self, why: Refusal, seconds: int) -> None:
        troubles: Mapping[Refusal, tuple[int, int, Mapping[str, Any]]] = {
            "credential": (401, 0, {}),
            "recipient": (404, 10003, {}),
            "limited": (429, 0, {"retry_after": float(seconds), "global": False}),
            "down": (503, 0, {}),
        }
        self._fake.trouble.append(troubles[why])


class OnNtfy:
    to, shows_repeats_once, tells_wait = "private", True, True
    secrets: Sequence[str] = (NTFY, NTFY_PASSWORD)

    def __init__(self, fake: FakeNtfy, host: Host, **fields: Any) -> None:
        self._fake = fake
        self.account = ntfy.Account.model_validate({"base_url": fake.url, **(fields or {"token": NTFY})})
        self.destination: Destination = ntfy.NtfyDestination(self.account, host)

    def shown(self) -> Sequence[str]:
        return ["\n".join([one.get("title", ""), one["message"]]) for one in self._fake.shown()]

    def refuse(self, why: Refusal, seconds: int) -> None:
        statuses: Mapping[Refusal, int] = {"credential": 401, "recipient": 403, "limited": 429, "down": 500}
        headers = {"Retry-After": str(seconds)} if why == "limited" else {}
        self._fake.answers.append(Answer(status=statuses[why], headers=headers, body=b'{"code": 1}'))


class OnWhatsApp:
    to, shows_repeats_once, tells_wait = "+49 151 23456789", False, True
    secrets: Sequence[str] = (WHATSAPP,)

    def __init__(self, fake: FakeWhatsApp, host: Host, **fields: Any) -> None:
        self._fake = fake
        given = {"token": WHATSAPP, "phone_number_id": NUMBER, "base_url": fake.url, **fields}
        self.account = whatsapp.Account.model_validate(given)
        self.destination: Destination = whatsapp.WhatsAppDestination(self.account, host)

    def shown(self) -> Sequence[str]:
        return [_whatsapp_text(one) for one in self._fake.sent]

    def refuse(self, why: Refusal, seconds: int) -> None:
        troubles: Mapping[Refusal, tuple[int, int, Mapping[str, str]]] = {
            "credential": (401, 190, {}),
            "recipient": (400, 131026, {}),
            "limited": (429, 130429, {"Retry-After": str(seconds)}),
            "down": (503, 131016, {}),
        }
        self._fake.trouble.append(troubles[why])


def _whatsapp_text(said: Mapping[str, Any]) -> str:
    template = said.get("template")
    return str(template["components"][0]["parameters"][0]["text"] if template else said["text"]["body"])


class OnSlack:
    to, shows_repeats_once, tells_wait = "C1", True, True
    secrets: Sequence[str] = (SLACK,)

    def __init__(self, fake: FakeSlack, host: Host) -> None:
        self._fake = fake
        self.destination: Destination = SlackDestination(slack_account(fake), host)

    def shown(self) -> Sequence[str]:
        return [html.unescape(one.fields["text"]) for one in self._fake.channels["C1"].messages.values()]

    def refuse(self, why: Refusal, seconds: int) -> None:
        bodies = {"credential": b"invalid_auth", "recipient": b"channel_not_found", "limited": b"ratelimited"}
        headers = {"Retry-After": str(seconds)} if why == "limited" else {}
        status = {"limited": 429, "down": 503}.get(why, 200)
        body = b'{"ok": false, "error": "%s"}' % bodies.get(why, b"internal_error")
        self._fake.answers.append(Answer(status=status, headers=headers, body=body))


class OnMail:
    to, shows_repeats_once, tells_wait = "ana@example.com", True, False
    secrets: Sequence[str] = (PASSWORD,)

    def __init__(self, fake: FakeMail, host: Host, **fields: Any) -> None:
        self._fake = fake
        signed = {"username": "ana", "password": PASSWORD, "ca_bundle": str(fake.ca_bundle)}
        given = {"host": "127.0.0.1", "port": fake.port, "sender": "Harken <harken@example.com>", "timeout": 5}
        self.account = email.Account.model_validate({**given, **(fields or signed)})
        self.destination: Destination = email.EmailDestination(self.account, host)

    def shown(self) -> Sequence[str]:
        return [f"{letter['Subject']}\n{letter.get_content()}" for letter in self._fake.mailbox()]

    def refuse(self, why: Refusal, seconds: int) -> None:
        answers: Mapping[Refusal, tuple[str, str]] = {
            "credential": ("AUTH", f"535 5.7.8 wrong: {PASSWORD}"),
            "recipient": ("RCPT", "550 5.1.1 no such user"),
            "limited": ("MAIL", "450 4.7.1 slow down"),
            "down": ("DATA", "451 4.3.0 the disk is full"),
        }
        self._fake.refusals |= dict([answers[why]])
