"""Every function that Spark registers either round-trips or is in the written list of refusals, with its reason.

A function round-trips if the printed query returns what the query returns, in the same types, for at least one of the examples in
Spark's own documentation, and no example of it differs. Functions rewritten to a canonical form are compared by type here and by
value in `test_canonical.py`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.plan.function_examples import ONE_ROW, Example, examples, over_stored_sketches
from tests.plan.round_trip import Frontend

from headwater.errors import QueryError
from headwater.plan.query import RefusedQuery

REFUSED = Path(__file__).with_name("registry_refused.txt")

WITHOUT_EXAMPLES = {
    "!=": "SELECT 1 != id FROM one_row",
    "<>": "SELECT 1 <> id FROM one_row",
    "||": "SELECT 'a' || id FROM one_row",
    "case": "SELECT CASE WHEN id = 0 THEN 'x' ELSE 'y' END FROM one_row",
    **{
        name: f"SELECT {name}({value}) FROM one_row"
        for name, value in {
            "timestamp": "'2024-01-02 03:04:05'",
            "date": "'2024-01-02'",
            "time": "'03:04:05'",
            "binary": "'a'",
            "double": "'1.5'",
            "float": "'1.5'",
            "decimal": "'15'",
            "int": "'15'",
            "bigint": "'15'",
            "smallint": "'15'",
            "tinyint": "'15'",
            "boolean": "'true'",
            "string": "15",
        }.items()
    },
}

TABLE_FUNCTIONS = {
    "collations",
    "python_worker_logs",
    "range",
    "sql_keywords",
    "variant_explode",
    "variant_explode_outer",
}
"""They stand in FROM and are no expressions."""


@pytest.fixture(scope="module")
def registry(spark: object) -> Frontend:
    frontend = Frontend(spark)  # type: ignore[arg-type]
    frontend.set("spark.sql.timeType.enabled", "true")
    frontend.add(ONE_ROW, "SELECT id FROM range(1)")
    return frontend


def outcome(registry: Frontend, example: Example) -> str:
    """Return ROUND_TRIP, CANONICAL, DIFFERENT, NOT_RUNNABLE, or the code of the first refusal."""
    try:
        for name, query in example.tables:
            registry.add(name, query)
        read = registry.read(example.query)
    except QueryError:
        return "NOT_RUNNABLE"
    if isinstance(read, RefusedQuery):
        return read.refusals[0].code.value
    if "timestamp_ltz(9)" in str([c.type for c in read.columns]).lower():
        return "NOT_RUNNABLE"  # PySpark has no such type
    printed = registry.printed(read)
    expected, actual = registry.answers(example.query, printed)
    if any("reproducible" in n or "depends on" in n for n in read.notices):
        return "CANONICAL" if expected.schema == actual.schema else "DIFFERENT"
    return "ROUND_TRIP" if expected == actual else "DIFFERENT"


def outcome_of_all(outcomes: list[str]) -> str:
    """Return what holds for a function: a difference in any example, else its best example."""
    for best in ("DIFFERENT", "ROUND_TRIP", "CANONICAL"):
        if best in outcomes:
            return best
    return next((o for o in outcomes if o != "NOT_RUNNABLE"), "NOT_RUNNABLE")


def documentation(registry: Frontend) -> dict[str, str]:
    functions = registry.data._jsparkSession.sessionState().functionRegistry()
    found = {}
    names = functions.listFunction().iterator()
    while names.hasNext():
        identifier = names.next()
        info = functions.lookupFunction(identifier)
        if info.isDefined():
            found[identifier.funcName()] = info.get().getExamples()
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_registered_function_round_trips_or_is_refused_by_name(registry: Frontend) -> None:
    texts = documentation(registry)
    listed = {f.name for f in registry.data.catalog.listFunctions()}
    assert listed <= set(texts) | set(WITHOUT_EXAMPLES) | TABLE_FUNCTIONS
    results: dict[str, str] = {}
    for name in sorted(listed - TABLE_FUNCTIONS):
        cases = examples(texts.get(name, ""))
        if name in WITHOUT_EXAMPLES:
            cases = [Example(WITHOUT_EXAMPLES[name], ())]
        outcomes = [outcome(registry, c) for c in cases]
        if outcome_of_all(outcomes) == "ORDER_DEPENDENT":
            stored = [s for c in cases if (s := over_stored_sketches(c)) and f"{name}(" in s.query]
            outcomes += [outcome(registry, s) for s in stored]
        results[name] = outcome_of_all(outcomes)
    print(f"\n{len(results)} functions: {dict(Counter(results.values()))}")
    assert [n for n, r in results.items() if r == "DIFFERENT"] == []
    accepted = {"ROUND_TRIP", "CANONICAL"}
    refused = {n: r for n, r in results.items() if r not in accepted}
    assert refused == written_refusals()


def written_refusals() -> dict[str, str]:
    lines = [line for line in REFUSED.read_text().splitlines() if line and not line.startswith("#")]
    return {line.split()[0]: line.split()[1] for line in lines}


def test_list_of_refusals_is_sorted_and_says_why() -> None:
    lines = [line for line in REFUSED.read_text().splitlines() if line and not line.startswith("#")]
    names = [line.split()[0] for line in lines]
    assert names == sorted(set(names))
    assert all(len(line.split()) == 2 for line in lines)
