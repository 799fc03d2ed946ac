"""Structured logs: one line per change of state, and no secret in any of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from harken.http.redact import redact

__all__ = ["set_up_logs"]


def set_up_logs(level: str, form: str, secrets: Callable[[], Collection[str]]) -> None:
    """Send logs to stderr as text for people or JSON for machines; `secrets` are replaced wherever they appear."""
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderer: Any = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )

    def hide(logger: Any, method: str, fields: Any) -> Any:
        known = secrets()
        return {name: _hidden(value, known) for name, value in fields.items()}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hide,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Hiding(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # they would be printed as they are
    logging.captureWarnings(True)


def _hidden(value: Any, known: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _hidden(inner, known) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_hidden(inner, known) for inner in value]
    # anything else is printed as its repr, which may hold anything
    return value if value is None or isinstance(value, bool | int | float) else redact(_text(value), known)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


class _Hiding(logging.Formatter):
    """What libraries log, with their tracebacks."""

    def __init__(self, secrets: Callable[[], Collection[str]]) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record), self._secrets())
