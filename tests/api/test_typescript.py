"""TypeScript types are made from the same table."""

from __future__ import annotations

import subprocess
import sys

from harken.api.routes import ROUTES
from harken.api.typescript import declarations


def test_every_operation_and_shape_is_declared() -> None:
    text = declarations()
    of_api = [name for name in ROUTES if not ROUTES[name].path.startswith("/admin")]
    assert [
        name for name in of_api if f'"{name}": {{ params: ' not in text and f"  {name}: {{ params: " not in text
    ] == []
    assert "export interface Run {\n" in text
    assert '  status: "' in text
    assert "  data?: unknown;\n" in text
    assert "answer: { items: Event[]; next: string | null }" in text


def test_it_can_be_printed() -> None:
    made = subprocess.run([sys.executable, "-m", "harken.api.typescript"], capture_output=True, text=True, check=True)
    assert made.stdout == declarations()
