"""From what Spark says about a query to what Headwater needs of it: a typed tree, or the reasons why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import QueryError
from headwater.model.analyzed import AnalyzedQuery
from headwater.plan.catalyst import read_plan
from headwater.plan.column_types import SchemaOf, typed_nulls, with_outer_nulls, with_types
from headwater.plan.expressions import Column
from headwater.plan.operators import Operator
from headwater.plan.printer import final_sql
from headwater.plan.pruning import pruned
from headwater.plan.refusal import Code, Findings, Refusal
from headwater.plan.scope import Session


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be maintained incrementally.

    `tree.output` is its result in order; `names` are what the user calls these columns (they may repeat). `sources` are the
    tables it reads, each once. `notices` say where the stored query differs from the text the user wrote.
    """

    tree: Operator
    names: tuple[str, ...]
    sources: tuple[str, ...]
    notices: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.tree.output


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A query that cannot be maintained incrementally, with every reason found."""

    refusals: tuple[Refusal, ...]
    names: tuple[str, ...]
    sources: tuple[str, ...]
    notices: tuple[str, ...]


def read_query(analyzed: AnalyzedQuery, session: Session, schema_of: SchemaOf) -> Query | RefusedQuery:
    """Return the query as a typed tree, or all reasons why it cannot be one."""
    findings = Findings()
    names = tuple(f.name for f in analyzed.output)
    tree = read_plan(analyzed, session, findings)
    if not analyzed.is_deterministic and not findings.refusals:
        findings.refuse(
            Code.EXPRESSION_NOT_DETERMINISTIC, "the query", "Spark calls an expression in it non-deterministic."
        )
    if not analyzed.tables:
        detail = "It reads no table, so there are no changes that it could follow."
        findings.refuse(Code.SOURCE_NOT_TRACKED, "the query", detail)
    if tree is not None:
        tree = with_types(with_outer_nulls(pruned(tree)), schema_of)
        _check_schema(tree, analyzed, schema_of, findings)
    if tree is None or findings.refusals:
        return RefusedQuery(tuple(findings.refusals), names, analyzed.tables, tuple(findings.notices))
    return Query(tree, names, analyzed.tables, tuple(findings.notices))


def _check_schema(tree: Operator, analyzed: AnalyzedQuery, schema_of: SchemaOf, findings: Findings) -> None:
    """Refuse a tree whose text Spark reads as another schema than the query's: it would be another query."""
    names = [f.name for f in analyzed.output]
    try:
        printed = schema_of(final_sql(tree, names, typed_nulls))
    except QueryError as error:
        findings.refuse(
            Code.FUNCTION_NOT_PRINTABLE, "the query", f"Spark does not read its own plan back: {error.detail}"
        )
        return
    for wanted, (_, type_, _) in zip(analyzed.output, printed, strict=True):
        if wanted.type != type_:
            detail = f"Written back as SQL its type becomes {type_} instead of {wanted.type}."
            findings.refuse(Code.SCHEMA_CHANGED, wanted.name, detail)
