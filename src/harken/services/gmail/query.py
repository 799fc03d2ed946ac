"""Which mails of a mailbox a feed reads."""

from __future__ import annotations

import hashlib
from typing import ClassVar

import msgspec
from pydantic import Field, field_validator

from harken.kit.mail import FIELDS, MailQuery

__all__ = ["Query"]


class Query(MailQuery):
    """Which mails, and which fields are extracted from them."""

    fields: ClassVar[frozenset[str]] = FIELDS | {"thread_id"}
    query: str = Field("is:unread in:inbox", max_length=2_000, description="a Gmail search, as in its search field")

    @field_validator("query")
    @classmethod
    def _is_balanced(cls, value: str) -> str:
        if not _has_pairs(value):
            raise ValueError("the search has a quotation mark, a ( or a { without its other half")
        return " ".join(value.split())

    def fingerprint(self) -> str:
        """Changes with the search and with the extracted fields."""
        content = msgspec.json.encode([self.query, sorted(self.extract.items())])
        return hashlib.blake2b(content, digest_size=8).hexdigest()


def _has_pairs(text: str) -> bool:
    """Whether quotes and brackets are paired, so that the search can be put in brackets itself."""
    quoted = text.split('"')
    open_: list[str] = []
    for char in "".join(quoted[::2]):
        if char in "({":
            open_.append({"(": ")", "{": "}"}[char])
        elif char in ")}" and (not open_ or open_.pop() != char):
            return False
    return len(quoted) % 2 == 1 and not open_
