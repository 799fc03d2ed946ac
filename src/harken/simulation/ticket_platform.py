"""A stand-in of the platform of a tracker: tickets, labels, people who put them on and take them off, and webhooks.

It is none of the real ones: what every platform can tell is in `harken.ticket`, and nothing more is asked of it here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count

import msgspec

from harken.clock import Clock, from_unix
from harken.simulation.script import Script, TicketChange
from harken.simulation.sources import faults_of
from harken.source import Request
from harken.testing import World
from harken.testing.scripted import suffer
from harken.ticket import Access, Actor, Comment, LabelChange, Notice, Ticket, TicketPage, Webhook
from harken.tickets import Lifecycle, ProjectSettings, TrackerSettings, feed_name

__all__ = ["NoticesAsSent", "ScriptedTicket", "TicketPlatform", "wanted_labels"]

PAGE_SIZE = 50
SHORT_LAG = 5.0
"""A ticket that is read alone is behind for so many seconds at most."""
OURS = Actor(id="harken", login="harken", access=Access.WRITE)
_ENDS = (Lifecycle.DONE, Lifecycle.FAILED)


def wanted_labels(settings: TrackerSettings, project: ProjectSettings) -> tuple[str, ...]:
    """The labels of which one starts a run in this project."""
    return tuple(project.routes.by_label) or (settings.lifecycle.label(Lifecycle.PENDING),)


class ScriptedTicket:
    """A ticket as it is now, and as copies show it. `wishes`: how often a person has asked for a run.

    `least`: how often a run must have been made of it at least; less than `wishes` where a person took one back, which
    may have been before anybody has seen it.
    """

    def __init__(self, ticket: Ticket, project: ProjectSettings) -> None:
        self.now = ticket
        self.project = project
        self.changed_at = 0.0
        self.wishes = 0
        self.least = 0
        self.withdrawn = False
        # whether the label of a run's end was shown to a reader, since it was written
        self.end_shown = False
        # the last version before the newest wish: the label of an end that it shows is of an earlier run
        self.before_wish = 0
        # how far copies are behind since a person has changed it last; what we write comes as late
        self.lag = 0.0
        self.history: list[LabelChange] = []
        self.comments: list[Comment] = []
        # each version with the time at which it was written, and how far copies are behind
        self._versions: list[tuple[float, float, Ticket]] = []

    def listed(self, now: float) -> Ticket | None:
        """The ticket as lists and searches show it, which may be behind; None if they do not show it yet."""
        return next((ticket for at, lag, ticket in reversed(self._versions) if at + lag <= now), None)

    def read(self, now: float) -> Ticket | None:
        """The ticket as it is shown alone: behind too, but not for long."""
        versions = reversed(self._versions)
        return next((ticket for at, lag, ticket in versions if at + min(lag, SHORT_LAG) <= now), None)

    def replace(self, ticket: Ticket, now: float) -> None:
        self.now, self.changed_at = ticket, now
        self._versions.append((now, self.lag, ticket))


class TicketPlatform:
    """The tickets of one tracker. `true` is the time of the platform; calls fail as the troubles of the script say."""

    def __init__(self, settings: TrackerSettings, script: Script, true: Clock) -> None:
        self.settings = settings
        self.tickets: dict[str, ScriptedTicket] = {}
        self.reads = 0
        self._true = true
        self._world = World(true, faults=faults_of(script, feed_name(settings.name)))
        self._versions = count(1)
        self._comments = count(1)
        self.trackers: Mapping[str, _LocationTracker] = {
            location: _LocationTracker(self, location) for location in settings.locations
        }

    async def suffer(self) -> None:
        """Fail, if the platform has trouble now."""
        await suffer(self._world.fault(), self._true)

    def change(self, item: TicketChange) -> Notice | None:
        """Let a person do something to a ticket. Return what a webhook tells of it; None if nothing changed."""
        if item.what == "open":
            self._open(item)
        elif item.ticket not in self.tickets:
            return None
        found = self.tickets[item.ticket]
        before = found.now
        labels, closed = self._after(item, found)
        if item.what != "open" and (set(labels), closed) == (set(before.labels), before.closed):
            return None
        self._count_wish(found, before if item.what != "open" else None, labels, closed, again=item.what == "again")
        person = self._person(found.project)
        old = set() if item.what == "open" else set(before.labels)
        self._note(found, person, set(labels) - old, old - set(labels))
        found.lag = item.lag
        self._write(found, msgspec.structs.replace(before, labels=labels, closed=closed))
        return Notice(location=found.project.location, id=found.now.id, ticket=found.now, sent_at=self._now())

    def _open(self, item: TicketChange) -> None:
        project = self.settings.project(item.project) or self.settings.projects[0]
        status = next(iter(sorted(self.settings.trigger_statuses or self.settings.open_states)), "open")
        ticket = Ticket(
            id=f"{self.settings.name}-{item.ticket}",
            ref=f"{project.location}#{item.ticket}",
            number=item.ticket,
            title=f"stand-in {item.ticket}",
            url=f"https://tracker.example/{item.ticket}",
            status=status,
            closed=False,
            repo=project.scope.repo,
            area_path=project.scope.area_path,
            author=self._person(project).login,
            created_at=self._now(),
        )
        self.tickets[item.ticket] = ScriptedTicket(ticket, project)

    def _after(self, item: TicketChange, found: ScriptedTicket) -> tuple[tuple[str, ...], bool]:
        """The labels of the ticket after the change, and whether it is closed then."""
        ticket, tag = found.now, found.project.scope.tag
        if item.what in ("close", "reopen"):
            return ticket.labels, item.what == "close"
        gone = {label.casefold() for label in item.labels} if item.what == "unlabel" else set[str]()
        if item.what == "again" and found.end_shown:
            gone = {self.settings.lifecycle.label(state).casefold() for state in _ENDS}
        kept = [label for label in ticket.labels if label.casefold() not in gone]
        added = item.labels if item.what in ("open", "label") else ()
        scope = (tag,) if tag and item.what == "open" else ()
        return tuple(dict.fromkeys([*kept, *scope, *added])), ticket.closed

    def _count_wish(
        self, found: ScriptedTicket, before: Ticket | None, labels: Sequence[str], closed: bool, *, again: bool
    ) -> None:
        """A wish is made when the label comes on, or that of the end is taken off; and it can be taken back."""
        was = before is not None and self._asks(found, before.labels, before.closed)
        asks = self._asks(found, labels, closed)
        if asks and (not was or again):
            found.wishes += 1
            # what was taken back may have had its run or not, and one that still shows its run starts no other
            shows = self.settings.lifecycle.state_of(labels) not in (None, Lifecycle.PENDING)
            found.least = found.wishes if not found.withdrawn else 0 if shows else 1
            found.end_shown = False
            found.before_wish = int(found.now.version or 0)
        elif was and not asks:
            found.withdrawn = True
            found.least = 0

    def _asks(self, found: ScriptedTicket, labels: Sequence[str], closed: bool) -> bool:
        there = {label.casefold() for label in labels}
        return not closed and any(label.casefold() in there for label in wanted_labels(self.settings, found.project))

    def asks(self, found: ScriptedTicket) -> bool:
        """Whether the ticket asks for a run, or has had it."""
        return self._asks(found, found.now.labels, found.now.closed)

    def _person(self, project: ProjectSettings) -> Actor:
        """Somebody who may start a pipeline in this project."""
        trusted = project.trust.label
        login = trusted[0] if isinstance(trusted, tuple) and trusted else "mia"
        return Actor(id=login, login=login, access=Access.WRITE)

    def _note(self, found: ScriptedTicket, who: Actor, added: set[str], removed: set[str]) -> None:
        now = self._now()
        found.history += [LabelChange(label=label, added=True, actor=who, at=now) for label in sorted(added)]
        found.history += [LabelChange(label=label, added=False, actor=who, at=now) for label in sorted(removed)]

    def _write(self, found: ScriptedTicket, ticket: Ticket) -> None:
        version = str(next(self._versions))
        changed = msgspec.structs.replace(ticket, updated_at=self._now(), version=version)
        found.replace(changed, self._true.time())

    def _now(self) -> datetime:
        return from_unix(self._true.time())

    def by_id(self, id: str) -> ScriptedTicket | None:
        return next((one for one in self.tickets.values() if id in (one.now.id, one.now.number)), None)

    def at(self, location: str) -> Iterator[Ticket]:
        """The tickets of a location, as lists show them now."""
        now = self._true.time()
        for found in self.tickets.values():
            if found.project.location.casefold() == location.casefold():
                ticket = found.listed(now)
                if ticket is not None:
                    self.show(found, ticket)
                    yield ticket

    def read(self, id: str) -> Ticket | None:
        """The ticket as it is shown alone."""
        found = self.by_id(id)
        if found is None:
            return None
        ticket = found.read(self._true.time())
        if ticket is not None:
            self.show(found, ticket)
        return ticket

    def show(self, found: ScriptedTicket, ticket: Ticket) -> None:
        """Somebody of us reads the ticket in this version."""
        is_end = self.settings.lifecycle.state_of(ticket.labels) in _ENDS
        found.end_shown = found.end_shown or (is_end and int(ticket.version) > found.before_wish)

    def swap(self, id: str, add: Sequence[str], remove: Sequence[str]) -> Ticket | None:
        """Our own account changes the labels of a ticket."""
        found = self.by_id(id)
        if found is None:
            return None
        gone = {label.casefold() for label in remove}
        kept = [label for label in found.now.labels if label.casefold() not in gone]
        labels = tuple(dict.fromkeys([*kept, *add]))
        self._note(found, OURS, set(labels) - set(found.now.labels), set(found.now.labels) - set(labels))
        self._write(found, msgspec.structs.replace(found.now, labels=labels))
        return found.now

    def comment(self, id: str, text: str) -> Comment:
        found = self.by_id(id)
        made = Comment(id=str(next(self._comments)), text=text, author=OURS, created_at=self._now())
        if found is not None:
            found.comments.append(made)
        return made


class _LocationTracker:
    """The platform as our account sees it at one location: see `harken.ticket.TicketTracker`."""

    def __init__(self, platform: TicketPlatform, location: str) -> None:
        self._platform = platform
        self._location = location

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        await self._platform.suffer()
        wanted = {label.casefold() for label in labels}
        listed = [one for one in self._platform.at(self._location) if closed or not one.closed]
        return _page([one for one in listed if wanted & {label.casefold() for label in one.labels}], page)

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        await self._platform.suffer()
        found = [one for one in self._platform.at(self._location) if one.updated_at and one.updated_at >= since]
        return _page(sorted(found, key=lambda one: (one.updated_at, one.id)), page)

    async def get(self, id: str) -> Ticket | None:
        await self._platform.suffer()
        return self._platform.read(id)

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        await self._platform.suffer()
        found = self._platform.by_id(ticket.id)
        return list(found.history) if found else []

    async def access_of(self, actor: Actor) -> Access:
        return Access.WRITE

    async def own_account(self) -> Actor:
        return OURS

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        await self._platform.suffer()
        return self._platform.swap(ticket.id, add, remove) or ticket

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        return ()

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        return ()

    async def webhooks(self) -> Sequence[Webhook] | None:
        return None

    async def revive_webhook(self, webhook: Webhook) -> bool:
        return False

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        await self._platform.suffer()
        found = self._platform.by_id(ticket.id)
        return [one for one in found.comments if since is None or _is_since(one, since)] if found else []

    async def comment(self, ticket: Ticket, text: str) -> Comment:
        await self._platform.suffer()
        return self._platform.comment(ticket.id, text)

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        await self._platform.suffer()
        found = self._platform.by_id(ticket.id)
        for number, one in enumerate(found.comments if found else []):
            if found is not None and one.id == id:
                found.comments[number] = msgspec.structs.replace(one, text=text)
                return found.comments[number]
        return None

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        await self._platform.suffer()
        return ticket


def _page(tickets: Sequence[Ticket], page: str | None) -> TicketPage:
    begin = int(page or 0)
    end = begin + PAGE_SIZE
    return TicketPage(tickets=tickets[begin:end], next=str(end) if end < len(tickets) else None)


def _is_since(comment: Comment, since: datetime) -> bool:
    return comment.created_at is None or comment.created_at >= since


class NoticesAsSent:
    """Reads the webhooks of the stand-in, which nobody signs."""

    def read(self, request: Request) -> Sequence[Notice]:
        return [msgspec.json.decode(request.body, type=Notice)]
