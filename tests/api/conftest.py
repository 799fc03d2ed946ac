from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.server import Served, serving
from tests.operate.operator_world import opened


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with opened(tmp_path) as office, serving(office) as made:
        yield made
