"""What a test of a stream brings: a broker with an empty topic, and what can happen to it."""

from __future__ import annotations

from collections.abc import Sequence

from harken.source import StreamSource

__all__ = ["Broker"]


class Broker:
    """Override what your broker can do; the tests of the rest are skipped, and name what is missing.

    A real server is best. The topic, queue or stream of a new Broker is empty, and nobody has read it.
    """

    keeps_history = False
    """Whether it is a log with positions, that everybody reads for themselves. Otherwise it is a queue, which forgets
    what was acknowledged."""
    resumes = True
    """Whether what was sent while nobody was connected is delivered later."""
    full = 2_000
    """How many messages are a full queue; fewer where the server needs long for so many."""

    def source(self) -> StreamSource:
        """A new source, as a new process makes one. Where there are deadlines, let them be about two seconds."""
        raise NotImplementedError

    async def publish(self, bodies: Sequence[bytes]) -> None:
        """Send these messages in this order, and return when the broker has them."""
        raise NotImplementedError

    async def left(self) -> int | None:
        """How many messages the broker would still deliver to us, in flight or not; None if it cannot say."""
        return None

    async def offered(self) -> int | None:
        """How many messages another reader would be given now. It may take them; None if nobody else can read."""
        return None

    async def redelivered(self) -> int | None:
        """The highest number of times that it delivered one message again; None if it cannot say."""
        return None

    async def dead(self) -> int | None:
        """How many messages are in the broker's own dead-letter queue; None if there is none."""
        return None

    async def restart(self) -> bool:
        """Stop the server and start it with the same data. False if that cannot be done here."""
        return False

    async def trim(self) -> bool:
        """Delete everything that the broker has, unread or not, as retention does. False if it never does."""
        return False

    async def recreate(self) -> bool:
        """Delete the topic and create it again under its name. False if that means nothing here."""
        return False

    async def freeze(self) -> bool:
        """Let it answer nothing any more, with all connections open. False if that cannot be done here."""
        return False

    async def thaw(self) -> None:
        """Let it answer again."""

    async def away(self) -> bool:
        """Make it unreachable for good. False if that cannot be done here."""
        return False

    def stranger(self) -> StreamSource | None:
        """A source whose credential the broker refuses; None if it asks for none."""
        return None

    def lost(self) -> StreamSource | None:
        """A source of a topic that does not exist; None if the broker has whatever is asked for."""
        return None
