"""Sets up structured logs, with our own secrets replaced in every line, and nothing in it that a terminal obeys."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from harken.http.known_secret_redaction import redact
from harken.tracing import current_context

__all__ = ["set_up_logs"]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def set_up_logs(level: str, form: str, secrets: Callable[[], Collection[str]]) -> None:
    """Send logs to stderr as text or JSON (`form`: text, json or auto); `secrets` are replaced wherever they appear."""
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderer: Any = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )

    def redact_fields(logger: Any, method: str, fields: Any) -> Any:
        known = secrets()
        return {name: _redact_value(value, known) for name, value in fields.items()}

    def escape_fields(logger: Any, method: str, fields: Any) -> Any:
        return {name: _escape(value, keep_lines=name == "exception") for name, value in fields.items()}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            add_trace,
            redact_fields,
            # JSON escapes by itself
            *(() if as_json else (escape_fields,)),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # warnings would be printed without redaction
    logging.captureWarnings(True)


def add_trace(logger: Any, method: str, fields: Any) -> Any:
    """The ids of the trace and span that a line belongs to, where tracing is on."""
    context = current_context()
    if context is not None:
        fields["trace_id"], fields["span_id"] = context.trace_id, context.span_id
    return fields


def _redact_value(value: Any, known: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _redact_value(inner, known) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redact_value(inner, known) for inner in value]
    # anything else is printed as its repr, which may contain a secret
    return value if value is None or isinstance(value, bool | int | float) else redact(_text(value), known)


def _escape(value: Any, *, keep_lines: bool) -> Any:
    """Text of strangers must not move the cursor, colour the screen or look like a line of ours."""
    if not isinstance(value, str):
        return value
    safe = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    return safe if keep_lines else safe.replace("\n", "\\n")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


class _RedactingFormatter(logging.Formatter):
    """Formats what libraries log, tracebacks included."""

    def __init__(self, secrets: Callable[[], Collection[str]]) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:
        return str(_escape(super().formatMessage(record), keep_lines=False))

    def format(self, record: logging.LogRecord) -> str:
        return str(_escape(redact(super().format(record), self._secrets()), keep_lines=True))
