"""Who may start a pipeline: whoever put the trigger label on the ticket, not whoever wrote the ticket."""

from __future__ import annotations

from typing import Literal

import msgspec

from harken.ticket import Access, Actor

__all__ = ["Trust", "Trusted", "judge"]


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """`label` is the access that is needed, `anyone`, or the names of those who may. Names are logins or ids.

    `text`: whether the run gets the ticket's title and text as we saw them with the label, or as they are when it
    begins. No platform tells what a ticket said at a moment, so `as_labelled` is what the first read or webhook after
    the label showed.
    """

    label: Literal["write", "triage", "anyone"] | tuple[str, ...] = "write"
    bots: tuple[str, ...] = ()
    untrusted: Literal["skip", "hold"] = "skip"
    text: Literal["as_labelled", "now"] = "as_labelled"


class Trusted(msgspec.Struct, frozen=True, kw_only=True):
    """`yes`, or the reason why not."""

    yes: bool
    reason: str = ""


def judge(actor: Actor | None, trust: Trust, own_id: str) -> Trusted:
    """Decide whether a label counts that this account put on. None is an account that could not be found out."""
    if actor is None or not actor.id:
        return Trusted(yes=False, reason="it could not be found out who put the label on")
    if actor.id == own_id:
        return Trusted(yes=False, reason="the label was put on by our own account")
    if actor.form:
        return Trusted(yes=False, reason=f"an issue form put the label on for {actor.login}")
    if actor.bot:
        return _judge_by_name(actor, trust.bots, "is a bot that is not listed in trust.bots")
    if isinstance(trust.label, tuple):
        return _judge_by_name(actor, trust.label, "is not listed in trust.label")
    if trust.label == "anyone":
        return Trusted(yes=True)
    needed = Access.WRITE if trust.label == "write" else Access.TRIAGE
    if actor.access >= needed:
        return Trusted(yes=True)
    if actor.access is Access.UNKNOWN:
        return Trusted(yes=False, reason=f"it could not be found out what {actor.login} may do")
    return Trusted(yes=False, reason=f"{actor.login} has no {trust.label} access")


def _judge_by_name(actor: Actor, names: tuple[str, ...], otherwise: str) -> Trusted:
    """Logins are compared whole and without case; an id survives a change of the login."""
    wanted = {name.casefold() for name in names}
    listed = actor.id in names or (bool(actor.login) and actor.login.casefold() in wanted)
    return Trusted(yes=True) if listed else Trusted(yes=False, reason=f"{actor.login or actor.id} {otherwise}")
