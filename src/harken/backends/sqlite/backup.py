"""A copy of the file, made while it is written."""

from __future__ import annotations

import os

import apsw

from harken.backends.sqlite.transaction import Books
from harken.errors import Refused

__all__ = ["backup"]


def backup(books: Books, target: str) -> None:
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise Refused(f"cannot write {target} ({error.strerror})", fix="Name a new file in a folder of yours") from None
    destination = apsw.Connection(target)
    with destination.backup("main", books.connection, "main") as copying:
        while not copying.done:
            copying.step(1000)
    destination.close()
