"""Why a query cannot be maintained incrementally: a stable code, the fragment that causes it, and what to do.

A refusal is a finding, not an exception. Reading a query collects all of them, so that a user sees every reason at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Code(Enum):
    """Names of reasons; users and programs match on them, so they are never renamed."""

    EXPRESSION_NOT_DETERMINISTIC = "EXPRESSION_NOT_DETERMINISTIC"
    TIME_DEPENDENT = "TIME_DEPENDENT"
    ENVIRONMENT_DEPENDENT = "ENVIRONMENT_DEPENDENT"
    ORDER_DEPENDENT = "ORDER_DEPENDENT"
    OPERATOR_NOT_SUPPORTED = "OPERATOR_NOT_SUPPORTED"
    SUBQUERY_NOT_SUPPORTED = "SUBQUERY_NOT_SUPPORTED"
    SOURCE_NOT_TRACKED = "SOURCE_NOT_TRACKED"
    UDF_NOT_DETERMINISTIC = "UDF_NOT_DETERMINISTIC"
    FUNCTION_NOT_PRINTABLE = "FUNCTION_NOT_PRINTABLE"
    EVALUATION_MODE = "EVALUATION_MODE"
    SCHEMA_CHANGED = "SCHEMA_CHANGED"


HINTS: dict[Code, str] = {
    Code.EXPRESSION_NOT_DETERMINISTIC: "Set refresh_mode = 'FULL', or store the value in a source table.",
    Code.TIME_DEPENDENT: "Set refresh_mode = 'FULL', or take the time from a column of a source table.",
    Code.ENVIRONMENT_DEPENDENT: "Write the value as a constant, or set refresh_mode = 'FULL'.",
    Code.ORDER_DEPENDENT: "Use a function whose result does not depend on the order of rows, or set refresh_mode = 'FULL'.",
    Code.OPERATOR_NOT_SUPPORTED: "Set refresh_mode = 'FULL', or write the query without it.",
    Code.SUBQUERY_NOT_SUPPORTED: "Set refresh_mode = 'FULL', or write the subquery as a join.",
    Code.SOURCE_NOT_TRACKED: "Read from tables that the warehouse knows, or set refresh_mode = 'FULL'.",
    Code.UDF_NOT_DETERMINISTIC: "Set refresh_mode = 'FULL', or use built-in functions.",
    Code.FUNCTION_NOT_PRINTABLE: "Set refresh_mode = 'FULL', or use another function.",
    Code.EVALUATION_MODE: "Define the query under one setting of spark.sql.ansi.enabled.",
    Code.SCHEMA_CHANGED: "Set refresh_mode = 'FULL', or cast the column to the type you want.",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason. `fragment` is the offending part of the query, `detail` says why, `hint` what to do next."""

    code: Code
    fragment: str
    detail: str
    hint: str

    def __str__(self) -> str:
        return f"{self.code.value}: {self.fragment}: {self.detail}"


@dataclass(slots=True)
class Findings:
    """What reading a query brought up besides its tree: refusals and notices, each once, in order."""

    refusals: list[Refusal] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def refuse(self, code: Code, fragment: str, detail: str, hint: str | None = None) -> None:
        refusal = Refusal(code, fragment, detail, hint or HINTS[code])
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)
