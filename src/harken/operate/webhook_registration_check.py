"""Whether the webhooks that a platform has registered for our address tell us what we need: pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import msgspec

from harken.docs_urls import address_of
from harken.ticket import Topic, Webhook

__all__ = ["Registered", "judge_webhooks", "webhooks_to"]

GUIDE = "docs/how-to/tickets.md"

NEEDED: tuple[Topic, ...] = ("new tickets", "changes")
"""Without comments an answer on a ticket is found by the next look at it."""

_STATES = {"disabled": "is switched off", "probation": "is on probation", "failing": "fails"}


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks to our address. `problem` and `fix` are about the worst of them; `note` is no problem."""

    hooks: Sequence[Webhook] = ()
    problem: str = ""
    fix: str = ""
    note: str = ""


def judge_webhooks(found: Sequence[Webhook] | None, path: str, location: str, *, heard: int) -> Registered:
    """What to say of the webhooks of a location. `found` is None if they cannot be read.

    `heard`: so many changes were told by webhooks lately, which may come from one that our account does not see.
    """
    if found is None:
        return Registered(note=f"the webhooks of {location} cannot be read with this token")
    ours = webhooks_to(path, found)
    if not ours and heard:
        note = f"no webhook of {location} itself leads to {path}, but some arrive: perhaps of a group or organization"
        return Registered(note=note)
    if not ours:
        problem = f"no webhook to {path} is registered at {location}"
        return Registered(problem=problem, fix=f"Register one to https://OUR-HOST{path}: {address_of(GUIDE)}")
    bad = [hook for hook in ours if hook.state != "active"]
    if bad:
        return Registered(hooks=ours, problem=_state_words(bad[0]), fix=_fix(bad[0]))
    return _judge_topics(ours, path, location)


def webhooks_to(path: str, found: Sequence[Webhook]) -> list[Webhook]:
    """Those whose address ends with our path: a proxy may have something before it."""
    return [hook for hook in found if unquote(urlsplit(hook.url).path).rstrip("/").endswith(path)]


def _judge_topics(ours: Sequence[Webhook], path: str, location: str) -> Registered:
    told = {topic for hook in ours for topic in hook.tells}
    missing = [topic for topic in NEEDED if topic not in told]
    if missing:
        problem = f"no webhook of {location} to {path} tells of {' and '.join(missing)}"
        return Registered(hooks=ours, problem=problem, fix=f"Choose these events in its settings: {address_of(GUIDE)}")
    note = "" if "comments" in told else f"no webhook of {location} to {path} tells of comments"
    return Registered(hooks=ours, note=note)


def _state_words(hook: Webhook) -> str:
    reason = f": {hook.reason}" if hook.reason else ""
    return f"the webhook to {hook.url} {_STATES[hook.state]}{reason}"


def _fix(hook: Webhook) -> str:
    if hook.state == "disabled":
        return "Switch it on in the settings of the platform, after looking at why its deliveries failed"
    return "Look at its deliveries: is the address reachable from there, and the secret the same?"
