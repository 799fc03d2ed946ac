"""The optional parts of Harken: which packages each extra brings, and how it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

__all__ = ["EXTRAS", "how_to_install", "is_missing"]

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "llm": ("pydantic_ai",),
    "openai": ("pydantic_ai", "openai"),
    "anthropic": ("pydantic_ai", "anthropic"),
    "google": ("pydantic_ai", "google.genai"),
    "keyring": ("keyring",),
    "apprise": ("apprise",),
    "mail": ("re2",),
    "mcp": ("mcp",),
    "page": ("selectolax",),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "sql": ("asyncpg", "aiomysql"),
    "kafka": ("aiokafka", "cramjam"),
    "mqtt": ("paho",),
    "nats": ("nats",),
    "rabbitmq": ("aio_pika",),
}
"""The packages to import, by the extra that installs them."""


def is_missing(extra: str) -> bool:
    """Whether a package of the extra is not installed; False for an unknown extra. Imports none of them."""
    return not all(map(_is_installed, EXTRAS.get(extra, ())))


def how_to_install(extra: str) -> str:
    """The commands that add an extra, by what Harken was installed with."""
    wanted = f"'harken[{extra}]'"
    return f"pip install {wanted} (with pipx: pipx install --force {wanted}; with uv: uv tool install {wanted})"


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        # the parent of a.b is missing
        return False
