"""The query that all kinds of mailboxes share, and the condition that a mail must meet to be delivered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from harken.kit.mail.field_patterns import check_pattern
from harken.kit.mail.sender_address import allowlist_entry
from harken.kit.models import QueryModel
from harken.source import Delivery

__all__ = ["FIELDS", "LISTS", "MailQuery", "condition", "delivery"]

TEMPLATE = "{subject}\n{from}\n\n{snippet}"
LONGEST_LIST = 2_500
MOST_NAMES = 20
LISTS = frozenset({"labels", "attachments"})
FIELDS = LISTS | {
    "id",
    "message_id",
    "subject",
    "from",
    "sender",
    "sender_domain",
    "to",
    "cc",
    "date",
    "snippet",
    "body",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_AGE = re.compile(r"(\d{1,4})([hdwy])")
_SECONDS = {"h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
# names that CEL reserves, so that a field must be written event["name"]
_RESERVED = (
    "as break const continue else false for function if import in let loop namespace null package return true var void"
    " while"
)


class MailQuery(QueryModel):
    """Which mails are delivered, and what is taken out of them."""

    fields: ClassVar[frozenset[str]] = FIELDS
    newer_than: str = Field("1d", description="how far the first read looks back: 12h, 1d, 2w or 1y")
    sender_allowlist: list[str] = Field(
        default_factory=list, description="only mail from these: name@example.com, @example.com or example.com"
    )
    extract: dict[str, str] = Field(
        default_factory=dict, description="more fields: the group 1 of a regular expression, in the body or snippet"
    )
    require_fields: list[str] = Field(default_factory=list, description="fields without which it is not delivered")
    mark_read_on_dispatch: bool = Field(True, description="mark a mail as read once it is delivered")

    @property
    def reach(self) -> float:
        """The seconds that the first read looks back."""
        found = _AGE.fullmatch(self.newer_than)
        return int(found[1]) * _SECONDS[found[2]] if found else 0.0

    @field_validator("newer_than")
    @classmethod
    def _check_age(cls, value: str) -> str:
        if value.strip().endswith("m"):
            raise ValueError("m means months to Gmail and minutes to others: write 12h, 1d, 2w or 1y")
        if not _AGE.fullmatch(value.strip()):
            raise ValueError("this is no age: write 12h, 1d, 2w or 1y")
        return value.strip()

    @field_validator("sender_allowlist", "require_fields", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("sender_allowlist")
    @classmethod
    def _check_senders(cls, value: list[str]) -> list[str]:
        entries = list(dict.fromkeys(map(allowlist_entry, value)))
        if sum(map(len, entries)) > LONGEST_LIST:
            raise ValueError("the list is too long for a condition: let the mailbox choose, by a label or a folder")
        return entries

    @field_validator("extract")
    @classmethod
    def _check_expressions(cls, value: dict[str, str]) -> dict[str, str]:
        if len(value) > MOST_NAMES:
            raise ValueError(f"at most {MOST_NAMES} expressions are allowed")
        for name, pattern in value.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is no name of a field: use letters, digits and _")
            if name in cls.fields:
                raise ValueError(f"every mail has a field {name}: choose another name")
            check_pattern(pattern)
        return value

    @model_validator(mode="after")
    def _check_required(self) -> MailQuery:
        known = self.fields | set(self.extract)
        for name in self.require_fields:
            if name not in known:
                raise ValueError(f"require_fields names {name[:80]!r}, which is no field of a mail, nor in extract")
        return self


def condition(query: MailQuery) -> str:
    """Return the condition in CEL, in clauses that `explain` can show one by one."""
    required = [_presence_clause(name) for name in dict.fromkeys(query.require_fields)]
    return " && ".join([*_sender_clauses(query.sender_allowlist), *required])


def _sender_clauses(entries: list[str]) -> list[str]:
    domains = [one for one in entries if "@" not in one]
    people = [one for one in entries if "@" in one]
    clauses = [
        f"event.{field} in {json.dumps(listed)}"
        for field, listed in (("sender_domain", domains), ("sender", people))
        if listed
    ]
    return [f"({' || '.join(clauses)})"] if len(clauses) > 1 else clauses


def _presence_clause(name: str) -> str:
    field = f'event["{name}"]' if name in _RESERVED.split() else f"event.{name}"
    return f"size({field}) > 0" if name in LISTS else f'{field} != ""'


def delivery(query: MailQuery, mark_read: Mapping[str, Any]) -> Delivery:
    """Return what a job of a mailbox adds to its message. The mail is marked as read after the delivery."""
    return Delivery(
        template=TEMPLATE,
        max_per_tick=20,
        dispatch_delay_ms=1_000,
        condition=condition(query),
        after=(mark_read,) if query.mark_read_on_dispatch else (),
        fields=query.fields | set(query.extract),
    )
