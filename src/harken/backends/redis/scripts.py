"""The Lua functions of the store, one per verb. A script names in its first line the files that stand before it."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files

import msgspec

__all__ = ["Script", "script"]

WITH = "-- with: "


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """`sha` is the name under which a server that has seen the text runs it."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """The whole text of a verb, with what it needs in front."""
    text = _read(name)
    first = text.split("\n", 1)[0]
    assert first.startswith(WITH), f"{name}.lua does not say what it needs"
    whole = "".join([_read(part) for part in first.removeprefix(WITH).split()] + [text])
    return Script(name=name, text=whole, sha=sha1(whole.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")
