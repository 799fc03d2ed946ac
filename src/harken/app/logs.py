"""Structured logs: one line per change of state, and no secret in any of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection
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
        return {name: redact(value, known) if isinstance(value, str) else value for name, value in fields.items()}

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
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
