"""Google Pub/Sub's REST interface on loopback, with one project: topics, pull subscriptions and their rules.

Google's emulator is not in the package registries, so this server is written by its documentation:
https://cloud.google.com/pubsub/docs/reference/rest
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

import msgspec
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harken.clock import Clock, from_unix
from harken.testing.fakes.server import FakeServer, Handler, json_reply

__all__ = ["EMAIL", "PROJECT", "PubSubServer", "Subscription", "make_key"]

PROJECT = "harken-test"
EMAIL = f"reader@{PROJECT}.iam.gserviceaccount.com"
AUDIENCE = "https://pubsub.googleapis.com/"
POLL_SECONDS = 0.02
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 90.0


@cache
def _key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65_537, key_size=2_048)


def make_key(private_key: RSAPrivateKey | None = None) -> str:
    """The JSON key of the service account; with a private key of your own, one that the server refuses."""
    pem = (private_key or _key()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    fields = {"type": "service_account", "project_id": PROJECT, "private_key_id": "k1"}
    return msgspec.json.encode({**fields, "client_email": EMAIL, "private_key": pem}).decode()


@dataclass(kw_only=True, eq=False)
class Waiting:
    """A message that a subscription still has. It is in flight until `until`."""

    message: Mapping[str, Any]
    attempts: int = 0
    until: float = 0.0


@dataclass(kw_only=True)
class Subscription:
    """`max_attempts` is that of a dead-letter policy, 0 for none; `dead` is what it has moved away."""

    topic: str
    deadline: int = 10
    ordered: bool = False
    max_attempts: int = 0
    exactly_once: bool = False
    waiting: list[Waiting] = field(default_factory=list)
    dead: list[Mapping[str, Any]] = field(default_factory=list)
    most_attempts: int = 0


class PubSubServer(FakeServer):
    """`signed`: requests need a token that the service account has signed. `readable`: settings may be read.

    A frozen server takes requests and answers none.
    """

    def __init__(self, clock: Clock, *, signed: bool = True) -> None:
        super().__init__(clock)
        self.signed = signed
        self.readable = True
        self.topics: set[str] = set()
        self.subscriptions: dict[str, Subscription] = {}
        self._ids = count(10_000_000_000)
        self._running = asyncio.Event()
        self._running.set()

    def routes(self) -> Mapping[str, Handler]:
        return {
            "/v1/projects/{project}/topics/{name}": self._topic,
            "/v1/projects/{project}/subscriptions/{name}": self._subscription,
        }

    def subscribe(self, name: str, topic: str, **settings: Any) -> Subscription:
        """Create the topic if need be, and a subscription that gets what is published from now on."""
        self.topics.add(topic)
        found = self.subscriptions[name] = Subscription(topic=topic, **settings)
        return found

    def publish(self, topic: str, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """Publish messages as the REST interface has them: data in base64, attributes, orderingKey."""
        ids = []
        for message in messages:
            ids.append(str(next(self._ids)))
            sent = {**message, "messageId": ids[-1], "publishTime": from_unix(self.clock.time()).isoformat()}
            for subscription in self.subscriptions.values():
                if subscription.topic == topic:
                    subscription.waiting.append(Waiting(message=sent))
        return ids

    def freeze(self) -> None:
        self._running.clear()

    def thaw(self) -> None:
        self._running.set()

    async def handle(self, request: web.Request, view: Handler) -> web.Response:
        await self._running.wait()
        if self.signed and (why := self._token_problem(request.headers.get("Authorization", ""))):
            return _error(401, "UNAUTHENTICATED", why)
        if request.match_info.get("project") not in (None, PROJECT):
            return _error(403, "PERMISSION_DENIED", "User not authorized to perform this action.")
        reply = await view(request)
        await self._running.wait()
        return reply

    def _token_problem(self, authorization: str) -> str:
        try:
            token = authorization.removeprefix("Bearer ")
            _, claims, signature = (urlsafe_b64decode(part + "==") for part in token.split("."))
            _key().public_key().verify(signature, token.rpartition(".")[0].encode(), PKCS1v15(), SHA256())
            said = msgspec.json.decode(claims)
        except (ValueError, InvalidSignature):
            return "Request had invalid authentication credentials."
        now = self.clock.time()
        good = said["iss"] == said["sub"] == EMAIL and said["aud"] == AUDIENCE and said["exp"] - said["iat"] <= 3_600
        return "" if good and said["iat"] <= now < said["exp"] else "The token is not valid."

    async def _topic(self, request: web.Request) -> web.Response:
        name, _, verb = request.match_info["name"].partition(":")
        if name not in self.topics:
            return _error(404, "NOT_FOUND", f"Resource not found (resource={name}).")
        if (request.method, verb) != ("POST", "publish"):
            return _error(404, "NOT_FOUND", "no such method")
        messages = msgspec.json.decode(await request.read()).get("messages") or []
        if not messages or any(not one.get("data") and not one.get("attributes") for one in messages):
            return _error(400, "INVALID_ARGUMENT", "a message has data or attributes")
        if sum(len(b64decode(one.get("data", ""))) for one in messages) > 10_000_000:
            return _error(400, "INVALID_ARGUMENT", "a request has at most 10 MB")
        return json_reply({"messageIds": self.publish(name, messages)})

    async def _subscription(self, request: web.Request) -> web.Response:
        name, _, verb = request.match_info["name"].partition(":")
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return _error(404, "NOT_FOUND", f"Resource not found (resource={name}).")
        if request.method == "GET":
            return self._describe(name, subscription)
        asked = msgspec.json.decode(await request.read())
        if verb == "pull":
            wait = float(request.headers.get("X-Server-Timeout", LONGEST_WAIT))
            return await self._pull(name, asked["maxMessages"], wait)
        ids = asked.get("ackIds") or []
        if verb == "acknowledge":
            return self._acknowledge(subscription, ids)
        if verb == "modifyAckDeadline":
            return self._modify(subscription, ids, asked["ackDeadlineSeconds"])
        return _error(404, "NOT_FOUND", "no such method")

    def _describe(self, name: str, subscription: Subscription) -> web.Response:
        if not self.readable:
            return _error(403, "PERMISSION_DENIED", "User not authorized to perform this action.")
        return json_reply(
            {
                "name": f"projects/{PROJECT}/subscriptions/{name}",
                "topic": f"projects/{PROJECT}/topics/{subscription.topic}",
                "ackDeadlineSeconds": subscription.deadline,
                "messageRetentionDuration": "604800s",
                "enableMessageOrdering": subscription.ordered,
                "state": "ACTIVE",
            }
        )

    async def _pull(self, name: str, most: int, wait: float) -> web.Response:
        until = self.clock.time() + min(max(wait, SHORTEST_WAIT), LONGEST_WAIT)
        while True:
            await self._running.wait()
            subscription = self.subscriptions.get(name)
            if subscription is None:
                return _error(404, "NOT_FOUND", f"Resource not found (resource={name}).")
            given = self._deliver(subscription, most)
            if given:
                return json_reply({"receivedMessages": given})
            if self.clock.time() >= until:
                return _error(504, "DEADLINE_EXCEEDED", "nothing was published")
            await self.clock.sleep(POLL_SECONDS)

    def _deliver(self, subscription: Subscription, most: int) -> list[dict[str, Any]]:
        now = self.clock.time()
        given: list[dict[str, Any]] = []
        # a key of which something is in flight gives no more, so that its order is kept
        busy = (
            {_ordering_key(one) for one in subscription.waiting if one.until > now} if subscription.ordered else set()
        )
        for one in list(subscription.waiting):
            if len(given) >= most:
                break
            if one.until > now or (_ordering_key(one) and _ordering_key(one) in busy):
                continue
            if subscription.max_attempts and one.attempts >= subscription.max_attempts:
                subscription.waiting.remove(one)
                subscription.dead.append(one.message)
                continue
            one.attempts, one.until = one.attempts + 1, now + subscription.deadline
            subscription.most_attempts = max(subscription.most_attempts, one.attempts)
            delivery = {"ackId": f"{one.message['messageId']}-{one.attempts}", "message": one.message}
            given.append({**delivery, "deliveryAttempt": one.attempts} if subscription.max_attempts else delivery)
        return given

    def _acknowledge(self, subscription: Subscription, ids: Sequence[str]) -> web.Response:
        named = {id.partition("-")[0] for id in ids}
        if subscription.exactly_once:
            valid = {f"{one.message['messageId']}-{one.attempts}" for one in subscription.waiting}
            refused = {id: "PERMANENT_FAILURE_INVALID_ACK_ID" for id in ids if id not in valid}
            named = {id.partition("-")[0] for id in ids if id in valid}
        else:
            refused = {}
        subscription.waiting = [one for one in subscription.waiting if one.message["messageId"] not in named]
        if not refused:
            return json_reply({})
        detail = {"reason": "EXACTLY_ONCE_ACKID_FAILURE", "domain": "pubsub.googleapis.com", "metadata": refused}
        return _error(400, "INVALID_ARGUMENT", "Some ack ids could not be acknowledged.", detail)

    def _modify(self, subscription: Subscription, ids: Sequence[str], seconds: int) -> web.Response:
        if not 0 <= seconds <= 600:
            return _error(400, "INVALID_ARGUMENT", "a deadline is between 0 and 600 seconds")
        for one in subscription.waiting:
            if f"{one.message['messageId']}-{one.attempts}" in ids:
                one.until = self.clock.time() + seconds
        return json_reply({})


def _ordering_key(waiting: Waiting) -> str:
    return str(waiting.message.get("orderingKey", ""))


def _error(status: int, name: str, message: str, *details: Mapping[str, Any]) -> web.Response:
    return json_reply({"error": {"code": status, "message": message, "status": name, "details": details}}, status)
