from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.operate.operator_world import Office, opened


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened(tmp_path) as made:
        yield made
