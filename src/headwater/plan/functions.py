"""Which functions do not give the same answer twice: own lists, written out.

Catalyst's own flag is not enough. It calls collect_list, first, mode and current_date deterministic: it means "twice within
one task", Headwater needs "on another day, with the rows in another order". Keys are Catalyst's classes, values the SQL names.
"""

from __future__ import annotations

NON_DETERMINISTIC: dict[str, str] = {
    "Rand": "rand",
    "Randn": "randn",
    "RandStr": "randstr",
    "Uniform": "uniform",
    "Uuid": "uuid",
    "Shuffle": "shuffle",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileBlockLength": "input_file_block_length",
    "CallMethodViaReflection": "reflect",
    "TryReflect": "try_reflect",
}
"""A new value at each evaluation, or one that depends on where a row is stored."""

TIME_DEPENDENT: dict[str, str] = {
    "CurrentDate": "current_date",
    "CurrentTimestamp": "current_timestamp",
    "Now": "now",
    "LocalTimestamp": "localtimestamp",
    "CurrentTime": "current_time",
    "CurrentBatchTimestamp": "current_batch_timestamp",
}
"""The result changes as time passes, without any change in a source."""

SPECIAL_TIMES = frozenset({"now", "today", "tomorrow", "yesterday"})
"""Strings that a cast to DATE or TIMESTAMP reads as a moment of the present."""

ENVIRONMENT_DEPENDENT: dict[str, str] = {
    "CurrentUser": "current_user",
    "CurrentDatabase": "current_database",
    "CurrentCatalog": "current_catalog",
    "CurrentPath": "current_path",
    "SparkVersion": "version",
}
"""The result depends on who runs the query, and where. The time zone is not among them: it is stored with a stream table."""

ORDER_DEPENDENT_SKETCHES: dict[str, str] = {
    "HistogramNumeric": "histogram_numeric",
    "HllSketchAgg": "hll_sketch_agg",
    "HllUnionAgg": "hll_union_agg",
    "ThetaSketchAgg": "theta_sketch_agg",
    "ThetaUnionAgg": "theta_union_agg",
    "ThetaIntersectionAgg": "theta_intersection_agg",
    "KllSketchAggBigint": "kll_sketch_agg_bigint",
    "KllSketchAggFloat": "kll_sketch_agg_float",
    "KllSketchAggDouble": "kll_sketch_agg_double",
    "KllMergeAggBigint": "kll_merge_agg_bigint",
    "KllMergeAggFloat": "kll_merge_agg_float",
    "KllMergeAggDouble": "kll_merge_agg_double",
    "TupleSketchAggDouble": "tuple_sketch_agg_double",
    "TupleSketchAggInteger": "tuple_sketch_agg_integer",
    "TupleUnionAggDouble": "tuple_union_agg_double",
    "TupleUnionAggInteger": "tuple_union_agg_integer",
    "TupleIntersectionAggDouble": "tuple_intersection_agg_double",
    "TupleIntersectionAggInteger": "tuple_intersection_agg_integer",
    "ApproxTopK": "approx_top_k",
    "ApproxTopKAccumulate": "approx_top_k_accumulate",
    "ApproxTopKCombine": "approx_top_k_combine",
}
"""Aggregates whose bytes or estimates depend on the order in which rows arrive, and which have no canonical form."""

CANONICAL: frozenset[str] = frozenset(
    {
        "CollectList",
        "CollectSet",
        "First",
        "Last",
        "AnyValue",
        "ListAgg",
        "Mode",
        "MaxBy",
        "MinBy",
        "MaxMinByK",
        "ApproximatePercentile",
    }
)
"""Aggregates that depend on the order of rows and are rewritten to one that does not; see `plan/canonical.py`."""
