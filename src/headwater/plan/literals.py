"""Constants as SQL text that Spark reads back with the same value and type, whatever the time zone of the session.

A timestamp is written with its zone (UTC), a decimal gets a cast unless its digits alone imply its type, a string escapes
whatever the parser or variable substitution (`${...}`) would interpret.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

from headwater.model.types import type_ddl

_SUFFIX = {"byte": "Y", "short": "S", "integer": "", "long": "L"}
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b"}
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROS_PER_SECOND = 1_000_000
_FIRST_DAY = -719162
_LAST_DAY = 2932896
_FIRST_MICROS = -62135596800 * _MICROS_PER_SECOND
_LAST_MICROS = 253402300800 * _MICROS_PER_SECOND - 1


def literal_sql(json_type: Any, value: Any) -> str:
    """Return the text of a constant. `value` is the text of a simple value, a list for a nested one, None for NULL.

    Raises ValueError for a type that has no constants in SQL.
    """
    if value is None:
        return "NULL" if json_type == "void" else f"CAST(NULL AS {type_ddl(json_type)})"
    if isinstance(json_type, dict):
        return _nested(json_type, value)
    if json_type in _SUFFIX:
        return f"{value}{_SUFFIX[json_type]}"
    if json_type == "boolean":
        return str(value).lower()
    if json_type in ("float", "double"):
        return _floating(json_type, value)
    if json_type.startswith("decimal"):
        return _decimal(json_type, value)
    if json_type == "string":
        return string_sql(value)
    if json_type.startswith("string collate"):
        return f"CAST({string_sql(value)} AS {type_ddl(json_type)})"
    if json_type == "binary":
        return f"X'{value}'"
    if json_type == "date":
        return _date(int(value))
    if json_type in ("timestamp", "timestamp_ntz"):
        return _timestamp(json_type, int(value))
    if json_type.startswith("time("):
        return _time(json_type, int(value))
    if json_type.startswith("interval"):
        return _interval(json_type, value)
    raise ValueError(f"constants of type {json_type} cannot be written as SQL")


_SIGNS = {"${": "\\u0024{", "<<": "\\u003c\\u003c", "/*": "\\u002f*"}
"""What means something in texts that are not parsed yet: variables, places to be filled, hints."""


def string_sql(value: str) -> str:
    """Return a string constant."""
    text = "".join(_ESCAPES.get(ch) or (f"\\u{ord(ch):04x}" if ord(ch) < 32 or ord(ch) == 127 else ch) for ch in value)
    for sign, code in _SIGNS.items():
        text = text.replace(sign, code)
    return f"'{text}'"


def _floating(json_type: str, value: str) -> str:
    if value in ("NaN", "Infinity", "-Infinity"):
        return f"CAST('{value}' AS {json_type.upper()})"
    return f"{value}{'F' if json_type == 'float' else 'D'}"


def _decimal(json_type: str, value: str) -> str:
    number = decimal.Decimal(value)
    scale = int(json_type.removeprefix("decimal(").removesuffix(")").split(",")[1])
    text = format(number.quantize(decimal.Decimal(1).scaleb(-scale), context=decimal.Context(prec=80)), "f")
    digits = max(len(text.lstrip("-").replace(".", "").lstrip("0")), scale, 1)
    return f"{text}BD" if json_type == f"decimal({digits},{scale})" else f"CAST({text}BD AS {json_type.upper()})"


def _date(days: int) -> str:
    if _FIRST_DAY <= days <= _LAST_DAY:
        return f"DATE '{(_EPOCH + datetime.timedelta(days=days)).date().isoformat()}'"
    return f"date_from_unix_date({days})"


def _timestamp(json_type: str, micros: int) -> str:
    keyword, zone = ("TIMESTAMP_NTZ", "") if json_type == "timestamp_ntz" else ("TIMESTAMP_LTZ", "Z")
    if _FIRST_MICROS <= micros <= _LAST_MICROS:
        moment = _EPOCH + datetime.timedelta(microseconds=micros)
        return f"{keyword} '{moment.isoformat(sep=' ', timespec='microseconds')}{zone}'"
    if json_type == "timestamp_ntz":
        return f"timestampadd(MICROSECOND, {micros}L, TIMESTAMP_NTZ '1970-01-01 00:00:00')"
    return f"timestamp_micros({micros}L)"


def _time(json_type: str, nanos: int) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=nanos // 1000)
    text = f"TIME '{moment.time().isoformat(timespec='microseconds')}'"
    return text if json_type == "time(6)" else f"CAST({text} AS {json_type.upper()})"


def _interval(json_type: str, value: Any) -> str:
    if json_type == "interval":
        months, days, micros = (int(v) for v in value)
        text = f"{decimal.Decimal(micros).scaleb(-6):f}"
        return f"make_interval(0, {months}, 0, {days}, 0, 0, CAST('{text}' AS DECIMAL(18,6)))"
    number = int(value)
    sign = "-" if number < 0 else ""
    if "year" in json_type or "month" in json_type:
        text = f"INTERVAL '{sign}{abs(number) // 12}-{abs(number) % 12}' YEAR TO MONTH"
        return text if json_type == "interval year to month" else f"CAST({text} AS {json_type.upper()})"
    seconds, micros = divmod(abs(number), _MICROS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    text = f"INTERVAL '{sign}{day} {hour:02}:{minute:02}:{second:02}.{micros:06}' DAY TO SECOND"
    return text if json_type == "interval day to second" else f"CAST({text} AS {json_type.upper()})"


def _nested(json_type: dict[str, Any], value: Sequence[Any]) -> str:
    kind = json_type["type"]
    if kind == "array":
        items = [literal_sql(json_type["elementType"], v) for v in value]
        return f"array({', '.join(items)})" if items else f"CAST(array() AS {type_ddl(json_type)})"
    if kind == "map":
        pairs = zip(value[0], value[1], strict=True)
        parts = [
            literal_sql(t, v) for k, w in pairs for t, v in ((json_type["keyType"], k), (json_type["valueType"], w))
        ]
        return f"map({', '.join(parts)})" if parts else f"CAST(map() AS {type_ddl(json_type)})"
    if kind == "struct":
        parts = [
            part
            for field, v in zip(json_type["fields"], value, strict=True)
            for part in (string_sql(field["name"]), literal_sql(field["type"], v))
        ]
        return f"named_struct({', '.join(parts)})"
    raise ValueError(f"constants of type {kind} cannot be written as SQL")
