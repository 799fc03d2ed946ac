"""Requests of Slack that start runs: its Events API, buttons and forms, and slash commands.

Slack tries again with the same event_id, and shows people what a button is answered: so the answer is empty.
https://docs.slack.dev/authentication/verifying-requests-from-slack
https://docs.slack.dev/apis/events-api
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from harken.errors import Malformed
from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_body import form_in, json_in
from harken.kit.webhook_receiver import Receiver, ReceiverQuery, Sent, make_sample
from harken.kit.webhook_signatures import check_age, check_hex_signature, hex_signature
from harken.source import Handshake, Host, Request

__all__ = ["SlackReceiver", "receiver", "sample"]

_STAMP = "x-slack-request-timestamp"


class SlackReceiver(Receiver):
    empty_answer = True

    def _sent(self, request: Request) -> Sent:
        """Buttons and forms send a form with JSON in `payload`, slash commands a form of fields."""
        fields = form_in(request)
        body = request.body if fields is None else fields.get("payload", "").encode()
        data = fields if fields and not body else json_in(body)[0]
        if not isinstance(data, dict):
            raise Malformed("neither a JSON object nor a form with one in payload, nor a command")
        # the old proof of where it comes from, which should be seen by nobody
        return Sent(request=request, data={name: value for name, value in data.items() if name != "token"})


def verify(request: Request, secret: str) -> None:
    stamp = request.headers.get(_STAMP, "")
    check_age(stamp, _STAMP, request.received_at)
    signed = b"v0:" + stamp.encode() + b":" + request.body
    check_hex_signature(request, "x-slack-signature", secret, prefix="v0=", signed=signed)


def translate(sent: Sent) -> list[Event]:
    """The event. Of a new address Slack wants its challenge back, and asks now and then whether its TLS works."""
    kind = text_of(sent.data, "type")
    if kind == "url_verification":
        raise Handshake({"challenge": text_of(sent.data, "challenge") or ""})
    if "ssl_check" in sent.data:
        return []
    if command := text_of(sent.data, "command"):
        return [_interaction(sent, "command", text_of(sent.data, "channel_id"), command)]
    if not kind:
        raise Malformed("there is no type in it")
    key = text_of(sent.data, "event_id")
    if not key:
        return [_interaction(sent, kind, text_of(sent.data, "channel.id"), text_of(sent.data, "message.ts"))]
    return [_told(sent, key)]


def _told(sent: Sent, key: str) -> Event:
    """What the Events API tells; messages are named by their channel and time, as polls name them."""
    about = text_of(sent.data, "event.channel") or text_of(sent.data, "event.item.channel")
    ts = text_of(sent.data, "event.ts") or text_of(sent.data, "event.item.ts")
    at: datetime | None = instant(sent.data.get("event_time")) or instant(text_of(sent.data, "event.event_ts"))
    type = text_of(sent.data, "event.type") or "event"
    return sent.event(type=f"slack.{type}", key=key, subject=f"{about}/{ts}" if about and ts else "", at=at)


def _interaction(sent: Sent, kind: str, channel: str | None, name: str | None) -> Event:
    key = text_of(sent.data, "trigger_id") or sent.digest
    subject = "/".join(part for part in (channel, name) if part) or text_of(sent.data, "view.id") or ""
    return sent.event(type=f"slack.{kind}", key=key, subject=subject)


def receiver(query: ReceiverQuery, account: object, host: Host) -> SlackReceiver:
    return SlackReceiver(query, verify, translate)


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    stamp = str(int(now.timestamp()))
    signature = hex_signature(secret, b"v0:" + stamp.encode() + b":" + body)
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={signature}"}


sample = make_sample(
    {"type": "event_callback", "event_id": "$ID", "event": {"type": "message", "channel": "C1", "text": "A sample"}},
    _sign,
)
