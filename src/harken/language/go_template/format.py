"""Print values as Go does, with `{{.x}}` and with printf; except lists and objects, which are printed as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec

from harken.errors import Refused

__all__ = ["LONGEST", "NO_VALUE", "check_length", "printf", "to_json", "to_text"]

LONGEST = 1_000_000
NO_VALUE = "<no value>"

_WIDEST = 10_000
_MANY_BITS = 10_000
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -5, 6
_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d+)?(?:\.(?P<precision>\d*))?(?P<verb>.)?", re.DOTALL)
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {"\\": "\\\\", '"': '\\"'}

_encode = msgspec.json.Encoder().encode


def check_length(length: int) -> None:
    """Raise Refused if a text that is about to be built is too long."""
    if length > LONGEST:
        raise Refused(f"the text would be longer than {LONGEST} characters")


def to_text(value: Any) -> str:
    """Return the value as a template prints it."""
    if isinstance(value, str):
        return value
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer_text(value)
    if isinstance(value, float):
        return _float_text(value)
    return _date_text(value) if isinstance(value, date) else to_json(value)


def to_json(value: Any) -> str:
    """Return compact JSON without escaping non-ASCII characters. Raise Refused if the value has no JSON form."""
    try:
        text = _encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"{type(value).__name__} holds something that JSON cannot") from error
    check_length(len(text))
    return text


def _date_text(value: date) -> str:
    if not isinstance(value, datetime):
        return value.isoformat()
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat().replace("+00:00", "Z")


def _integer_text(value: int) -> str:
    if value.bit_length() > _MANY_BITS:
        raise Refused("a number has too many digits")
    return str(value)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    number = Decimal(text)
    exponent = number.adjusted() if value else 0
    if _SMALLEST_EXPONENT < exponent < _LARGEST_EXPONENT:
        return text.removesuffix(".0")
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{'-' if value < 0 else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    verb: str
    flags: str
    width: int
    precision: int | None

    def number(self, conversion: str, value: float) -> str:
        precision = "" if self.precision is None else f".{self.precision}"
        flags = "".join(flag for flag in "+ #" if flag in self.flags)
        zero = (
            "0"
            if "0" in self.flags and "-" not in self.flags and (self.precision is None or conversion in "feg")
            else ""
        )
        width = str(self.width) if zero and self.width else ""
        return self.pad(f"%{flags}{zero if width else ''}{width}{precision}{conversion}" % value, " ")

    def pad(self, text: str, fill: str | None = None) -> str:
        if "-" in self.flags:
            return text.ljust(self.width)
        return text.rjust(self.width, fill or ("0" if "0" in self.flags else " "))


def printf(form: str, values: Sequence[Any]) -> str:
    """Return the text as Go's printf prints it, except that %s also takes numbers and lists, and %f integers."""
    rest = list(values)
    parts: list[str] = []
    length = at = 0
    for found in _VERB.finditer(form):
        parts += [form[at : found.start()], _format_verb(found, rest)]
        length += len(parts[-1])
        check_length(length)
        at = found.end()
    parts.append(form[at:])
    if rest:
        extra = ", ".join("<nil>" if value is None else f"{_go_type(value)}={to_text(value)}" for value in rest)
        parts.append(f"%!(EXTRA {extra})")
    return "".join(parts)


def _format_verb(found: re.Match[str], rest: list[Any]) -> str:
    verb = found["verb"]
    if verb is None:
        return "%!(NOVERB)"
    if verb == "%":
        return "%"
    if verb in "*[":
        raise Refused(f"printf: %{verb} is not supported; write the number into the format")
    width, precision = _check_width(found["width"]), _check_width(found["precision"])
    if not rest:
        return f"%!{verb}(MISSING)"
    given = None if found["precision"] is None else precision
    return _format_value(_Spec(verb=verb, flags=found["flags"], width=width, precision=given), rest.pop(0))


def _check_width(digits: str | None) -> int:
    if digits and (len(digits) > len(str(_WIDEST)) or int(digits) > _WIDEST):
        raise Refused(f"printf: a width of more than {_WIDEST} is not allowed")
    return int(digits or 0)


def _format_value(spec: _Spec, value: Any) -> str:
    write = _VERBS.get(spec.verb)
    text = write(spec, value) if write else None
    if text is not None:
        return text
    return f"%!{spec.verb}({'<nil>' if value is None else f'{_go_type(value)}={to_text(value)}'})"


def _go_type(value: Any) -> str:
    if isinstance(value, str | bool | int):
        return {str: "string", bool: "bool"}.get(type(value), "int")
    if isinstance(value, float):
        return "float64"
    return "map[string]interface {}" if isinstance(value, Mapping) else "[]interface {}"


def _format_any(spec: _Spec, value: Any) -> str | None:
    if isinstance(value, str) and "#" in spec.flags:
        return spec.pad(_quoted(value))
    # in %+v the plus means field names, not a sign
    spec = msgspec.structs.replace(spec, flags=spec.flags.replace("+", ""))
    if isinstance(value, int) and not isinstance(value, bool):
        return spec.number("d", value)
    if isinstance(value, float):
        return (
            _format_general(spec, value)
            if spec.precision is not None or "+" in spec.flags
            else spec.pad(to_text(value))
        )
    return _format_string(spec, value)


def _format_string(spec: _Spec, value: Any) -> str:
    text = to_text(value)
    return spec.pad(text if spec.precision is None else text[: spec.precision])


def _format_quoted(spec: _Spec, value: Any) -> str | None:
    if isinstance(value, str):
        return spec.pad(_quoted(value if spec.precision is None else value[: spec.precision]))
    if isinstance(value, list | tuple | Mapping):
        return spec.pad(to_json(value))
    return None


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(c)) for c in text) + '"'


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _format_integer(spec: _Spec, value: Any) -> str | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    _integer_text(value)
    if spec.verb == "c":
        return spec.pad(chr(value) if 0 <= value <= 0x10FFFF else "\ufffd")
    if spec.verb == "U":
        return spec.pad(f"U+{value:04X}")
    return spec.number(spec.verb, value) if spec.verb != "b" else spec.pad(f"{value:b}")


def _format_hex(spec: _Spec, value: Any) -> str | None:
    if not isinstance(value, str):
        return None if isinstance(value, float) else _format_integer(spec, value)
    text = value.encode("utf-8", "replace").hex(*(" " if " " in spec.flags else ""))
    return spec.pad(text.upper() if spec.verb == "X" else text)


def _format_float(spec: _Spec, value: Any) -> str | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError as error:
        raise Refused("printf: a number is too large") from error
    if not math.isfinite(number):
        return spec.pad(to_text(number), " ")
    return spec.number(spec.verb.replace("F", "f"), number)


def _format_general(spec: _Spec, value: Any) -> str | None:
    if spec.precision is not None or not isinstance(value, float):
        return _format_float(spec if spec.verb in "gG" else msgspec.structs.replace(spec, verb="g"), value)
    text = to_text(value).replace("e", "E" if spec.verb == "G" else "e")
    sign = "+" if "+" in spec.flags and value >= 0 and text[0] != "+" else ""
    return spec.pad(sign + text)


def _format_bool(spec: _Spec, value: Any) -> str | None:
    return spec.pad(to_text(value)) if isinstance(value, bool) else None


def _format_type(spec: _Spec, value: Any) -> str:
    return spec.pad("<nil>" if value is None else _go_type(value))


_VERBS: dict[str, Callable[[_Spec, Any], str | None]] = {
    **dict.fromkeys("v", _format_any),
    **dict.fromkeys("s", _format_string),
    **dict.fromkeys("q", _format_quoted),
    **dict.fromkeys("dobcU", _format_integer),
    **dict.fromkeys("xX", _format_hex),
    **dict.fromkeys("fFeE", _format_float),
    **dict.fromkeys("gG", _format_general),
    **dict.fromkeys("t", _format_bool),
    **dict.fromkeys("T", _format_type),
}
