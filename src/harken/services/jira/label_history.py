"""Who put which label on an issue and off again, out of its history, which tells only all labels before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from harken.kit.values_from_payload import folded_text, instant, list_of, text_of
from harken.ticket import Access, Actor, LabelChange

__all__ = ["actor_of", "label_changes", "labels_of"]

# what Cloud writes in place of an account that is lost
_UNKNOWN_ACCOUNT = "unknown"


def actor_of(user: Any, *, access: Access = Access.UNKNOWN) -> Actor | None:
    """The account; None if it is gone.

    On Cloud anyone may choose their display name, and a customer of a service desk an address: neither is a login.
    """
    name, type = text_of(user, "name"), text_of(user, "accountType")
    id = text_of(user, "accountId") or text_of(user, "key") or name
    if not id or id == _UNKNOWN_ACCOUNT:
        return None
    mail = text_of(user, "emailAddress") if type != "customer" else None
    return Actor(id=id, login=name or mail or id, bot=type == "app", access=access)


def labels_of(fields: Any) -> tuple[str, ...]:
    return tuple(label for label in list_of(fields.get("labels")) if isinstance(label, str))


def label_changes(fields: Mapping[str, Any], histories: Sequence[Any]) -> list[LabelChange]:
    """Compare the labels before and after each change. Those before the first one were set by the creator."""
    edits = [
        (instant(one.get("created")), actor_of(one.get("author"), access=Access.WRITE), *_texts(item))
        for one in histories
        if isinstance(one, Mapping)
        for item in list_of(one.get("items"))
        if _is_of_labels(item)
    ]
    edits.sort(key=lambda edit: edit[0] or datetime.min.replace(tzinfo=UTC))
    creator, created = _creator(fields), instant(fields.get("created"))
    first = edits[0][2] if edits else labels_of(fields)
    found = [LabelChange(label=label, added=True, actor=creator, at=created) for label in first]
    for at, actor, before, after in edits:
        gone, new = [one for one in before if one not in after], [one for one in after if one not in before]
        found += [LabelChange(label=label, added=False, actor=actor, at=at) for label in gone]
        found += [LabelChange(label=label, added=True, actor=actor, at=at) for label in new]
    return found


def _creator(fields: Mapping[str, Any]) -> Actor | None:
    """Who created the issue, which takes no right to edit. For a customer the form of a request type set the labels."""
    actor = actor_of(fields.get("creator"))
    is_customer = text_of(fields, "creator.accountType") == "customer"
    return msgspec.structs.replace(actor, form=True) if actor and is_customer else actor


def _texts(item: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before, after = text_of(item, "fromString") or "", text_of(item, "toString") or ""
    # only a plain space parts labels; others may be part of one
    return tuple(filter(None, before.split(" "))), tuple(filter(None, after.split(" ")))


def _is_of_labels(item: Any) -> bool:
    """Whether the item is about the field Labels, and not about one that somebody made and called so."""
    id = text_of(item, "fieldId")
    if id:
        return id == "labels"
    return folded_text(item, "field") == "labels" and folded_text(item, "fieldtype") != "custom"
