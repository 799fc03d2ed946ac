"""Tickets as every platform can tell them, and what a service with tickets can do for the engine.

A ticket is an issue of GitHub, GitLab or Jira, or a work item of Azure DevOps.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from harken.source import Request

__all__ = [
    "Access",
    "Actor",
    "CodeHost",
    "Comment",
    "LabelChange",
    "Notice",
    "NoticeReader",
    "PullRequest",
    "Ticket",
    "TicketPage",
    "TicketTracker",
    "Topic",
    "Webhook",
]


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """`id` never changes, also when the ticket is moved or its project renamed; `ref` is what people call it.

    `number` is what the platform's addresses need. `status` is the platform's own word; `closed` is what the platform
    says, whatever the status is called. `version` is the platform's version of the ticket: it changes with each write.
    `repo` is the repository of the ticket, `area_path` its place in Azure DevOps; empty where there is none.
    `handle` is another name of it that the API of its platform needs.
    """

    id: str
    ref: str
    title: str
    url: str
    status: str
    closed: bool
    number: str = ""
    text: str = ""
    labels: tuple[str, ...] = ()
    repo: str = ""
    area_path: str = ""
    author: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    version: str = ""
    handle: str = ""


class TicketPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list. `next` asks for the page after it; None if this is the last."""

    tickets: Sequence[Ticket]
    next: str | None = None


class Access(IntEnum):
    """What an account may do in the project, as far as we could read it."""

    UNKNOWN = 0
    NONE = 1
    READ = 2
    TRIAGE = 3
    WRITE = 4


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """An account. `id` stays when it is renamed. `form`: an issue form acted for whoever opened the ticket."""

    id: str
    login: str
    bot: bool = False
    form: bool = False
    access: Access = Access.UNKNOWN


class LabelChange(msgspec.Struct, frozen=True, kw_only=True):
    """A label was put on (`added`) or taken off. Without an actor: the account is gone, or was never told."""

    label: str
    added: bool
    actor: Actor | None
    at: datetime | None


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is what an edit needs. `text` is what people read, in Markdown where the platform has it."""

    id: str
    text: str
    author: Actor | None = None
    created_at: datetime | None = None
    url: str = ""


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to open: `head` is merged into `base`; one that is open from `head` already is taken instead."""

    repo: str
    head: str
    base: str
    title: str
    text: str = ""


Topic: TypeAlias = Literal["new tickets", "changes", "comments"]
"""What a webhook can be sent for."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as its platform has it registered. `url` has no query and no password: these may be secrets.

    `probation`: the platform sends nothing now, and tries again by itself. `failing`: its last delivery was refused.
    `reason` says more about the state. `tells`: what it is sent for. `id` is the platform's.
    """

    url: str
    id: str = ""
    state: Literal["active", "failing", "probation", "disabled"] = "active"
    reason: str = ""
    tells: tuple[Topic, ...] = ()


class TicketTracker(Protocol):
    """The tickets of one project: a repository, a project of GitLab or Azure DevOps, a project key of Jira.

    A list that cannot be read raises; it is never empty because of an error. Nothing here is retried or remembered:
    that is the engine's. Every text of a ticket is a stranger's.
    """

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        """Tickets with any of these labels, in any order; closed ones only if `closed`. Repeats are fine."""
        ...

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        """Tickets that changed at this time or later, oldest change first. Repeats are fine, gaps are not."""
        ...

    async def get(self, id: str) -> Ticket | None:
        """Read one ticket by its `id` or `number`; None if it is gone."""
        ...

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        """Who put which label on and off, oldest first; None if that cannot be read."""
        ...

    async def access_of(self, actor: Actor) -> Access:
        """What the account may do in this project; UNKNOWN if that cannot be read."""
        ...

    async def own_account(self) -> Actor:
        """The account of our credential."""
        ...

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        """Put labels on and take others off, with as few writes as the platform allows. All other labels stay.

        A label that is there or gone already is no error. Returns the ticket after the write."""
        ...

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        """Those of these labels that the project does not have; nothing where labels need no making."""
        ...

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        """Make those labels of the project that are missing, and return them."""
        ...

    async def webhooks(self) -> Sequence[Webhook] | None:
        """The webhooks that tell anybody about these tickets; None if our account may not see them."""
        ...

    async def revive_webhook(self, webhook: Webhook) -> bool:
        """Make the platform send again to a webhook that it has stopped by itself; False where only a person can."""
        ...

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        """All comments, oldest first, or those at this time and later."""
        ...

    async def comment(self, ticket: Ticket, text: str) -> Comment: ...

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        """Replace the text of a comment; None if the comment is gone."""
        ...

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        """Move the ticket into the status of this name, compared whole. Raise NeedsAttention if it cannot."""
        ...


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What a verified webhook tells: something may have changed about this ticket.

    `location` is the repository, project or project key of the ticket as the platform writes it, which may differ in
    case from what the tracker was made for; empty if the webhook does not tell it. `aliases` are other names of it,
    such as the number of a project. `ticket` is the ticket as the webhook shows it, which may be older than what we
    have seen; None if it does not show it whole. `commented`: the webhook is about a new comment, which is `comment` if
    it is shown. `sent_at` is when the platform says that it happened.
    """

    location: str
    id: str
    aliases: tuple[str, ...] = ()
    ticket: Ticket | None = None
    commented: bool = False
    comment: Comment | None = None
    sent_at: datetime | None = None


class NoticeReader(Protocol):
    """Verifies and reads the webhooks of one platform."""

    def read(self, request: Request) -> Sequence[Notice]:
        """Verify over the raw bytes, then translate; nothing if the webhook tells nothing about tickets.

        Raise Unauthorized when the signature is missing or wrong. What a verified webhook says is never an error."""
        ...


class CodeHost(Protocol):
    """A platform that has repositories too."""

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        """Open the request, or find the open one from the same branch. Return its address for people."""
        ...
