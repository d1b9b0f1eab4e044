"""Another query for a stream table: contents, state and frontier begin with it, and nothing of the old one is left."""

from __future__ import annotations

from tests.support.stories import Story


def types_of(story: Story) -> dict[str, str]:
    return dict(story.wh.table("result").dtypes)


def test_b21_a_sum_of_nothing_stays_null_under_another_query(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", None), (2, "b", 2)], key="id")
    s = story.stream("SELECT g, sum(v) AS total FROM t GROUP BY g")
    story.change("UPDATE t SET v = NULL WHERE id = 2")
    assert s.refreshed() == [("a", None), ("b", None)]
    story.altered(s, "SELECT g, sum(v) AS total, count(*) AS n FROM t GROUP BY g")
    assert s.rows() == [("a", None, 1), ("b", None, 1)]
    story.change("INSERT INTO t VALUES (3, 'b', 0)", "INSERT INTO t VALUES (4, 'a', NULL)")
    assert s.refreshed() == [("a", None, 2), ("b", 0, 2)]
    story.change("DELETE FROM t WHERE id = 3")
    assert s.refreshed() == [("a", None, 2), ("b", None, 1)]
    story.verified()


def test_b64_a_source_that_is_new_in_a_query_is_followed_from_where_it_stands(story: Story) -> None:
    story.table("a", "id INT, k INT", [(1, 7), (2, 8)], key="id")
    story.table("b", "k INT, v INT", [(7, 1)])
    s = story.stream("SELECT k, count(*) AS n FROM a GROUP BY k")
    story.change("INSERT INTO b VALUES (7, 2), (8, 4)", "DELETE FROM b WHERE v = 1", "INSERT INTO a VALUES (3, 8)")
    assert s.refreshed() == [(7, 1), (8, 2)]
    story.altered(s, "SELECT a.k, count(*) AS n, sum(b.v) AS total FROM a JOIN b ON b.k = a.k GROUP BY a.k")
    assert s.rows() == [(7, 1, 2), (8, 2, 8)]
    s.idle()
    story.change("INSERT INTO b VALUES (7, 16)")
    assert s.refreshed() == [(7, 2, 18), (8, 2, 8)]
    assert s.report is not None
    assert s.report.rows_in == 1
    story.change("DELETE FROM b WHERE k = 8", "UPDATE a SET k = 7 WHERE id = 2")
    assert s.refreshed() == [(7, 4, 36)]
    story.verified()


def test_b79_another_type_is_another_table(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 1), (2, "a", 2)], key="id")
    s = story.stream("SELECT g, sum(v) AS x FROM t GROUP BY g")
    assert types_of(story) == {"g": "string", "x": "bigint"}
    for query, kind, first, second in (
        ("SELECT g, CAST(sum(v) AS STRING) AS x FROM t GROUP BY g", "string", "3", "7"),
        ("SELECT g, CAST(sum(v) AS INT) AS x FROM t GROUP BY g", "int", 7, 11),
    ):
        story.altered(s, query)
        assert types_of(story) == {"g": "string", "x": kind}
        assert s.rows() == [("a", first)]
        story.change("UPDATE t SET v = v + 4 WHERE id = 2")
        assert s.refreshed() == [("a", second)]
    story.verified()


def test_b79_the_same_query_in_other_words_builds_nothing_anew(story: Story) -> None:
    story.table("t", "id INT, g STRING, v INT", [(1, "a", 1), (2, "a", 2)], key="id")
    s = story.stream("SELECT g, sum(v) AS x FROM t WHERE v > 0 GROUP BY g")
    above = story.stream("SELECT x FROM result", "above")
    story.change("INSERT INTO t VALUES (3, 'b', 1)")
    before = story.wh.snapshot().table("result").id
    text = "select  y.g, SUM( y.v )  as x -- the total\nfrom t as y where y.v > 0 group by y.g"
    story.wh.alter_stream_table("result", query=text)
    assert story.wh.snapshot().table("result").id == before
    assert "SUM( y.v )" in story.wh.explain_stream_table("result")
    assert s.refreshed() == [("a", 3), ("b", 1)]
    assert above.refreshed() == [(1,), (3,)]
    story.verified()
