"""One MQTT 5 connection, in a thread of its own: what comes is handed to the event loop, and only it acknowledges."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from harken.errors import HarkenError, NeedsAttention, NoConnection, RetryLater
from harken.extras import how_to_install
from harken.http.error_translation import connection_fault
from harken.kit.sockets import allowed_addresses, connect

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

__all__ = ["Connection", "Ended", "Pong", "Server"]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
KEEPALIVE_SECONDS = 30
LOOP_SECONDS = 0.2
"""So often the thread looks whether it is to end."""
STOP_SECONDS = 1.5
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_MOST_IN_FLIGHT = 65_535
# reason codes of MQTT 5: https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html, 2.4
_NOT_VERSION_5 = (1, 132)
_CLIENT_ID = (2, 133)
_CREDENTIAL = (4, 5, 134, 135, 138, 140)
_TAKEN_OVER = 142
_REFUSED_TOPIC = (135, 143, 144)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is, and how we sign in."""

    host: str
    port: int
    tls: bool
    username: str
    password: str
    ca_bundle: str

    @classmethod
    def at(cls, url: str, ca_bundle: str = "") -> Server:
        """Raise ValueError unless it is an mqtt:// or mqtts:// address."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError("this is not the address of a broker; write mqtt://user:password@host:1883 or mqtts://")
        return cls(
            host=parts.hostname,
            port=parts.port or _PORTS[parts.scheme],
            tls=parts.scheme == "mqtts",
            username=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            ca_bundle=ca_bundle,
        )

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


class Pong(msgspec.Struct, frozen=True):
    """The broker answered a ping."""


class Ended(msgspec.Struct, frozen=True):
    """The connection is over: by what was raised, or with the broker's reason."""

    error: Exception | None = None
    reason: int = 0


class _Connected(msgspec.Struct, frozen=True):
    session_present: bool
    reason: int


class _Answered(msgspec.Struct, frozen=True):
    """Reason codes, of each topic filter or of the message that was published."""

    reasons: tuple[int, ...]


class Connection:
    """`open` it first, `close` it at the end. Messages, pongs and the end are in `received`, in their order.

    A broker has at most `in_flight` messages under way to us that are not acknowledged. Without a `client_id` there is
    no session that lasts.
    """

    def __init__(
        self,
        server: Server,
        *,
        allow_private: bool,
        client_id: str = "",
        in_flight: int = 100,
        session_seconds: int = 0,
    ) -> None:
        self.received: asyncio.Queue[MQTTMessage | Pong | Ended] = asyncio.Queue()
        self._server = server
        self._client_id = client_id
        self._in_flight = min(in_flight, _MOST_IN_FLIGHT)
        self._session_seconds = session_seconds
        self._allow_private = allow_private
        self._answers: asyncio.Queue[_Connected | _Answered | Ended] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        # messages of QoS 0 are not limited by the protocol: the thread waits when so many are not yet taken
        self._room = threading.Semaphore(in_flight)
        self._reason = 0
        self._client: Any = None
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{client_id}", daemon=True)

    async def open(self) -> bool:
        """Connect. Return whether the broker had our session. Raise RetryLater or NeedsAttention when it cannot be."""
        self._client = self._make_client()
        self._thread.start()
        answer = await self._answer("the connection")
        assert isinstance(answer, _Connected)
        if answer.reason:
            raise self._refusal(answer.reason)
        return answer.session_present

    async def subscribe(self, topics: Sequence[str], *, retained: bool) -> None:
        """Subscribe with QoS 1; `retained`: have what is retained sent, if the subscription is new."""
        from paho.mqtt.subscribeoptions import SubscribeOptions

        handling = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB if retained else SubscribeOptions.RETAIN_DO_NOT_SEND
        options = SubscribeOptions(qos=1, retainHandling=handling)
        self._client.subscribe([(topic, options) for topic in topics])
        answer = await self._answer("the subscription")
        assert isinstance(answer, _Answered)
        for topic, reason in zip(topics, answer.reasons, strict=False):
            if reason in _REFUSED_TOPIC:
                message = f"the broker at {self._server.name} refuses the subscription to {topic}"
                raise NeedsAttention(message, fix="Correct topics:, or let this user read it")
            if reason >= 128:
                raise RetryLater(f"the broker at {self._server.name} could not subscribe us to {topic} ({reason})")

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        if topics:
            self._client.unsubscribe(list(topics))
            await self._answer("the end of a subscription")

    async def publish(self, topic: str, body: bytes, *, retain: bool, content_type: str, correlation: bytes) -> int:
        """Send with QoS 1, and return the broker's reason code once it has the message."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.CorrelationData = correlation
        properties.ContentType = content_type
        self._client.publish(topic, body, qos=1, retain=retain, properties=properties)
        answer = await self._answer("the message")
        assert isinstance(answer, _Answered)
        return answer.reasons[0]

    def acknowledge(self, numbers: Sequence[int]) -> int:
        """Acknowledge messages, and send a ping. Return its number: once it is answered the broker has them."""
        for number in numbers:
            self._client.ack(number, 1)
        return self.ping()

    def ping(self) -> int:
        with self._client.pings_lock:
            self._client._send_pingreq()
            return int(self._client.pings)

    async def take(self, most: int, seconds: float) -> list[MQTTMessage | Pong | Ended]:
        """What has come, at most so much; nothing if nothing came in this time."""
        try:
            async with asyncio.timeout(seconds):
                found = [await self.received.get()]
        except TimeoutError:
            return []
        while len(found) < most and not self.received.empty():
            found.append(self.received.get_nowait())
        for item in found:
            if not isinstance(item, Pong | Ended):
                self._room.release()
        return found

    async def close(self) -> None:
        """End the connection, not the session; what is not acknowledged comes again."""
        self._stopping.set()
        if self._thread.ident is not None:
            # a frozen broker or a slow connect does not hold us up: the thread then ends by itself
            await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def in_words(self, ended: Ended) -> HarkenError:
        where = f"the broker at {self._server.name}"
        error = ended.error
        if isinstance(error, HarkenError):
            return error
        if ended.reason == _TAKEN_OVER:
            fix = "Give each Harken a client_id: of its own"
            return RetryLater(f"another connection to {where} uses our client id", fix=fix)
        if isinstance(error, ssl.SSLCertVerificationError):
            fix = "If it is signed by your own authority, set ca_bundle: of the integration"
            return NeedsAttention(f"the certificate of {where} is not trusted ({error.verify_message})", fix=fix)
        if isinstance(error, ssl.SSLError):
            return RetryLater(f"no TLS connection could be made with {where}")
        if isinstance(error, TimeoutError):
            return RetryLater(f"{where} did not answer", reason="timeout")
        if isinstance(error, OSError):
            fault, message = connection_fault(error), f"{where} cannot be reached"
            if fault is None:
                return RetryLater(message)
            return NoConnection(message, host=self._server.host, cause=fault, private=self._allow_private)
        if error is not None:
            return RetryLater(f"the connection to {where} failed ({type(error).__name__})")
        return RetryLater(f"{where} closed the connection")

    async def _answer(self, what: str) -> _Connected | _Answered:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._answers.get()
        except TimeoutError:
            message = f"the broker at {self._server.name} did not answer to {what}"
            raise RetryLater(message, reason="timeout") from None
        if isinstance(answer, Ended):
            raise self.in_words(answer)
        return answer

    def _refusal(self, reason: int) -> HarkenError:
        where = f"the broker at {self._server.name}"
        if reason in _CREDENTIAL:
            return NeedsAttention(f"{where} refused the user or password", fix="Correct url: of the integration")
        if reason in _NOT_VERSION_5:
            return NeedsAttention(f"{where} does not speak MQTT 5", fix="Use a broker that does, such as Mosquitto 2")
        if reason in _CLIENT_ID:
            return NeedsAttention(f"{where} does not accept our client id", fix="Set client_id: of the query")
        return RetryLater(f"{where} does not take us now (reason {reason})")

    def _make_client(self) -> Any:
        from_paho = _client_type()
        client = from_paho(self._client_id, self._allow_private)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_subscribe = client.on_unsubscribe = self._on_reasons
        client.on_publish = self._on_publish
        client.on_disconnect = self._on_disconnect
        client.on_pong = lambda: self._hand_over(self.received, Pong())
        # with this, only our thread writes: other threads put packets into its queue and wake it
        client.on_socket_register_write = lambda *_: None
        client.max_inflight_messages_set(_MOST_IN_FLIGHT)
        if self._server.username:
            client.username_pw_set(self._server.username, self._server.password or None)
        if self._server.tls:
            client.tls_set_context(_tls_context(self._server.ca_bundle))
        return client

    def _run(self) -> None:
        """The thread: connect, then move packets until it ends or is to end."""
        error: Exception | None = None
        try:
            self._connect()
            if not self._stopping.is_set():
                self._move_packets()
        except Exception as raised:
            error = raised
        finally:
            if self._client.socket() is not None:
                self._client.socket().close()
        ended = Ended(error, self._reason)
        self._hand_over(self.received, ended)
        self._hand_over(self._answers, ended)

    def _move_packets(self) -> None:
        # the first packet is sent only here: one of a connection that is given up would end a newer one of ours
        while not self._stopping.is_set():
            if self._client.loop(LOOP_SECONDS):
                return
        self._client.disconnect()
        self._client.loop(LOOP_SECONDS)

    def _connect(self) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.ReceiveMaximum = self._in_flight
        properties.SessionExpiryInterval = self._session_seconds
        self._client.connect(
            self._server.host,
            self._server.port,
            KEEPALIVE_SECONDS,
            clean_start=not self._client_id,
            properties=properties,
        )

    def _hand_over(self, queue: asyncio.Queue[Any], item: object) -> None:
        try:
            self._loop.call_soon_threadsafe(queue.put_nowait, item)
        except RuntimeError:
            # the event loop is closed, so nobody reads any more; what is not acknowledged comes again
            self._stopping.set()

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        refused = int(reason.value) if reason.is_failure else 0
        self._hand_over(self._answers, _Connected(bool(flags.session_present), refused))

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        while not self._room.acquire(timeout=LOOP_SECONDS):
            if self._stopping.is_set():
                return
        self._hand_over(self.received, message)

    def _on_reasons(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        self._hand_over(self._answers, _Answered(tuple(int(reason.value) for reason in reasons)))

    def _on_publish(self, client: Any, userdata: Any, number: int, reason: Any, properties: Any) -> None:
        self._hand_over(self._answers, _Answered((int(reason.value),)))

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._reason = int(reason.value)


@cache
def _client_type() -> Any:
    """paho's client, which connects only to addresses that are allowed, and counts pings."""
    try:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
    except ImportError:
        raise NeedsAttention("the client for MQTT is missing", fix=how_to_install("mqtt")) from None

    class GuardedClient(Client):
        def __init__(self, client_id: str, allow_private: bool) -> None:
            super().__init__(
                CallbackAPIVersion.VERSION2,
                client_id=client_id,
                protocol=MQTTProtocolVersion.MQTTv5,
                manual_ack=True,
                reconnect_on_failure=False,
            )
            self.pings, self.pings_lock = 0, threading.RLock()
            self.on_pong: Any = lambda: None
            self._allow_private = allow_private

        def _create_socket_connection(self) -> Any:
            return connect(allowed_addresses(self._host, self._port, self._allow_private), CONNECT_SECONDS)

        def _send_pingreq(self) -> MQTTErrorCode:
            # paho pings by itself too, in its thread: the numbers are in the order in which they are sent
            with self.pings_lock:
                self.pings += 1
                return super()._send_pingreq()

        def _handle_pingresp(self) -> MQTTErrorCode:
            code = super()._handle_pingresp()
            self.on_pong()
            return code

    return GuardedClient


def _tls_context(ca_bundle: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_bundle or None)
    except OSError:
        raise NeedsAttention("ca_bundle of the broker cannot be read", fix="Check the path") from None
