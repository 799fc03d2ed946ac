from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harken.credentials import Credentials


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user without a keyring."""
    return {"HOME": str(tmp_path / "home"), "HARKEN_KEYRING": "off"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "data" / "harken.db"


@pytest.fixture
def credentials(store: Path, environ: Mapping[str, str]) -> Credentials:
    return Credentials(store, environ)
