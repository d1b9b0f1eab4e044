"""How Catalyst's expression classes are written in SQL, where the registered name followed by the children is not the answer.

Everything else prints as `name(child, child, ...)` with a name from Spark's own function registry.
"""

from __future__ import annotations

from collections.abc import Mapping

FORMS: dict[str, str] = {
    "And": "({0} AND {1})",
    "Or": "({0} OR {1})",
    "Not": "(NOT {0})",
    "EqualTo": "({0} = {1})",
    "EqualNullSafe": "({0} <=> {1})",
    "LessThan": "({0} < {1})",
    "LessThanOrEqual": "({0} <= {1})",
    "GreaterThan": "({0} > {1})",
    "GreaterThanOrEqual": "({0} >= {1})",
    "IsNull": "({0} IS NULL)",
    "IsNotNull": "({0} IS NOT NULL)",
    "UnaryMinus": "(- {0})",
    "UnaryPositive": "(+ {0})",
    "BitwiseAnd": "({0} & {1})",
    "BitwiseOr": "({0} | {1})",
    "BitwiseXor": "({0} ^ {1})",
    "BitwiseNot": "(~ {0})",
    "RLike": "({0} RLIKE {1})",
    "DateAddInterval": "({0} + {1})",
    "TimestampAddInterval": "({0} + {1})",
    "TimestampAddYMInterval": "({0} + {1})",
    "DateAddYMInterval": "({0} + {1})",
    "TimeAddInterval": "({0} + {1})",
    "SubtractTimestamps": "({0} - {1})",
    "SubtractDates": "({0} - {1})",
    "SubtractTimes": "({0} - {1})",
    "MultiplyYMInterval": "({0} * {1})",
    "MultiplyDTInterval": "({0} * {1})",
    "MultiplyInterval": "({0} * {1})",
    "DivideYMInterval": "({0} / {1})",
    "DivideDTInterval": "({0} / {1})",
    "DivideInterval": "({0} / {1})",
    "GetArrayItem": "{0}[{1}]",
    "GetMapValue": "{0}[{1}]",
    "RoundCeil": "ceil({0}, {1})",
    "RoundFloor": "floor({0}, {1})",
    "Ceil": "ceil({0})",
    "Floor": "floor({0})",
    "StringLPad": "lpad({0}, {1}, {2})",
    "StringRPad": "rpad({0}, {1}, {2})",
    "Hour": "hour({0})",
    "Minute": "minute({0})",
    "Second": "second({0})",
    "HoursOfTime": "hour({0})",
    "MinutesOfTime": "minute({0})",
    "SecondsOfTime": "second({0})",
    "SecondsOfTimeWithFraction": "extract(SECOND FROM {0})",
    "SecondWithFraction": "extract(SECOND FROM {0})",
    "Contains": "contains({0}, {1})",
    "StartsWith": "startswith({0}, {1})",
    "EndsWith": "endswith({0}, {1})",
    "StringInstr": "instr({0}, {1})",
    "Mask": "mask({0}, {1}, {2}, {3}, {4})",
    "StringDecode": "decode({0}, {1})",
    "StringInstrWithOccurrence": "instr({0}, {1}, {2}, {3})",
    "StringTrim2": "trim(BOTH {1} FROM {0})",
    "StringTrimLeft2": "trim(LEADING {1} FROM {0})",
    "StringTrimRight2": "trim(TRAILING {1} FROM {0})",
}
"""The text of a class, with `{0}`, `{1}` ... for its children. A class name may end in the number of its children."""

MODES: dict[str, tuple[str, str]] = {
    "Add": ("({0} + {1})", "try_add({0}, {1})"),
    "Subtract": ("({0} - {1})", "try_subtract({0}, {1})"),
    "Multiply": ("({0} * {1})", "try_multiply({0}, {1})"),
    "Divide": ("({0} / {1})", "try_divide({0}, {1})"),
    "Remainder": ("({0} % {1})", "try_mod({0}, {1})"),
    "IntegralDivide": ("({0} DIV {1})", ""),
    "Pmod": ("pmod({0}, {1})", ""),
    "Sum": ("sum({distinct}{0})", "try_sum({distinct}{0})"),
    "Average": ("avg({distinct}{0})", "try_avg({distinct}{0})"),
}
"""Classes with an evaluation mode: how they print in the mode of the session, and in mode TRY (empty: it does not exist)."""

PREFERRED: dict[str, str] = {
    "CreateNamedStruct": "named_struct",
    "BoolOr": "bool_or",
    "BoolAnd": "bool_and",
    "Length": "length",
    "Chr": "chr",
    "StringLocate": "locate",
    "DateAdd": "date_add",
    "DateDiff": "datediff",
    "ShiftLeft": "shiftleft",
    "ShiftRight": "shiftright",
    "ShiftRightUnsigned": "shiftrightunsigned",
    "Size": "size",
    "Nvl": "nvl",
    "DayOfMonth": "day",
    "StddevSamp": "stddev_samp",
    "VarianceSamp": "var_samp",
    "ArrayAggregate": "aggregate",
    "Upper": "upper",
    "Lower": "lower",
    "Pow": "power",
    "Signum": "sign",
    "Substring": "substring",
    "FormatString": "format_string",
}
"""Which of several registered names is used; otherwise the first that is an identifier."""


def function_name(kind: str, names: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the SQL name of a class, or None if no function of that class is registered."""
    if kind in PREFERRED:
        return PREFERRED[kind]
    registered = names.get(kind) or names.get(kind + "ExpressionBuilder") or names.get(kind + "Builder") or ()
    return next((n for n in registered if n.replace("_", "a").isalnum()), None)
