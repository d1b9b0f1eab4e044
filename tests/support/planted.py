"""Planted bugs: delta rules, wrong in one way each. A test suite that lets one of them pass would not find it in the product either.

Each is an error that somebody might make, or has made: a side read in the wrong state, a match counted where it should be asked
for, a NULL forgotten. `caught_by` names the trap (`tests/support/traps.py`) that must show it.

Functions are patched where they are used, and only while the stream table of one test is defined and refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any
from unittest import mock

from tests.support import wrong_rules as wrong

from headwater.delta import (
    aggregate,
    aggregates,
    anti_join,
    inner_join,
    left_join,
    matching,
    near,
    normal,
    not_in,
    recursion,
    semi_join,
    sharing,
    top,
    window,
)
from headwater.delta.context import call
from headwater.delta.join import JOIN_RULES
from headwater.delta.left_join import left_join_delta
from headwater.delta.matching import Matched, Meeting
from headwater.delta.near import Pair
from headwater.delta.rules import RULES
from headwater.delta.semi_join import semi_join_delta
from headwater.plan.expressions import Literal
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    JoinKind,
    Operator,
    Project,
    Recursion,
    Scan,
    Stage,
    Top,
    Union,
    Values,
    Window,
)
from headwater.refresh import evaluate, places
from headwater.refresh.places import Places
from headwater.refresh.template import Text
from headwater.store import near as lookups
from headwater.store import reading, rows


class Machinery(Enum):
    """What rules rely on, where it has no rule of its own."""

    NEAR = "restrictions by the keys of a change"
    DRIVERS = "which terms are run"
    NETTING = "which changes cancel"
    KEYS = "what tells the rows of a result apart"
    SHARING = "which parts of a query are equal"


class Shows(Enum):
    """How a bug must become visible."""

    WRONG_ROWS = (
        "the stream table holds other rows than the query gives, or the refresh reports other changes than it made"
    )
    FAILED_CHECK = "a check of the product fails the refresh"


Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One way to be wrong: what it breaks, what is wrong, how it is planted, and what shows it in which way."""

    name: str
    breaks: type[Operator] | JoinKind | Machinery
    what: str
    plant: Plant
    caught_by: str
    shows: Shows = Shows.WRONG_ROWS


def _rule(kind: type[Operator], rule: Any) -> Plant:
    return lambda: mock.patch.dict(RULES, {kind: rule})


def _join_rule(kind: JoinKind, rule: Any) -> Plant:
    return lambda: mock.patch.dict(JOIN_RULES, {kind: rule})


def _patch(owner: Any, name: str, instead: Any) -> Plant:
    return lambda: mock.patch.object(owner, name, instead)


def _with(plant: Plant, *others: Plant) -> Plant:
    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as planted:
            for one in (plant, *others):
                planted.enter_context(one())
            yield

    return all_of_them


_LOOKED_UP = _patch(places, "rows_near", lookups.rows_near)
"""Let the driver look up rows near a change: traps let Spark scan for them."""

PLANTED = (
    # scan
    PlantedBug(
        "an_update_counts_if_it_changed_all_columns_that_are_read",
        Scan,
        "The mask of changed columns is compared with all columns that are read, not with any.",
        _patch(evaluate, "touching", wrong.touched_in_all_columns),
        "update_of_one_column",
    ),
    PlantedBug(
        "the_mask_of_changed_columns_is_off_by_one",
        Scan,
        "An update of the last column that is read is taken for one that nobody reads.",
        _patch(evaluate, "changed_words", lambda positions: _changed_words(p + 1 for p in positions)),
        "update_of_one_column",
    ),
    PlantedBug(
        "old_states_are_read_at_the_new_version",
        Scan,
        "Where a rule asks for a table as it was, it gets the table as it is.",
        _patch(Places, "_state_text", wrong.state_text_as_it_is),
        "inner_join",
    ),
    PlantedBug(
        "the_driver_takes_rows_of_one_value_for_equal",
        Scan,
        "Where the driver adds up base and tail, rows that share their first column cancel.",
        _with(_patch(reading, "_FEW_ROWS", 4000), _patch(rows, "row_codes", wrong.codes_of_the_first_column)),
        "update_of_one_column",
    ),
    PlantedBug(
        "equal_rows_of_the_tail_are_read_once",
        Scan,
        "Rows of a table without a key that were inserted n times are read once.",
        _patch(reading, "copies_sql", wrong.copies_once),
        "union",
    ),
    # filter, project, expand, generate, union, values
    PlantedBug(
        "deletions_pass_every_filter",
        Filter,
        "Only new rows are judged, as if whatever is deleted had been in the result.",
        _rule(Filter, wrong.filter_that_lets_deletions_pass),
        "filter",
    ),
    PlantedBug(
        "deletions_pass_every_filter_below_a_group",
        Filter,
        "The same where rows are counted: a group loses rows that it never had.",
        _rule(Filter, wrong.filter_that_lets_deletions_pass),
        "groups_of_filtered_rows",
        Shows.FAILED_CHECK,
    ),
    PlantedBug(
        "null_passes_a_filter",
        Filter,
        "A change row is dropped where the condition is false, and kept where it is NULL.",
        _rule(Filter, wrong.filter_that_lets_null_pass),
        "filter",
    ),
    PlantedBug(
        "projected_changes_are_made_distinct",
        Project,
        "Rows that become equal by projecting are taken for one.",
        _rule(Project, wrong.project_to_distinct_rows),
        "project",
    ),
    PlantedBug(
        "the_grouping_id_is_lost",
        Expand,
        "All grouping sets of a change row carry the id of the first: NULL as all meets NULL as a value.",
        _rule(Expand, wrong.expand_without_grouping_id),
        "rollup",
    ),
    PlantedBug(
        "outer_is_lost",
        Generate,
        "A change row of which the generator makes nothing gives no row under OUTER.",
        _rule(Generate, wrong.generate_without_outer),
        "explode_outer",
    ),
    PlantedBug(
        "the_last_branch_of_a_union_is_forgotten",
        Union,
        "Changes of the last branch have no term.",
        _rule(Union, wrong.union_without_last_branch),
        "union",
    ),
    PlantedBug(
        "constants_come_again",
        Values,
        "Constant rows are inserted at each refresh.",
        _rule(Values, wrong.values_that_come_again),
        "values",
    ),
    # aggregate
    PlantedBug(
        "groups_that_having_hides_are_not_kept",
        Aggregate,
        "The state holds what the result shows: a group that fails HAVING starts at nothing again.",
        _patch(evaluate, "_state_rows", wrong.shown_state_rows),
        "groups_that_having_hides",
    ),
    PlantedBug(
        "the_largest_value_never_leaves",
        Aggregate,
        "Deleted values stay in the buffer of MIN and MAX.",
        _patch(aggregates, "extremum", wrong.extremum_that_never_falls),
        "groups",
    ),
    PlantedBug(
        "a_group_whose_buffer_is_empty_is_not_read_again",
        Aggregate,
        "When all values that MAX kept are gone, the others are forgotten.",
        _patch(aggregates, "extremum", wrong.extremum_without_rescan),
        "more_values_than_are_kept",
    ),
    PlantedBug(
        "a_distinct_value_leaves_with_its_first_copy",
        Aggregate,
        "DISTINCT passes every change on, however many copies there are.",
        _rule(Aggregate, wrong.distinct_by_every_change),
        "distinct",
    ),
    PlantedBug(
        "count_distinct_counts_copies",
        Aggregate,
        "count(DISTINCT) follows every change of a value, not its first and last copy.",
        _rule(Aggregate, wrong.distinct_by_every_change),
        "groups",
    ),
    PlantedBug(
        "the_sum_of_nothing_is_zero",
        Aggregate,
        "SUM over NULLs alone gives 0.",
        _patch(aggregates, "_sum_or_avg", wrong.sum_of_nothing_is_zero),
        "groups",
    ),
    PlantedBug(
        "an_average_divides_by_all_rows",
        Aggregate,
        "AVG divides by the number of rows, those with NULL among them.",
        _patch(aggregates, "_sum_or_avg", wrong.average_over_all_rows),
        "average_with_a_filter",
    ),
    PlantedBug(
        "the_group_of_null_is_not_found",
        Aggregate,
        "The old state of a group whose key is NULL is not looked up.",
        _patch(evaluate, "rows_of_keys", wrong.rows_of_known_keys),
        "groups",
    ),
    PlantedBug(
        "an_empty_group_stays",
        Aggregate,
        "A group without rows is shown with a count of 0.",
        _patch(aggregate, "_merged", wrong.merged_where(lambda made, count: Literal("true"))),
        "groups",
    ),
    PlantedBug(
        "the_one_group_goes_with_its_last_row",
        Aggregate,
        "Without GROUP BY there is no row when the input is empty.",
        _patch(aggregate, "_merged", wrong.merged_where(lambda made, count: call("({0} > 0)", count))),
        "one_group_for_all",
    ),
    PlantedBug(
        "a_group_that_lost_a_row_is_not_read_again",
        Aggregate,
        "A rescan reads the groups of inserted rows; the group that a row left stays as it was.",
        _patch(aggregate, "_changes", wrong.changes_of_joined_groups),
        "groups_read_again",
    ),
    PlantedBug(
        "a_new_state_is_read_as_it_was",
        Aggregate,
        "What reads an aggregate later in the same refresh sees its groups before their changes.",
        _patch(Places, "_state_text", wrong.state_text_as_it_was),
        "inner_join_with_an_aggregate",
    ),
    # inner join
    PlantedBug(
        "both_terms_read_new_states",
        JoinKind.INNER,
        "delta R join S' + R' join delta S: pairs of two changes count twice.",
        _patch(inner_join, "_Walk", wrong.WalkOverNewStates),
        "inner_join",
    ),
    PlantedBug(
        "both_terms_read_old_states",
        JoinKind.INNER,
        "delta R join S + R join delta S: pairs of two changes are missing.",
        _patch(inner_join, "_Walk", wrong.WalkOverOldStates),
        "inner_join",
    ),
    PlantedBug(
        "the_last_input_drives_no_term",
        JoinKind.INNER,
        "Changes of the last input are joined with nothing.",
        _join_rule(JoinKind.INNER, wrong.inner_join_without_last_delta),
        "inner_join",
    ),
    PlantedBug(
        "bounds_follow_from_null_safe_equality",
        JoinKind.INNER,
        "What `<=>` compares is limited to the bounds of known keys, and NULL lies in none.",
        _patch(inner_join, "_Equal", wrong.EqualWithNulls),
        "inner_join_where_null_is_a_key",
    ),
    # left join
    PlantedBug(
        "padding_goes_once_per_match",
        JoinKind.LEFT,
        "A row that finds two partners at once loses its padding twice.",
        _patch(left_join, "kept_rows", wrong.kept_per_match),
        "left_join",
    ),
    PlantedBug(
        "flips_are_looked_up_among_old_rows",
        JoinKind.LEFT,
        "L * (f(e1) - f(e0)): a row that comes together with its partner stays padded.",
        _patch(Matched, "flipped", wrong.within_old_states(Matched.flipped)),
        "left_join",
    ),
    PlantedBug(
        "matches_before_are_those_of_now",
        JoinKind.LEFT,
        "The number of matches before is not lessened by the changes: no answer ever changes.",
        _patch(Meeting, "_counted", wrong.counted_without_changes),
        "left_join",
    ),
    PlantedBug(
        "partners_are_read_near_their_own_changes_only",
        JoinKind.LEFT,
        "A new left row does not find a partner that was always there.",
        _patch(Meeting, "near_right", wrong.near_right_by_its_own_changes),
        "left_join",
    ),
    PlantedBug(
        "null_meets_null",
        JoinKind.LEFT,
        "Keys compared by `=` are counted as if by `<=>`.",
        _patch(matching, "split", wrong.split_as(null_safe=True)),
        "left_join",
    ),
    PlantedBug(
        "null_meets_nobody",
        JoinKind.LEFT,
        "Keys compared by `<=>` are counted as if by `=`.",
        _patch(matching, "split", wrong.split_as(null_safe=False)),
        "left_join_where_null_is_a_key",
    ),
    PlantedBug(
        "pairs_of_two_changes_are_not_taken_back",
        JoinKind.LEFT,
        "delta L join R' + L' join delta R, without the third term: pairs of two changes count twice.",
        _patch(Meeting, "pairs_delta", wrong.pairs_without_correction),
        "left_join",
    ),
    # full join
    PlantedBug(
        "a_full_join_pads_its_left_side_only",
        JoinKind.FULL,
        "The mirror of the left join's law is forgotten.",
        _join_rule(JoinKind.FULL, left_join_delta),
        "full_join",
    ),
    PlantedBug(
        "left_rows_are_read_near_right_changes_only",
        JoinKind.FULL,
        "A right row whose partner comes is not seen to have one.",
        _patch(Meeting, "near_left_both", Meeting.near_left),
        "full_join",
    ),
    # semi, anti, existence and single join
    PlantedBug(
        "a_semi_join_counts_matches",
        JoinKind.SEMI,
        "A row is kept once for each of its matches.",
        _patch(semi_join, "kept_rows", wrong.kept_per_match),
        "semi_join",
    ),
    PlantedBug(
        "matches_are_counted_in_the_old_state",
        JoinKind.SEMI,
        "The right rows near a change are read as they were.",
        _patch(Meeting, "_rows_near", wrong.within_old_states(Meeting._rows_near)),
        "semi_join",
    ),
    PlantedBug(
        "a_lost_match_touches_no_row",
        JoinKind.SEMI,
        "Where rows are counted one by one, only those that meet an inserted row are looked at.",
        _patch(Meeting, "_by_row", wrong.by_row_without_deletions),
        "semi_join_by_a_range",
    ),
    PlantedBug(
        "an_anti_join_keeps_what_matches",
        JoinKind.ANTI,
        "f(e) = e, where it is 1 - e.",
        _join_rule(JoinKind.ANTI, semi_join_delta),
        "anti_join",
    ),
    PlantedBug(
        "changed_rows_are_judged_by_the_new_answer",
        JoinKind.ANTI,
        "delta L * f(e1) + L' * (f(e1) - f(e0)): a row that comes together with its match is taken out, and was never in.",
        _patch(anti_join, "kept_rows", wrong.kept_by_new_answer),
        "anti_join",
    ),
    PlantedBug(
        "an_answer_is_settled_at_birth",
        JoinKind.EXISTENCE,
        "A row keeps the answer that it came with.",
        _join_rule(JoinKind.EXISTENCE, wrong.existence_settled_at_birth),
        "existence_join",
    ),
    PlantedBug(
        "the_old_answer_stays_beside_the_new_one",
        JoinKind.EXISTENCE,
        "A row whose answer changes is put in again and not taken out.",
        _join_rule(JoinKind.EXISTENCE, wrong.existence_with_both_answers),
        "existence_join",
    ),
    PlantedBug(
        "not_in_forgets_null_in_the_list",
        JoinKind.EXISTENCE,
        "A NULL in the subquery hides nothing.",
        _patch(not_in, "call", wrong.not_in_form(" OR {1}", "")),
        "not_in",
    ),
    PlantedBug(
        "not_in_forgets_null_outside_of_the_list",
        JoinKind.EXISTENCE,
        "A row whose own value is NULL is shown though the list is not empty.",
        _patch(not_in, "call", wrong.not_in_form("({0} IS NULL AND {1})", "false")),
        "not_in",
    ),
    PlantedBug(
        "a_second_row_of_a_scalar_subquery_is_let_through",
        JoinKind.SINGLE,
        "A single join is a left join, and nobody counts.",
        _join_rule(JoinKind.SINGLE, left_join_delta),
        "single_join",
    ),
    # window, top
    PlantedBug(
        "the_partition_that_a_row_left_is_forgotten",
        Window,
        "Only partitions of inserted rows are computed again.",
        _patch(window, "Project", lambda changes, items: Project(wrong.insertions(changes), items)),
        "window",
    ),
    PlantedBug(
        "the_partition_of_null_is_outside_of_the_bounds",
        Window,
        "Partitions are matched as by `=`: the bounds of the others leave out NULL.",
        _patch(window, "Pair", partial(Pair, null_safe=False)),
        "window",
    ),
    PlantedBug(
        "a_window_takes_nothing_back",
        Window,
        "The new rows of a changed partition come, the old ones stay.",
        _rule(Window, wrong.window_without_old_rows),
        "window",
    ),
    PlantedBug(
        "a_top_takes_nothing_back",
        Top,
        "New first rows less nothing.",
        _rule(Top, wrong.top_without_old_rows),
        "offset_without_a_limit",
    ),
    PlantedBug(
        "the_first_of_the_changes_are_the_changes_of_the_first",
        Top,
        "The limit is applied to the change rows, as if it were linear.",
        _rule(Top, wrong.top_of_the_changes),
        "offset_without_a_limit",
    ),
    PlantedBug(
        "null_stands_where_it_falls",
        Top,
        "The kept first rows are ordered by their values alone: NULL is the smallest, whatever NULLS LAST says.",
        _patch(top, "ascending", wrong.ascending_by_value_alone),
        "limit",
    ),
    PlantedBug(
        "a_row_that_leaves_the_first_ones_stays",
        Top,
        "Deleted rows stay in the buffer of the first ones.",
        _patch(aggregates, "extremum", wrong.extremum_that_never_falls),
        "limit",
    ),
    PlantedBug(
        "a_limit_is_read_again_when_no_row_is_left",
        Top,
        "When fewer rows are kept than the limit shows, but some are, the others are forgotten.",
        _patch(aggregates, "extremum", wrong.extremum_that_needs_one),
        "limit_beyond_what_is_kept",
    ),
    # recursion
    PlantedBug(
        "deletions_do_not_travel",
        Recursion,
        "Only insertions start a round.",
        _patch(recursion, "LoopStage", wrong.loop_without_deletions),
        "recursion",
    ),
    PlantedBug(
        "nothing_follows_from_the_first_round",
        Recursion,
        "The changes that come at once are taken for all.",
        _patch(recursion, "LoopStage", wrong.loop_of_one_round),
        "recursion",
    ),
    PlantedBug(
        "changed_tables_of_the_step_start_nothing",
        Recursion,
        "Only the changes of the anchor are followed.",
        _rule(Recursion, wrong.recursion_blind_to_tables_of_its_step),
        "recursion",
    ),
    PlantedBug(
        "derived_rows_are_a_set",
        Recursion,
        "Of a row that was derived twice, only one derivation meets a new row of a table.",
        _patch(recursion, "_kept", wrong.old_rows_as_a_set),
        "recursion",
    ),
    PlantedBug(
        "a_recursion_is_all_new_to_itself",
        Stage,
        "What the step reads of the recursion counts as changed, all of it.",
        _rule(Stage, wrong.stage_that_is_all_new),
        "recursion",
    ),
    # what rules rely on
    PlantedBug(
        "a_restriction_goes_below_a_full_join",
        Machinery.NEAR,
        "A full join is restricted like a left join: right rows whose partner is left out come padded.",
        _patch(near, "_into_join", wrong.into_join_as(JoinKind.FULL, JoinKind.LEFT)),
        "window_by_a_side_of_a_full_join",
    ),
    PlantedBug(
        "a_restriction_goes_below_the_null_side",
        Machinery.NEAR,
        "A left join is restricted by right columns: left rows whose partner is left out come padded.",
        _patch(near, "_into_join", wrong.into_join_as(JoinKind.LEFT, JoinKind.INNER)),
        "window_by_the_null_side_of_a_left_join",
    ),
    PlantedBug(
        "half_a_key_is_taken_for_the_whole",
        Machinery.NEAR,
        "A restriction of which only some columns can be pushed down is not applied again on top.",
        _patch(near, "_below", wrong.below_is_always_enough),
        "groups_read_again",
    ),
    PlantedBug(
        "near_rows_are_taken_for_all_rows",
        Machinery.NEAR,
        "Rows that were read for some keys are given to a text that asks for others.",
        _with(_patch(places, "_NEAR_TABLE_ROWS", 0), _patch(places, "_has_all", lambda rows, keys: True)),
        "one_table_joined_twice_in_a_row",
    ),
    PlantedBug(
        "bounds_leave_out_null",
        Machinery.NEAR,
        "NULL among the keys of a change is not counted when its bounds are taken.",
        _patch(Places, "_bound", wrong.bound_of_known_keys),
        "window",
    ),
    PlantedBug(
        "bounds_leave_out_their_end",
        Machinery.NEAR,
        "Rows are read below the largest key, not up to it.",
        _patch(reading, "_bounds_sql", wrong.bounds_without_their_end),
        "inner_join",
    ),
    PlantedBug(
        "lookups_forget_the_tail",
        Machinery.NEAR,
        "Of the rows near a change those of the base are taken, without what changed since.",
        _with(_LOOKED_UP, _patch(lookups, "_with_tail", lambda base, tail, signs, table: base)),
        "inner_join",
    ),
    PlantedBug(
        "lookups_leave_out_null",
        Machinery.NEAR,
        "NULL among the keys of a change finds no row.",
        _with(_LOOKED_UP, _patch(lookups, "_met", wrong.met_without_null)),
        "window",
    ),
    PlantedBug(
        "lookups_see_the_table_as_it_is",
        Machinery.NEAR,
        "Rows near a change are looked up in the table as it is, where they are wanted as they were.",
        _with(_LOOKED_UP, _patch(Places, "_source", wrong.source_as_it_is)),
        "inner_join",
    ),
    PlantedBug(
        "a_term_waits_for_all_its_drivers",
        Machinery.DRIVERS,
        "A term that two sources drive is run if both changed.",
        _patch(Text, "live", wrong.live_where_all_drivers_are),
        "left_join_of_keyed_tables",
    ),
    PlantedBug(
        "matches_are_counted_when_the_left_side_changes",
        Machinery.DRIVERS,
        "Changes of the right side alone do not drive the stage that counts matches.",
        _patch(left_join, "Meeting", wrong.MeetingDrivenByItsLeft),
        "left_join_of_keyed_tables",
    ),
    PlantedBug(
        "a_staged_change_of_weight_two_is_one_row",
        Machinery.NETTING,
        "Netting gives each tuple once, whatever its weight.",
        _patch(evaluate, "copies_sql", wrong.copies_once),
        "left_join_of_a_left_join",
    ),
    PlantedBug(
        "pairs_are_told_apart_by_their_left_row",
        Machinery.KEYS,
        "The key of a join is that of its left side, though rows may have several partners.",
        _patch(normal, "split", wrong.split_by_left_row),
        "left_join_of_keyed_tables",
    ),
    PlantedBug(
        "rows_that_only_their_key_tells_apart_are_numbered_by_chance",
        Machinery.KEYS,
        "Keys are carried along beside the user's columns, and orders that must be total go on without them.",
        _with(
            _patch(reading, "_FEW_ROWS", 4000),
            _patch(normal, "_with_total_order", lambda op, child, key: op.with_inputs(child)),
        ),
        "equal_rows_that_change_places",
    ),
    PlantedBug(
        "parts_that_differ_in_a_constant_are_one",
        Machinery.SHARING,
        "Parts of a query are compared without their constants: two groups have one state.",
        _patch(sharing._Numbering, "form", wrong.form_without_constants),
        "groups_that_differ_in_a_constant",
    ),
)

_changed_words = evaluate.changed_words
