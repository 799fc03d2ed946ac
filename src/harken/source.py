"""What the author of a service implements, and what the engine provides for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from harken.clock import Clock
from harken.event import Event, Identity, Span

if TYPE_CHECKING:
    from pydantic import BaseModel
    from yarl import URL

    from harken.http import Client, Metered, Reply, ServiceClock
    from harken.ticket import NoticeReader, TicketTracker

__all__ = [
    "Act",
    "Action",
    "Announced",
    "AnnouncedSource",
    "Asking",
    "Batch",
    "Call",
    "Checked",
    "ClockedSource",
    "Closable",
    "Consent",
    "Cursor",
    "Delivery",
    "Destination",
    "Gap",
    "Handshake",
    "HoldingSource",
    "Host",
    "Lag",
    "Located",
    "Message",
    "Place",
    "Plugin",
    "PollSource",
    "PositionedSource",
    "PushSource",
    "Rejected",
    "Request",
    "RingingSource",
    "Sample",
    "SeekableSource",
    "Source",
    "StreamSource",
    "Tool",
]

Cursor: TypeAlias = Any
"""Where the next read starts: opaque JSON owned by the source. None means that nothing was read yet."""


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A message that cannot become an event, and why. It is kept as a dead letter under the event's key."""

    event: Event
    reason: str


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream has lost for good, in words: history that was deleted before we read it, or nobody kept.

    `key` names the gap, so that it is announced once. `messages`: how many are lost, if the broker says so.
    """

    key: str
    reason: str
    messages: int | None = None


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """What waits at the broker after this batch, as far as the broker says: messages, and the age of the oldest.

    `read_to`: the broker's time of the last message that was read, where it says no age. What waits is not older.
    """

    messages: int | None = None
    seconds: float | None = None
    read_to: datetime | None = None

    def at(self, now: datetime) -> Lag:
        """The lag with its seconds, if they can be told by now."""
        if self.seconds is None and self.messages == 0:
            return Lag(messages=0, seconds=0.0)
        if self.seconds is not None or self.read_to is None:
            return self
        return Lag(messages=self.messages, seconds=max(0.0, (now - self.read_to).total_seconds()))


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a source. The cursor is where the next page starts, and is stored with the events.

    `more`: there is another page; poll again at once. `complete`: nothing between the two cursors was left out.
    `unchanged`: the service answered that nothing changed (a 304), so an item that is not listed may still exist.
    `covered`: the span of time that this page has read completely; by default that of the whole read.
    `next_at`: when there will be something new, and nothing before; without it the feed's schedule counts.
    Of streams: `rejected` messages become dead letters, `gap` is what was lost before this batch, `lag` what waits.
    """

    events: Sequence[Event] = ()
    cursor: Cursor = None
    more: bool = False
    complete: bool = True
    unchanged: bool = False
    covered: Span | None = None
    next_at: datetime | None = None
    rejected: Sequence[Rejected] = ()
    gap: Gap | None = None
    lag: Lag | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A received webhook. Header names are lower case; `body` is what was signed."""

    headers: Mapping[str, str]
    body: bytes
    path: str = ""
    query: bytes = b""
    received_at: datetime


@runtime_checkable
class PollSource(Protocol):
    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        """Return what is there after the cursor, oldest first. Repeats are fine, gaps are not."""
        ...


@runtime_checkable
class ClockedSource(Protocol):
    """A source that knows how far the clock of its service differs from ours. The engine adds it to sources."""

    service_clock: ServiceClock


@runtime_checkable
class Closable(Protocol):
    async def aclose(self) -> None:
        """Close what the source holds open, such as a process. It is not read again."""
        ...


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as its sender would send it. `$SECRET` in a header stands for the secret, which is never shown."""

    headers: Mapping[str, str]
    body: bytes


class Handshake(Exception):
    """Raised by a PushSource: the request holds no event, and its sender wants this answer before it sends any."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__("a handshake")
        self.answer = answer


@runtime_checkable
class RingingSource(Protocol):
    """A polled source that hears of changes, which makes its feed due at once. A ring that gets lost costs nothing.

    `ring_floor_seconds`: rings make the feed be read so often at most.
    """

    @property
    def ring_floor_seconds(self) -> float: ...

    async def rung(self) -> None:
        """Return when something may have changed since the last call. The wait may be cancelled, and begun again."""
        ...


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the changes that reads found since then were announced, and how many were missed."""

    announced: int
    missed: int
    since: datetime


@runtime_checkable
class AnnouncedSource(Protocol):
    """A source that hears of changes and counts how many it did not hear of."""

    @property
    def announced(self) -> Announced: ...


@runtime_checkable
class PushSource(Protocol):
    """Receives webhooks. It may have `max_bytes` and `max_per_minute`, limits of what is taken.

    With `empty_answer` the answer is empty, for senders that show it to people. With `claims_tickets` it is 202 only if
    a run was started, and says which of three things became of the ticket.
    """

    async def receive(self, request: Request) -> list[Event]:
        """Verify over the raw bytes, then translate. Raise Refused when the signature is missing or wrong."""
        ...


@runtime_checkable
class StreamSource(Protocol):
    """A connection that we hold, to a broker or a server. One process at a time follows it: the holder of the lease.

    `silence_seconds`: a stream that yields nothing for so long, not even an empty batch, is dead and opened again.
    """

    silence_seconds: float

    def stream(self, cursor: Cursor) -> AsyncIterator[Batch]:
        """Yield batches. Being asked for the next one means that the last is committed: acknowledge it then.

        An empty batch says that the broker answered and has nothing new: yield one every few seconds. Raise RetryLater
        or NeedsAttention when the connection cannot be made or breaks. Never refuse a message for our own trouble: what
        is not acknowledged comes again. Closing the iterator ends the connection within a second or two.
        """
        ...


@runtime_checkable
class HoldingSource(Protocol):
    """A stream whose broker delivers a message again unless it is acknowledged within `hold_seconds`."""

    hold_seconds: float

    async def hold(self) -> None:
        """The store stalls: keep what was yielded and is not acknowledged for another `hold_seconds`."""
        ...


Place: TypeAlias = Literal["ahead", "behind", "unknown"]
"""Where a message is in a stream: after what was read, within it, or its name does not tell."""


@runtime_checkable
class PositionedSource(Protocol):
    """A stream that is an ordered log, whose messages are named by their positions."""

    def place_of(self, key: str, cursor: Cursor) -> Place:
        """Compare the name of a message with our position, asking nobody. People wrote the key: it may be anything.

        Answer `behind` only if such a message would be stored under this key.
        """
        ...


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a stream, and what lies between it and our position.

    `messages`: how many there are from it to the end. `again`: how many of them lie before our position, and so are
    read again, or for the first time if we began after them. `skipped`: how many are passed over that were not read.
    `oldest`: the broker has nothing older.
    """

    cursor: Cursor
    messages: int
    again: int = 0
    skipped: int = 0
    oldest: bool = False


@runtime_checkable
class SeekableSource(Protocol):
    """A stream whose position is ours alone, and that can be read from any time that its broker still has.

    `begins_with_new`: a first read leaves out what was there before the feed was created. It begins with what came
    since then, however late the first connection is.
    """

    @property
    def begins_with_new(self) -> bool: ...

    async def locate(self, at: datetime, cursor: Cursor) -> Located:
        """Find the first message of that time or later; `cursor` is our position. Nothing is moved, nobody disturbed.

        Raise Refused where this stream cannot be read from another place. Messages that are read from the place that
        is found have the names that they had before.
        """
        ...


Source: TypeAlias = PollSource | PushSource | StreamSource


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the engine provides to a service: the guarded HTTP client, the clock and random numbers.

    `identity` is that of the feed: where an API has several kinds of occurrences, a source shows those that count.
    `shared` is one dictionary for all users of a credential: the place for a token that must be refreshed only once.
    `feed` is the feed that is read, `directory` that of harken.yaml; without `allow_programs` no program may be run.
    """

    http: Client | Metered
    clock: Clock
    random: Random
    allow_private: bool = False
    identity: Identity = "once"
    shared: dict[str, Any] = field(default_factory=dict)
    feed: str = ""
    directory: str = ""
    allow_programs: bool = False

    def request(self, method: str, url: str | URL, **options: Any) -> Awaitable[Reply]:
        """Send an HTTP request, to a private network only if `allow_private`. Options are those of `Client.request`."""
        options.setdefault("allow_private", self.allow_private)
        return self.http.request(method, url, **options)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of an action by a step; `params` is its model, validated.

    Pass `idempotency_key` on where the service accepts one.
    """

    params: Any
    account: Any
    host: Host
    idempotency_key: str


Action: TypeAlias = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Act:
    """An action that steps can use: the model of its parameters, and the function that does it."""

    params: type[BaseModel]
    run: Action


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool of a service for agents; `writes`: it changes something at the service."""

    summary: str
    params: type[BaseModel]
    run: Action
    writes: bool = False


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What a kind adds to a poller job, which watches something and delivers messages about it.

    `template` is the message unless the job has one, `condition` (CEL) must be true before a message is sent.
    The steps of `before` prepare the message; those of `after` are executed once it is delivered.
    `max_per_tick` and `dispatch_delay_ms` are the defaults of a job of this kind.
    `tokens_per_day` limits what its models use; 0 for no limit.
    `fields` are those of every event, if they are always the same: another placeholder in a message is a mistake.
    """

    template: str = "{json}"
    max_per_tick: int = 20
    dispatch_delay_ms: int = 0
    tokens_per_day: int = 0
    condition: str = ""
    before: Sequence[Mapping[str, Any]] = ()
    after: Sequence[Mapping[str, Any]] = ()
    fields: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The names in a query, as the service knows them.

    `found` maps each name as it was written to what it stands for; `unknown` has a sentence for each unknown name.
    """

    found: Mapping[str, str] = field(default_factory=dict)
    unknown: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a person is asked for their consent, and for which access; without `access` the default one.

    `browser` waits for a browser on this machine, `manual` asks for the address that a browser elsewhere shows,
    `device` shows a code to enter on another device. `say` shows a line, `browse` opens an address if it can,
    `answer` asks a question and waits.
    """

    way: Literal["browser", "manual", "device"] = "browser"
    access: tuple[str, ...] = ()
    seconds: float = 300.0
    say: Callable[[str], None]
    browse: Callable[[str], None]
    answer: Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Consent:
    """A credential that a person gives in a browser instead of typing it.

    `fills` are the fields of the account that `obtain(values, asking, host)` returns; `values` are the other fields.
    """

    fills: frozenset[str]
    access: tuple[str, ...]
    obtain: Callable[[Mapping[str, Any], Asking, Host], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, kw_only=True)
class Message:
    """Something to deliver to `to`. Sending it twice with one key should show it once where the service allows."""

    to: str
    text: str
    title: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str = ""


class Destination(Protocol):
    async def deliver(self, message: Message) -> Mapping[str, Any]:
        """Deliver or raise RetryLater / NeedsAttention. Return what the service answered, such as an id."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One outside system. Everything but `kind` is optional.

    `query` is the model of a feed's query, `account` that of an integration's settings and credentials.
    `source(query, account, host)`, `stream` and `webhook` return values with one method: something to poll, to follow,
    and to receive webhooks with; `stream_query` and `webhook_query` are the models of what their triggers say.
    `webhook_sample(query, now)` is a webhook that `webhook` accepts, to try it with; `webhook_again(query, key, data,
    now)` is that of an event which came before, proven anew.
    `whoami(account, host)` proves the credential; `check(query, account, host)` finds out whether the names in a query
    exist. `environment` maps environment variables to fields of the account; `consent` obtains fields in a browser.
    `uses` names the service whose accounts this kind signs in with (gmail uses google).
    `delivery(query, integration)` is what a poller job of this kind needs beside its message.
    `extra(query, account)` names the extra of Harken that its packages come with, or nothing.
    `recipient(to)` raises if a message can never reach this address.
    `tools` are for agents; `discover(query, account, host)` returns those that only the source knows.
    `tracker(project, account, host)` is for tickets that start pipelines, `notices(secret, account, clock)` reads the
    webhooks about them.
    """

    kind: str
    summary: str = ""
    docs: str = ""
    account: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    source: Callable[[Any, Any, Host], PollSource] | None = None
    stream_query: type[BaseModel] | None = None
    stream: Callable[[Any, Any, Host], StreamSource] | None = None
    webhook_query: type[BaseModel] | None = None
    webhook: Callable[[Any, Any, Host], PushSource] | None = None
    webhook_sample: Callable[[Any, datetime], Sample] | None = None
    webhook_again: Callable[[Any, str, Any, datetime], Sample] | None = None
    actions: Mapping[str, Act] = field(default_factory=dict)
    destination_query: type[BaseModel] | None = None
    destination: Callable[[Any, Any, Host], Destination] | None = None
    whoami: Callable[[Any, Host], Awaitable[Mapping[str, Any]]] | None = None
    check: Callable[[Any, Any, Host], Awaitable[Checked]] | None = None
    identity: Identity = "once"
    first: Literal["baseline", "deliver", "all"] = "baseline"
    floor_seconds: float = 10.0
    lookback_seconds: float = 120.0
    aliases: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    consent: Consent | None = None
    uses: str = ""
    delivery: Callable[[Any, str], Delivery] | None = None
    extra: Callable[[Any, Any], str] | None = None
    recipient: Callable[[str], object] | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    discover: Callable[[Any, Any, Host], Awaitable[Mapping[str, Tool]]] | None = None
    tracker: Callable[[str, Any, Host], TicketTracker] | None = None
    notices: Callable[[str, Any, Clock], NoticeReader] | None = None
