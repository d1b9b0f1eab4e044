"""Changing managed tables by statements and by the API: what each of them does to the contents."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from tests.support.tables import check_hash, contents, table_of

from headwater.errors import ConstraintError, MissingRowError, StatementError, UnknownTableError, WrongKindError
from headwater.model.tables import RefreshAction
from headwater.warehouse import Warehouse


@pytest.fixture
def pets(wh: Warehouse) -> Warehouse:
    """A keyed table of four rows, one of them with a NULL."""
    wh.sql("CREATE TABLE pets (id BIGINT PRIMARY KEY, kind STRING, age INT)")
    wh.sql("INSERT INTO pets VALUES (1, 'cat', 3), (2, 'dog', 5), (3, 'cat', NULL), (4, 'eel', 1)")
    return wh


@pytest.fixture
def beads(wh: Warehouse) -> Warehouse:
    """A table without a key, with equal rows."""
    wh.create_table("beads", "colour STRING, n INT")
    wh.insert("beads", [{"colour": "red", "n": 1}] * 3 + [{"colour": "blue", "n": None}] * 2)
    return wh


def test_insert_matches_by_position_by_columns_and_by_name(pets: Warehouse) -> None:
    pets.sql("INSERT INTO pets (age, id) VALUES (7, 5)")
    pets.sql("INSERT INTO pets BY NAME SELECT 'owl' AS kind, 6L AS id")
    pets.insert("pets", {"ID": 7, "Kind": "ant"})
    pets.insert("pets", [])
    pets.insert(
        "pets", pa.table({"id": pa.array([8, 9], pa.uint32()), "kind": pa.array(["x", "y"]).dictionary_encode()})
    )
    assert pets.sql("INSERT INTO pets SELECT id + 100, kind, age FROM pets WHERE kind = 'cat'").rows_affected == 2
    assert contents(pets, "pets") == {
        (1, "cat", 3): 1,
        (2, "dog", 5): 1,
        (3, "cat", None): 1,
        (4, "eel", 1): 1,
        (5, None, 7): 1,
        (6, "owl", None): 1,
        (7, "ant", None): 1,
        (8, "x", None): 1,
        (9, "y", None): 1,
        (101, "cat", 3): 1,
        (103, "cat", None): 1,
    }
    check_hash(pets, "pets")


def test_update_and_delete_take_rows_for_which_the_condition_is_true(pets: Warehouse) -> None:
    assert pets.sql("UPDATE pets SET age = age + 1, kind = upper(kind) WHERE age > 2").rows_affected == 2
    assert pets.sql("UPDATE pets AS p SET age = (SELECT max(age) FROM pets) WHERE p.id = 4").rows_affected == 1
    assert pets.update("pets", set={"id": "id + 1"}).rows_affected == 4
    assert contents(pets, "pets") == {(2, "CAT", 4): 1, (3, "DOG", 6): 1, (4, "cat", None): 1, (5, "eel", 6): 1}
    assert pets.delete("pets", where="age > 4").rows_affected == 2
    assert pets.sql("DELETE FROM pets WHERE age IN (SELECT 4)").rows_affected == 1
    assert contents(pets, "pets") == {(4, "cat", None): 1}
    before = pets.version
    assert pets.sql("DELETE FROM pets WHERE id = 99").rows_affected == 0
    assert pets.version == before
    assert pets.sql("TRUNCATE TABLE pets").rows_affected == 1
    assert contents(pets, "pets") == {}
    assert (table_of(pets, "pets").hash, table_of(pets, "pets").row_count) == (0, 0)


def test_upsert_inserts_replaces_and_leaves_alone(pets: Warehouse) -> None:
    change = pets.upsert("pets", [{"id": 1, "kind": "cat", "age": 3}, {"id": 2, "kind": "wolf"}, {"id": 9, "age": 0}])
    assert (change.value.inserted, change.value.deleted) == (2, 1)
    assert contents(pets, "pets") == {
        (1, "cat", 3): 1,
        (2, "wolf", None): 1,
        (3, "cat", None): 1,
        (4, "eel", 1): 1,
        (9, None, 0): 1,
    }
    check_hash(pets, "pets")
    # The first row equals the stored one, the second does not: a key named twice is refused whatever the table holds.
    with pytest.raises(ConstraintError, match="duplicate key in the rows"):
        pets.upsert("pets", [{"id": 1, "kind": "cat", "age": 3}, {"id": 1, "kind": "lion", "age": 3}])


def test_merge_runs_the_first_clause_that_applies(pets: Warehouse) -> None:
    pets.sql("CREATE TABLE news (id BIGINT, kind STRING, age INT)")
    pets.sql("INSERT INTO news VALUES (1, 'cat', 99), (2, 'dog', 6), (3, 'cat', NULL), (7, 'ant', 0), (8, 'bee', 1)")
    change = pets.sql(
        "MERGE INTO pets AS t USING news AS s ON t.id = s.id "
        "WHEN MATCHED AND s.age > 50 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET age = s.age, kind = concat(t.kind, '!') "
        "WHEN NOT MATCHED AND s.age = 0 THEN INSERT (id, kind) VALUES (s.id, s.kind) "
        "WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.age < 1 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET kind = 'lost'"
    )
    assert (change.value.inserted, change.value.deleted) == (5, 4)
    assert contents(pets, "pets") == {
        (2, "dog!", 6): 1,
        (3, "cat!", None): 1,
        (4, "lost", 1): 1,
        (7, "ant", None): 1,
        (8, "bee", 1): 1,
    }
    check_hash(pets, "pets")
    assert pets.sql("MERGE INTO pets USING news ON pets.id = news.id WHEN MATCHED THEN UPDATE SET *").rows_affected == 3
    assert contents(pets, "pets")[(2, "dog", 6)] == 1


def test_merge_refuses_a_row_that_is_matched_twice(pets: Warehouse) -> None:
    before = contents(pets, "pets")
    twice = "(SELECT 1L AS id, 3 AS age UNION ALL SELECT 1L, 4) AS s"
    with pytest.raises(ConstraintError, match="matched by more than one row"):
        pets.sql(f"MERGE INTO pets USING {twice} ON pets.id = s.id WHEN MATCHED THEN UPDATE SET age = s.age")
    # A condition may leave one of the two.
    pets.sql(f"MERGE INTO pets USING {twice} ON pets.id = s.id WHEN MATCHED AND s.age = 4 THEN UPDATE SET age = s.age")
    assert contents(pets, "pets")[(1, "cat", 4)] == 1
    # How often a deletion is asked for does not matter.
    assert pets.sql(f"MERGE INTO pets USING {twice} ON pets.id = s.id WHEN MATCHED THEN DELETE").rows_affected == 1
    assert contents(pets, "pets") == before - Counter({(1, "cat", 3): 1})
    with pytest.raises(ConstraintError, match='has no column "kind"'):
        pets.sql(f"MERGE INTO pets USING {twice} ON pets.id = s.id WHEN NOT MATCHED THEN INSERT *")
    check_hash(pets, "pets")


def test_merge_into_a_table_without_a_key(beads: Warehouse) -> None:
    beads.sql(
        "MERGE INTO beads USING (SELECT 'red' AS colour UNION ALL SELECT 'green') s ON beads.colour = s.colour "
        "WHEN MATCHED THEN UPDATE SET n = n + 1 WHEN NOT MATCHED THEN INSERT (colour, n) VALUES (s.colour, 0)"
    )
    assert contents(beads, "beads") == {("red", 2): 3, ("blue", None): 2, ("green", 0): 1}
    with pytest.raises(ConstraintError, match="matched by more than one row"):
        beads.sql(
            "MERGE INTO beads USING (SELECT 'red' AS colour UNION ALL SELECT 'red') s ON beads.colour = s.colour "
            "WHEN MATCHED THEN UPDATE SET n = 9"
        )
    check_hash(beads, "beads")
    with pytest.raises(ConstraintError, match="no primary key"):
        beads.upsert("beads", [{"colour": "red"}])


def test_apply_changes_is_one_signed_multiset(beads: Warehouse) -> None:
    beads.apply_changes(
        "beads",
        [
            {"colour": "red", "n": 1, "action": "D"},
            {"colour": "blue", "n": None, "action": "D"},
            {"colour": "gold", "n": 1, "action": "I"},
            {"colour": "gold", "n": 1, "action": "I"},
            {"colour": "void", "n": 1, "action": "D"},
            {"colour": "void", "n": 1, "action": "I"},
        ],
    )
    left = {("red", 1): 2, ("blue", None): 1, ("gold", 1): 2}
    assert contents(beads, "beads") == left
    check_hash(beads, "beads")
    before = beads.version
    with pytest.raises(MissingRowError, match=r"^1 row"):
        beads.apply_changes("beads", [{"colour": "red", "n": 1, "action": "D"}] * 3)
    with pytest.raises(ConstraintError, match="neither I nor D: U"):
        beads.apply_changes("beads", [{"colour": "red", "n": 1, "action": "U"}])
    with pytest.raises(ConstraintError, match='no column "action"'):
        beads.apply_changes("beads", [{"colour": "red", "n": 1}])
    assert beads.version == before
    assert beads.apply_changes("beads", [{"colour": "red", "n": 1, "op": "D"}] * 2, action="op").rows_affected == 2
    assert contents(beads, "beads") == {("blue", None): 1, ("gold", 1): 2}


def test_apply_changes_moves_keys(pets: Warehouse) -> None:
    pets.apply_changes(
        "pets",
        [
            {"id": 1, "kind": "cat", "age": 3, "action": "D"},
            {"id": 1, "kind": "dog", "age": 5, "action": "I"},
            {"id": 2, "kind": "dog", "age": 5, "action": "D"},
        ],
    )
    assert contents(pets, "pets") == {(1, "dog", 5): 1, (3, "cat", None): 1, (4, "eel", 1): 1}
    with pytest.raises(ConstraintError, match="duplicate key"):
        pets.apply_changes("pets", [{"id": 3, "kind": "new", "action": "I"}])


def test_an_added_column_is_null_in_old_rows_and_stream_tables_go_on(pets: Warehouse) -> None:
    pets.create_stream_table("ages", "SELECT kind, count(*) AS n, sum(age) AS total FROM pets GROUP BY kind")
    pets.sql("ALTER TABLE pets ADD COLUMNS (name STRING, tags ARRAY<STRING>)")
    check_hash(pets, "pets")
    pets.sql("INSERT INTO pets VALUES (5, 'dog', 2, 'Rex', array('old'))")
    pets.sql("UPDATE pets SET name = 'Tom' WHERE id = 1")
    assert contents(pets, "pets") == {
        (1, "cat", 3, "Tom", None): 1,
        (2, "dog", 5, None, None): 1,
        (3, "cat", None, None, None): 1,
        (4, "eel", 1, None, None): 1,
        (5, "dog", 2, "Rex", ("old",)): 1,
    }
    report = pets.refresh("ages")
    assert report.action is RefreshAction.DIFFERENTIAL
    assert contents(pets, "ages") == {("cat", 2, 3): 1, ("dog", 2, 7): 1, ("eel", 1, 1): 1}
    check_hash(pets, "pets")
    pets.compact("pets")
    check_hash(pets, "pets")
    for bad, text in (
        ("ADD COLUMNS (KIND INT)", 'has a column "KIND" already'),
        ("ADD COLUMNS (x INT NOT NULL)", "cannot be added as NOT NULL"),
    ):
        with pytest.raises(ConstraintError, match=text):
            pets.sql(f"ALTER TABLE pets {bad}")


def test_create_table_as_select(pets: Warehouse) -> None:
    assert pets.sql("CREATE TABLE cats (PRIMARY KEY (id)) AS SELECT * FROM pets WHERE kind = 'cat'").rows_affected == 2
    assert contents(pets, "cats") == {(1, "cat", 3): 1, (3, "cat", None): 1}
    assert table_of(pets, "cats").schema.key == ("id",)
    with pytest.raises(ConstraintError, match="duplicate key"):
        pets.sql("CREATE TABLE kinds (PRIMARY KEY (kind)) AS SELECT kind FROM pets")
    with pytest.raises(UnknownTableError):
        pets.table("kinds")
    check_hash(pets, "cats")


def test_b77_stream_tables_refuse_changes_by_users_and_take_those_of_a_refresh(pets: Warehouse) -> None:
    pets.create_stream_table("olds", "SELECT * FROM pets WHERE age > 2")
    for statement in (
        "INSERT INTO olds VALUES (9, 'x', 9)",
        "UPDATE olds SET age = 1",
        "DELETE FROM olds",
        "TRUNCATE TABLE olds",
        "MERGE INTO olds USING pets ON olds.id = pets.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE olds ADD COLUMNS (x INT)",
    ):
        with pytest.raises(WrongKindError, match='"olds" is a stream table'):
            pets.sql(statement)
    pets.sql("DELETE FROM pets WHERE id = 1")
    pets.sql("UPDATE pets SET age = 6 WHERE id = 2")
    report = pets.refresh("olds")
    assert (report.action, report.rows_inserted, report.rows_deleted) == (RefreshAction.DIFFERENTIAL, 1, 2)
    assert contents(pets, "olds") == {(2, "dog", 6): 1}
    with pytest.raises(UnknownTableError, match="Did you mean"):
        pets.sql("DELETE FROM petz")


def test_transactions_are_atomic_and_see_their_own_changes(pets: Warehouse) -> None:
    pets.sql("CREATE TABLE logs (line STRING)")
    before = pets.version
    with pets.transaction():
        pets.sql("DELETE FROM pets WHERE id = 1")
        pets.insert("pets", [{"id": 1, "kind": "lynx", "age": 9}])
        pets.sql("UPDATE pets SET age = age + 1 WHERE id IN (1, 2)")
        pets.sql("INSERT INTO logs SELECT kind FROM pets WHERE age > 5")
        pets.sql("INSERT INTO logs VALUES ('lynx')")
        pets.sql("DELETE FROM pets WHERE id = 4")
        assert contents(pets, "pets") == {(1, "lynx", 10): 1, (2, "dog", 6): 1, (3, "cat", None): 1}
        assert pets.sql("SELECT count(*) AS n FROM logs").collect()[0]["n"] == 3
        with pytest.raises(ConstraintError):
            pets.insert("pets", [{"id": 2}])
        with pytest.raises(StatementError, match="open already"), pets.transaction():
            pass
    assert pets.version == before + 1
    assert contents(pets, "pets") == {(1, "lynx", 10): 1, (2, "dog", 6): 1, (3, "cat", None): 1}
    assert contents(pets, "logs") == {("lynx",): 2, ("dog",): 1}
    assert contents(pets, "pets", version=before)[(4, "eel", 1)] == 1
    check_hash(pets, "pets")
    check_hash(pets, "logs")
    with pets.transaction():
        pets.sql("DELETE FROM logs")
        pets.sql("INSERT INTO pets VALUES (50, 'x', 1)")
        pets.sql("DELETE FROM pets WHERE id = 50")
    assert pets.version == before + 2
    assert pets.changes("pets", before + 1).count() == 0
