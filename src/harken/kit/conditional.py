"""Conditional requests: an address that is read again and again, and may answer 304, nothing has changed."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, HttpUrl

from harken.errors import RetryLater
from harken.http import Reply, Validators

__all__ = ["WebAddress", "expect_answer", "host_of", "validators_of"]


def _web_address(value: str) -> str:
    HttpUrl(value)
    return value


WebAddress = Annotated[str, AfterValidator(_web_address)]
"""An http address, kept as it was written."""


def host_of(url: str) -> str:
    return str(HttpUrl(url).host)


def validators_of(etag: str | None, last_modified: str | None) -> Validators | None:
    """Return what makes a request conditional; None when the last reply had neither."""
    return Validators(etag=etag, last_modified=last_modified) if etag or last_modified else None


def expect_answer(reply: Reply, conditional: Validators | None, whose: str) -> None:
    """Raise RetryLater if the reply is a 304 although the request was not conditional."""
    if reply.not_modified and conditional is None:
        raise RetryLater(f"{whose} answered 304 to a request for everything")
