"""Writes that replicas have to confirm. The driver is a fake, because Debian's Redis is too old for WAITAOF."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from harken.backends.encryption import PlainSeal
from harken.backends.redis.codec import Arguments
from harken.backends.redis.connection import CONFIRM_MS, Connection
from harken.errors import StoreUnavailable


class FakePipeline:
    """Records the commands, and answers with the given replies."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies
        self.sent: list[tuple[Any, ...]] = []

    def pipeline(self, *, transaction: bool) -> FakePipeline:
        assert not transaction
        return self

    def execute_command(self, *words: Any) -> None:
        self.sent.append(words)

    async def execute(self) -> list[Any]:
        return list(self.replies)


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    connection = Connection("redis://127.0.0.1:1/0", "{harken:0}:", None)
    await connection.close()
    connection.replicas = 2
    yield connection


async def write(connection: Connection, pipeline: FakePipeline) -> Any:
    connection.redis = pipeline  # type: ignore[assignment]
    return await connection.write("claims.extend", Arguments(PlainSeal()), (1, []))


class TestWhereReplicasConfirm:
    async def test_the_disks_are_asked_for_when_all_have_the_write(self, connection: Connection) -> None:
        pipeline = FakePipeline(b"done", 2, [1, 2])
        assert await write(connection, pipeline) == b"done"
        assert [words[0] for words in pipeline.sent] == ["EVALSHA", "WAIT", "WAITAOF"]
        assert pipeline.sent[1:] == [("WAIT", 2, CONFIRM_MS // 2), ("WAITAOF", 1, 2, CONFIRM_MS // 2)]

    @pytest.mark.parametrize("disks", [[1, 1], [0, 2], [0, 0]])
    async def test_a_disk_too_few_is_a_write_that_does_not_count(
        self, connection: Connection, disks: list[int]
    ) -> None:
        with pytest.raises(StoreUnavailable, match="did not confirm"):
            await write(connection, FakePipeline(b"done", disks[1], disks))
        assert "did not confirm" in connection.trouble

    async def test_reading_waits_for_nobody(self, connection: Connection) -> None:
        pipeline = FakePipeline(b"done")
        connection.redis = pipeline  # type: ignore[assignment]
        await connection.execute(("GET", "a"), ("GET", "b"))
        assert [words[0] for words in pipeline.sent] == ["GET", "GET"]
