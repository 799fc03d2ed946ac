"""Which object an event is about, by what people call it.

Subjects look like NAME or NAME@when, keys like NAME#what. A store finds the events of a name by a few texts that it
keeps of each event (`names_of`) and looks for others at a question (`names_to_try`); `is_about` then decides.
"""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["is_about", "names_of", "names_to_try"]

TRIED = 8
"""How many names a question looks for: a stranger may ask for `@@@@@@@@@@@@`."""


def is_about(subject: str, key: str, name: str) -> bool:
    """Whether the event belongs to the object of this name."""
    if subject == name or subject.startswith(f"{name}@"):
        return True
    return key.startswith(f"{name}#") and not _is_numbered(subject, name)


def _is_numbered(subject: str, name: str) -> bool:
    """Of the issue acme/shop#12@7 the object is acme/shop#12, and not acme/shop."""
    return subject.startswith(f"{name}#") and "@" in subject[len(name) :]


def names_of(subject: str, key: str) -> set[str]:
    """Names to keep of an event, at most two: whatever name it is about, `names_to_try` of that has one of them.

    Its whole key is not among them, as events are found by their key anyway.
    """
    root = _before(subject, "@")
    names = {root}
    beginning = _before(key, "#")
    if beginning != key:
        derived = key.startswith(root) and key[len(root) : len(root) + 1] in ("", "@", "#")
        if not (derived and _is_numbered(subject, beginning)):
            names.add(_before(beginning, "@"))
    return names - {key}


def names_to_try(name: str) -> list[str]:
    """The name and its beginnings."""
    cuts = (match.start() for match in re.finditer("[@#]", name) if match.start())
    beginnings = (name[:cut] for cut in cuts)
    return list(islice(dict.fromkeys([name, _before(name, "@"), *islice(beginnings, TRIED)]), TRIED))


def _before(text: str, mark: str) -> str:
    """What stands before the mark, which may itself be the first character of a name."""
    at = text.find(mark, 1)
    return text if at < 0 else text[:at]
