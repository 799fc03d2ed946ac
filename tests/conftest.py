"""Shared by all tests: readable asserts in the shipped suites."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("harken.testing.source", "harken.testing.store")
