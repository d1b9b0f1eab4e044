"""Reading physical plans: trees come out as Spark wrote them, and the two laws find what breaks them. Texts alone; no Spark."""

from __future__ import annotations

import pytest
from tests.support.plans import Node, Tables, UnknownPlanError, full_shuffles, parse, repeated_scans, scan_of

LINEITEM, ORDERS, NATION = "a" * 32, "b" * 32, "c" * 32
TABLES = Tables(
    {LINEITEM: "lineitem", ORDERS: "orders", NATION: "nation"},
    {LINEITEM: 200_000_000, ORDERS: 50_000_000, NATION: 2_000},
    10_000_000,
)


def scan(table: str, columns: str = "l_orderkey:bigint", *, filters: str = "", folder: str = "base") -> str:
    """Return the line of a scan as Spark writes it."""
    return (
        f"FileScan parquet [k#1L,v#2] Batched: true, DataFilters: [{filters}], Format: Parquet, "
        f"Location: InMemoryFileIndex(2 paths)[file:/tmp/w/data/{table}/{folder}/w1/part-0.parquet, "
        f"file:/tmp/w/data/{table}/{folder}/w1/part-1.parquet], PartitionFilters: [], "
        f"PushedFilters: [{filters}], ReadSchema: struct<{columns}>"
    )


def names(node: Node) -> list[object]:
    """Return a tree as nested lists of names."""
    return [node.name, *(names(c) for c in node.children)]


# reading --------------------------------------------------------------------------------------------------------------------


def test_a_tree() -> None:
    plan = parse(
        f"""*(2) HashAggregate(keys=[k#1L], functions=[sum(v#2)])
+- *(2) BroadcastHashJoin [k#1L], [k#9L], Inner, BuildRight, false
   :- *(2) Filter isnotnull(k#1L)
   :  +- *(2) ColumnarToRow
   :     +- {scan(LINEITEM)}
   +- BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, true]),false), [plan_id=42]
      +- LocalTableScan [k#9L]
"""
    )
    join = ["BroadcastHashJoin", ["Filter", ["ColumnarToRow", ["FileScan"]]], ["BroadcastExchange", ["LocalTableScan"]]]
    assert names(plan) == ["HashAggregate", join]
    found = [s for n in plan.walk() if (s := scan_of(n))]
    assert [(s.table_id, s.columns, s.filters) for s in found] == [(LINEITEM, "struct<l_orderkey:bigint>", "[] []")]


def test_the_final_plan_of_an_adaptive_one() -> None:
    plan = parse(
        """AdaptiveSparkPlan isFinalPlan=true
+- == Final Plan ==
   ResultQueryStage 1
   +- *(2) Sort [k#1L ASC NULLS FIRST], true, 0
      +- AQEShuffleRead coalesced
         +- ShuffleQueryStage 0
            +- Exchange rangepartitioning(k#1L ASC NULLS FIRST, 2), ENSURE_REQUIREMENTS, [plan_id=7]
               +- LocalTableScan [k#1L]
+- == Initial Plan ==
   Sort [k#1L ASC NULLS FIRST], true, 0
   +- Exchange rangepartitioning(k#1L ASC NULLS FIRST, 2), ENSURE_REQUIREMENTS, [plan_id=5]
      +- LocalTableScan [k#1L]
"""
    )
    stage = ["ShuffleQueryStage", ["Exchange", ["LocalTableScan"]]]
    assert names(plan) == ["AdaptiveSparkPlan", ["ResultQueryStage", ["Sort", ["AQEShuffleRead", stage]]]]


def test_plans_inside_a_node_are_not_its_inputs() -> None:
    plan = parse(
        f"""Project [k#1L]
+- Filter (v#2 > Subquery subquery#5, [id=#9])
   :  +- Subquery subquery#5, [id=#9]
   :     +- AdaptiveSparkPlan isFinalPlan=true
            +- == Final Plan ==
               *(1) HashAggregate(keys=[], functions=[max(v#2)])
               +- LocalTableScan [v#2]
            +- == Initial Plan ==
               HashAggregate(keys=[], functions=[max(v#2)])
               +- LocalTableScan [v#2]
   +- InMemoryTableScan [k#1L, v#2]
         +- InMemoryRelation [k#1L, v#2], StorageLevel(disk, memory, deserialized, 1 replicas)
               +- *(1) ColumnarToRow
                  +- {scan(ORDERS)}
"""
    )
    (filtered,) = plan.children
    assert names(plan) == ["Project", ["Filter", ["InMemoryTableScan"]]]
    assert [names(i) for i in filtered.inner] == [
        ["Subquery", ["AdaptiveSparkPlan", ["HashAggregate", ["LocalTableScan"]]]]
    ]
    (cache,) = filtered.children
    assert [names(i) for i in cache.inner] == [["InMemoryRelation"]]
    assert [names(i) for i in cache.inner[0].inner] == [["ColumnarToRow", ["FileScan"]]]


def test_names_of_scans_of_rows() -> None:
    assert parse("*(1) Scan ExistingRDD[k#1L,v#2]").name == "ScanExistingRDD"
    assert parse("Scan OneRowRelation[]").name == "ScanOneRowRelation"


def test_no_plan_and_two_plans_are_refused() -> None:
    with pytest.raises(UnknownPlanError, match="0 roots"):
        parse("")
    with pytest.raises(UnknownPlanError, match="2 roots"):
        parse("LocalTableScan [k#1L]\nLocalTableScan [k#1L]")


def test_files_outside_are_refused() -> None:
    with pytest.raises(UnknownPlanError, match="not in the warehouse"):
        scan_of(
            parse("FileScan parquet [a#1] Batched: true, Location: InMemoryFileIndex(1 paths)[file:/etc/x.parquet]")
        )


# shuffles -------------------------------------------------------------------------------------------------------------------

CHANGE = "LocalTableScan [k#9L]"


def join(kind: str, left: str, right: str, *, how: str = "BroadcastHashJoin") -> str:
    """Return the text of a join of two plans."""
    return f"{how} [k#1L], [k#9L], {kind}, BuildRight, false\n{below(left, ':- ', ':  ')}\n{below(right, '+- ', '   ')}"


def over(node: str, plan: str) -> str:
    """Return the text of a node with one input."""
    return f"{node}\n{below(plan, '+- ', '   ')}"


def below(plan: str, first: str, rest: str) -> str:
    head, *tail = plan.splitlines()
    return "\n".join([first + head, *(rest + line for line in tail)])


def exchanged(plan: str, number: int = 1) -> str:
    return over(f"Exchange hashpartitioning(k#1L, 2), ENSURE_REQUIREMENTS, [plan_id={number}]", plan)


def broadcast(plan: str, number: int = 2) -> str:
    return over(
        f"BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, true]),false), [plan_id={number}]", plan
    )


def found(plan: str) -> list[str]:
    """Return the verb and the tables of what is found."""
    return [what.partition(" before")[0] for what in full_shuffles(parse(plan), TABLES)]


def test_a_table_that_is_shuffled_whole() -> None:
    assert found(exchanged(scan(LINEITEM))) == ["shuffles lineitem"]
    assert found(exchanged(over("Filter (isnotnull(d#3) AND (d#3 > 1995-01-01))", scan(LINEITEM)))) == [
        "shuffles lineitem"
    ]
    grouped = over("HashAggregate(keys=[k#1L], functions=[partial_sum(v#2)])", scan(LINEITEM))
    assert found(exchanged(grouped)) == ["shuffles lineitem"]


@pytest.mark.parametrize(
    "plan",
    [
        exchanged(join("Inner", scan(LINEITEM), broadcast(CHANGE))),
        exchanged(join("Inner", CHANGE, scan(LINEITEM))),
        exchanged(join("LeftSemi", scan(LINEITEM), broadcast(CHANGE))),
        exchanged(join("LeftOuter", CHANGE, scan(LINEITEM))),
        exchanged(join("RightOuter", scan(LINEITEM), CHANGE)),
        exchanged(join("LeftAnti", CHANGE, scan(LINEITEM))),
        exchanged(join("Inner", join("Inner", scan(LINEITEM), broadcast(CHANGE)), scan(ORDERS))),
        exchanged(join("Inner", scan(LINEITEM), broadcast(scan(ORDERS, folder="tail")))),
        exchanged(join("Inner", scan(LINEITEM), broadcast("Scan ExistingRDD[k#9L]"))),
        exchanged(scan(NATION)),
        exchanged(over("HashAggregate(keys=[], functions=[partial_sum(v#2)])", scan(LINEITEM))),
        exchanged(over("LocalLimit 5", scan(LINEITEM))),
        join("Inner", scan(LINEITEM), broadcast(scan(NATION))),
        join("Inner", scan(LINEITEM), broadcast(over("Filter (v#2 = GERMANY)", scan(ORDERS)))),
    ],
)
def test_what_is_reduced_or_small_may_be_shuffled(plan: str) -> None:
    assert found(plan) == []


@pytest.mark.parametrize(
    ("plan", "blamed"),
    [
        (exchanged(join("Inner", scan(LINEITEM), broadcast(scan(NATION)))), ["shuffles lineitem"]),
        (exchanged(join("LeftOuter", scan(LINEITEM), broadcast(CHANGE))), ["shuffles lineitem"]),
        (exchanged(join("LeftAnti", scan(LINEITEM), broadcast(CHANGE))), ["shuffles lineitem"]),
        (exchanged(join("FullOuter", scan(LINEITEM), CHANGE)), ["shuffles lineitem"]),
        (exchanged(join("ExistenceJoin(exists#4)", scan(LINEITEM), broadcast(CHANGE))), ["shuffles lineitem"]),
        (join("Inner", scan(LINEITEM), broadcast(scan(ORDERS))), ["broadcasts orders"]),
        (join("LeftAnti", CHANGE, broadcast(scan(ORDERS))), ["broadcasts orders"]),
        (
            join("Inner", exchanged(scan(LINEITEM)), exchanged(scan(ORDERS), 3), how="SortMergeJoin"),
            ["shuffles lineitem", "shuffles orders"],
        ),
        (join("Inner", scan(LINEITEM), CHANGE, how="SortMergeJoin"), ["sorts lineitem"]),
        (
            exchanged(join("Inner", join("Inner", scan(LINEITEM), scan(ORDERS)), broadcast(scan(NATION)))),
            ["shuffles lineitem, orders"],
        ),
        (
            exchanged(
                "BroadcastNestedLoopJoin BuildRight, Inner, (k#1L > k#9L)\n:- " + scan(LINEITEM) + "\n+- " + CHANGE
            ),
            ["shuffles lineitem"],
        ),
    ],
)
def test_what_nothing_has_reduced(plan: str, blamed: list[str]) -> None:
    assert found(plan) == blamed


def test_a_union_is_reduced_as_a_whole() -> None:
    signed = "Union\n" + below(scan(LINEITEM), ":- ", ":  ") + "\n" + below(CHANGE, "+- ", "   ")
    assert found(exchanged(signed)) == ["shuffles lineitem"]
    assert found(exchanged(join("Inner", signed, broadcast(CHANGE)))) == []
    assert found(exchanged(join("Inner", scan(ORDERS), broadcast(signed)))) == [
        "broadcasts lineitem",
        "shuffles orders",
    ]


def test_an_exchange_that_is_used_again() -> None:
    keys = broadcast(CHANGE, 77)
    again = "ReusedExchange [k#8L], BroadcastExchange HashedRelationBroadcastMode(List(input[0]),false), [plan_id=77]"
    assert (
        found(exchanged(join("Inner", join("Inner", scan(LINEITEM), keys), join("LeftSemi", scan(ORDERS), again))))
        == []
    )
    with pytest.raises(UnknownPlanError, match="nowhere"):
        found(join("Inner", scan(LINEITEM), again))


def test_subqueries_and_caches_are_looked_into() -> None:
    inside = below(exchanged(scan(ORDERS)), ":     +- ", ":        ")
    name = "Subquery subquery#5, [id=#9]"
    subquery = f"Filter (v#2 > {name})\n:  +- {name}\n{inside}\n+- {CHANGE}"
    assert found(subquery) == ["shuffles orders"]
    made = below(scan(LINEITEM), "         +- ", "            ")
    cached = f"InMemoryTableScan [k#1L]\n   +- InMemoryRelation [k#1L], StorageLevel(disk)\n{made}"
    assert found(exchanged(cached)) == ["shuffles lineitem"]
    assert found(exchanged(join("Inner", cached, broadcast(CHANGE)))) == []


def test_unknown_leaves_are_refused() -> None:
    with pytest.raises(UnknownPlanError, match="neither table nor change"):
        found("SomethingNew [k#1L]")


# scans ----------------------------------------------------------------------------------------------------------------------


def repeated(*plans: str) -> list[str]:
    return [what.partition(" with")[0] for what in repeated_scans([parse(p) for p in plans], TABLES)]


def test_a_table_that_is_read_twice() -> None:
    assert repeated(join("Inner", scan(LINEITEM), scan(LINEITEM))) == ["lineitem is read 2 times"]
    assert repeated(scan(LINEITEM), scan(ORDERS), scan(LINEITEM), scan(LINEITEM)) == ["lineitem is read 3 times"]
    one, other = scan(LINEITEM, filters="isnotnull(k#1L)"), scan(LINEITEM, filters="isnotnull(k#31L)")
    assert repeated(one, other) == ["lineitem is read 2 times"]  # numbers of columns are no difference


def test_other_forms_are_other_scans() -> None:
    assert repeated(scan(LINEITEM), scan(LINEITEM, "l_orderkey:bigint,l_partkey:bigint")) == []
    assert repeated(scan(LINEITEM), scan(LINEITEM, filters="(d#3 > 1995-01-01)")) == []
    assert repeated(scan(LINEITEM), scan(LINEITEM).replace("part-1", "part-2")) == []
    assert repeated(scan(LINEITEM, folder="tail"), scan(LINEITEM, folder="tail")) == []


def test_what_is_reused_or_cached_is_read_once() -> None:
    again = "ReusedExchange [k#8L], BroadcastExchange HashedRelationBroadcastMode(List(input[0]),false), [plan_id=2]"
    assert repeated(join("Inner", broadcast(scan(NATION)), again)) == []
    made = below(scan(LINEITEM), "         +- ", "            ")
    cached = "InMemoryTableScan [{0}]\n   +- InMemoryRelation [{0}], StorageLevel(disk)\n" + made
    assert repeated(join("Inner", cached.format("k#1L"), cached.format("k#5L"))) == []
    assert repeated(cached.format("k#1L"), cached.format("k#5L"), scan(LINEITEM)) == ["lineitem is read 2 times"]
