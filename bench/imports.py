"""The limit of the start: a process that imports the libraries which a controller needs, and nothing of Harken."""

from __future__ import annotations

from importlib import import_module

__all__ = ["LIBRARIES", "load"]

LIBRARIES = (
    "aiohttp", "apsw", "cel_expr_python", "click", "cryptography", "httptools", "msgspec", "pydantic", "starlette",
    "structlog", "uvloop", "yaml",
)  # fmt: skip


def load() -> None:
    for name in LIBRARIES:
        import_module(name)


if __name__ == "__main__":
    import sys

    load()
    print("loaded", flush=True)
    sys.stdin.readline()
