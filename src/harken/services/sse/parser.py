"""Server-sent events as bytes come in, by the rules of WHATWG.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
One thing differs: data stays bytes, so that what is not UTF-8 is rejected and not silently replaced.
"""

from __future__ import annotations

import codecs

import msgspec

__all__ = ["Parser", "ServerEvent"]

LONGEST_FIELD = 16
"""Bytes of a line before its value: the longest name that means something has five."""
LONGEST_RETRY = 9
"""Digits; a longer number is no time that anybody waits."""


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is the position after this event. `has_id` tells whether the event itself named it.

    `data` is None if the server only moved the position.
    """

    data: bytes | None
    name: str = ""
    id: str = ""
    has_id: bool = False


class Parser:
    """Feed it the body of one connection. Of a line or an event a little more than `limit` bytes are kept.

    `id` is the last id that was completed by an empty line, `retry_ms` what the server wants us to wait, if it says.
    """

    def __init__(self, limit: int, id: str = "") -> None:
        self.id = id
        self.retry_ms: int | None = None
        self._limit = limit
        self._line = bytearray()
        self._begun = False
        self._after_cr = False
        self._new_id = id
        self._reset()

    def _reset(self) -> None:
        self._name = ""
        self._has_id = False
        self._has_data = False
        self._data = bytearray()

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that this chunk completes."""
        found: list[ServerEvent] = []
        if self._after_cr and chunk:
            # a line end CR LF that was cut in two
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        # a CR at the end of the chunk ends its line now: its LF may never come
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in ended:
            event = self._end_line(part)
            if event is not None:
                found.append(event)
        self._keep(rest)
        return found

    def _keep(self, part: bytes) -> None:
        room = self._limit + LONGEST_FIELD - len(self._line)
        if room > 0:
            self._line += part[:room]

    def _end_line(self, line: bytes) -> ServerEvent | None:
        if self._line or len(line) > self._limit:
            # its beginning came with an earlier chunk, or it is too long
            self._keep(line)
            line, self._line = bytes(self._line), bytearray()
        if not self._begun:
            self._begun, line = True, line.removeprefix(codecs.BOM_UTF8)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        self._take(field, value[1:] if value.startswith(b" ") else value)
        return None

    def _take(self, field: bytes, value: bytes) -> None:
        if field == b"data":
            if self._has_data:
                self._add(b"\n")
            self._has_data = True
            self._add(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._new_id, self._has_id = value.decode(errors="replace"), True
        elif field == b"retry" and value.isdigit():
            self.retry_ms = int(value[:LONGEST_RETRY])

    def _add(self, value: bytes) -> None:
        room = self._limit + 1 - len(self._data)
        if room > 0:
            self._data += value[:room]

    def _dispatch(self) -> ServerEvent | None:
        moved, self.id = self._has_id, self._new_id
        data = bytes(self._data) if self._has_data else None
        event = ServerEvent(data=data, name=self._name, id=self.id, has_id=moved)
        self._reset()
        return event if data is not None or moved else None
