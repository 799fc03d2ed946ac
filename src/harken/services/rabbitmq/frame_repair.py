"""What a server sends, mended where the client could not read it: anybody may have sent a message with such properties.

The client ends the connection when a name or a header is not UTF-8. The message would come again for ever, and with it
all that were taken beside it, until the queue gives them up.
"""

from __future__ import annotations

import asyncio
import struct

__all__ = ["MendedFrames"]

METHOD, HEADER = 1, 2
DELIVER = b"\x00\x3c\x00\x3c"
"""Class and method of basic.deliver."""
BEFORE_FLAGS = 12
"""Class, weight and size of the body, which come before the properties of a message."""


class MendedFrames:
    """The part of a StreamReader that the client uses: type, channel with length, and content of one frame in turn."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._type = 0
        self._reads = 0

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def read(self) -> bytes:
        return await self._reader.read()

    async def readexactly(self, count: int) -> bytes:
        data = await self._reader.readexactly(count)
        self._reads = (self._reads + 1) % 3
        if self._reads == 1:
            self._type = data[0]
        if self._reads != 0:
            return data
        if self._type == HEADER:
            return _without_unreadable(data)
        return _with_plain_names(data) if self._type == METHOD and data.startswith(DELIVER) else data


def _without_unreadable(content: bytes) -> bytes:
    """The header of a message; without its properties if they cannot be read. The last byte ends the frame."""
    from pamqp.header import ContentHeader

    try:
        ContentHeader().unmarshal(content[:-1])
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError, RecursionError, struct.error):
        # no property is set any more; what follows is not read
        return content[:BEFORE_FLAGS] + b"\x00\x00" + content[BEFORE_FLAGS + 2 :]
    return content


def _with_plain_names(content: bytes) -> bytes:
    """A delivery, whose exchange and routing key follow the consumer's name, the number and the mark `redelivered`."""
    exchange = len(DELIVER) + 1 + content[len(DELIVER)] + 9
    key = exchange + 1 + content[exchange]
    end = key + 1 + content[key]
    names = _plain(content[exchange + 1 : key]), _plain(content[key + 1 : end])
    return content[: exchange + 1] + names[0] + content[key : key + 1] + names[1] + content[end:]


def _plain(name: bytes) -> bytes:
    try:
        name.decode()
    except UnicodeDecodeError:
        return bytes(byte if byte < 128 else ord("?") for byte in name)
    return name
