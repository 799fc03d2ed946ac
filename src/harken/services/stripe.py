"""Stripe: webhooks, verified with the signing secret of their endpoint.

https://docs.stripe.com/webhooks#verify-manually
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import Field

from harken.errors import Malformed, Unauthorized
from harken.event import Event
from harken.kit.values_from_payload import instant, text_of
from harken.kit.webhook_receiver import Receiver, ReceiverQuery, Sent, make_sample
from harken.kit.webhook_signatures import TOLERANCE, check_age, check_signature_list, hex_signature
from harken.source import Host, Plugin, Request

__all__ = ["StripeQuery", "plugin"]

_HEADER = "stripe-signature"


class StripeQuery(ReceiverQuery):
    """The signing secret of the endpoint (whsec_…), and how old a request may be."""

    tolerance: float = Field(TOLERANCE, gt=0, description="seconds that the signed time may be off")


def verify(request: Request, secret: str, tolerance: float) -> None:
    given = request.headers.get(_HEADER, "")
    if not given:
        raise Unauthorized(f"the signature in {_HEADER} is missing")
    parts = [part.partition("=") for part in given.split(",")]
    stamp = next((value for name, _, value in parts if name == "t"), "")
    check_age(stamp, _HEADER, request.received_at, tolerance)
    # Stripe signs the number, which a header may show with zeros before it
    check_signature_list(request, _HEADER, secret, prefix="v1=", signed=b"%d.%b" % (int(stamp), request.body))


def translate(sent: Sent) -> list[Event]:
    kind, key = text_of(sent.data, "type"), text_of(sent.data, "id")
    if not kind or not key:
        raise Malformed("there is no event with an id and a type in it")
    # thin events have related_object and an RFC 3339 time in place of data.object
    about = text_of(sent.data, "data.object.id") or text_of(sent.data, "related_object.id") or ""
    return [sent.event(type=f"stripe.{kind}", key=key, subject=about, at=instant(sent.data.get("created")))]


def _receiver(query: StripeQuery, account: object, host: Host) -> Receiver:
    return Receiver(query, lambda request, secret: verify(request, secret, query.tolerance), translate)


def _sign(secret: str, body: bytes, now: datetime) -> Mapping[str, str]:
    stamp = int(now.timestamp())
    return {"Stripe-Signature": f"t={stamp},v1={hex_signature(secret, b'%d.%b' % (stamp, body))}"}


sample = make_sample({"id": "$ID", "type": "invoice.paid", "data": {"object": {"id": "in_sample"}}}, _sign)


plugin = Plugin(
    kind="stripe",
    summary="Webhooks of Stripe",
    docs="reference/services/stripe.md",
    webhook_query=StripeQuery,
    webhook=_receiver,
    webhook_sample=sample,
    identity="change",
    first="deliver",
)
