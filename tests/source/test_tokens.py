"""Tokens and scripts: strings, names and comments end where Spark ends them, and no text breaks the lexer."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from py4j.java_gateway import get_field

from headwater.errors import StatementError
from headwater.source.parse import read_statement, split_script
from headwater.source.statements import Fragment, Statement
from headwater.source.tokens import Token, TokenKind, string_value, tokens_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOSED = (TokenKind.STRING, TokenKind.QUOTED)


def texts(sql: str) -> list[str]:
    return [token.text for token in tokens_of(Fragment(sql))][:-1]


@pytest.mark.parametrize(
    ("sql", "tokens"),
    [
        ("'it''s; x' y", ["'it''s; x'", "y"]),
        (r"'a\'b' y", [r"'a\'b'", "y"]),
        (r"r'a\' y", [r"r'a\'", "y"]),
        (r'R"a\" y', [r'R"a\"', "y"]),
        ('"a""b;" y', ['"a""b;"', "y"]),
        ("`a``;b` y", ["`a``;b`", "y"]),
        ("$$a;'b$$ y", ["$$a;'b$$", "y"]),
        ("$tag$ $$ ; $tag$ y", ["$tag$ $$ ; $tag$", "y"]),
        ("x'1F' N'a'", ["x", "'1F'", "N", "'a'"]),
        ("/* a /* ' */ ; */ y", ["y"]),
        ("/* a /*+ b */ y", ["y"]),
        ("/*/ ; */ y", ["y"]),
        ("SELECT /*+ HASH(t) */ y", ["SELECT", "/*+", "HASH", "(", "t", ")", "*/", "y"]),
        ("x -- ' ;\ny", ["x", "y"]),
        ("x -- continued \\\n ; '\ny", ["x", "y"]),
        ("x -- to the end", ["x"]),
        ("a.b 1.5e-3 .5 5.x 1L 2BD 1abc", ["a", ".", "b", "1.5e-3", ".5", "5", ".", "x", "1L", "2BD", "1abc"]),
        ("a<=>b==c=>d->e::f||g", ["a", "<=>", "b", "==", "c", "=>", "d", "->", "e", "::", "f", "||", "g"]),
        ("array<array<int>>", ["array", "<", "array", "<", "int", ">", ">"]),
        ("{# ; #}", ["{", "#", ";", "#", "}"]),
        ("größe\u00a0😀", ["größe", "😀"]),
    ],
)
def test_tokens(sql: str, tokens: list[str]) -> None:
    assert texts(sql) == tokens


@pytest.mark.parametrize(
    ("sql", "what", "place"),
    [
        ("SELECT 1,\n 'abc", "a string is not closed", 'Line 2, column 2, near "\'abc".'),
        ("SELECT 'it''s", "a string is not closed", "Line 1, column 8, near \"'it''s\"."),
        ('SELECT "abc', "a string is not closed", 'Line 1, column 8, near ""abc".'),
        ("SELECT `abc", "a quoted name is not closed", 'Line 1, column 8, near "`abc".'),
        ("SELECT $$abc", "a string is not closed", 'Line 1, column 8, near "$$abc".'),
        ("SELECT 1 /* /* */", "a comment is not closed", 'Line 1, column 10, near "/* /* */".'),
    ],
)
def test_what_is_not_closed_is_named_where_it_opens(sql: str, what: str, place: str) -> None:
    for read in (read_statement, split_script):
        with pytest.raises(StatementError) as caught:
            read(sql)
        assert caught.value.message == what
        assert str(caught.value.detail).startswith(place)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("''", ""),
        ("'it''s \"\"'", 'it\'s ""'),
        ('"say ""hi"" \'\'"', "say \"hi\" ''"),
        (r"'a\nb\t\\\'\"\0'", "a\nb\t\\'\"\0"),
        (r"'\u00e9\U0001F600\101\q'", "é😀Aq"),
        (r"'10\% \_'", r"10\% \_"),
        (r"r'\n'", r"\n"),
        ("$x$a''b$x$", "a''b"),
    ],
)
def test_string_values(literal: str, value: str) -> None:
    assert string_value(literal) == value


def test_a_script_is_cut_at_its_semicolons_only() -> None:
    script = """
        -- a comment; with a semicolon
        INSERT INTO t VALUES (';', "a;b", `c;d`); ;;
        /* ; */ SELECT $$ ; $$ -- and ;
        ;
        DELETE FROM t"""
    pieces = split_script(script)
    assert [p.text for p in pieces] == [
        """INSERT INTO t VALUES (';', "a;b", `c;d`)""",
        "SELECT $$ ; $$",
        "DELETE FROM t",
    ]
    assert [p.line for p in pieces] == [3, 4, 6]
    assert split_script(" -- nothing\n ; ") == ()


QUOTES = ("'", "''", '"', '""', "`", "``", "\\", "\\'", "r'", 'R"', "X'", "$$", "$t$", "$", "'x'", "`y`")
COMMENTS = ("--", "--\\\n", "/*", "*/", "/*+", "/* z */", "{#", "#}", " ", "\n", "\r\n", "\u00a0")
SYMBOLS = (";", "(", ")", ",", ".", "<", ">", "=", "<=>", "::", "1", "1.", ".5", "1e5", "5.x", "12L", "a", "é", "😀")
HEADS = ("SELECT ", "INSERT INTO t ", "CREATE TABLE t (", "a INT", "MERGE INTO t USING s ON a ", "UPDATE t SET a = ")
CLAUSES = (" WHEN MATCHED ", " THEN ", " SET ", " WHERE ", " CASE ", " END ", " AS ", "::map<", "VALUES (")
SCRAPS = (*QUOTES, *COMMENTS, *SYMBOLS, *HEADS, *CLAUSES)
SOUP = st.lists(st.sampled_from(SCRAPS), max_size=16).map("".join)


def closed_tokens(text: str) -> list[Token] | None:
    try:
        return tokens_of(Fragment(text))
    except StatementError:
        return None


@given(SOUP | st.text(max_size=30))
def test_tokens_are_slices_in_order(text: str) -> None:
    tokens = closed_tokens(text)
    assume(tokens is not None)
    assert tokens is not None
    assert tokens[-1].kind is TokenKind.END
    assert all(text[t.start : t.end] == t.text for t in tokens)
    assert all(before.end <= after.start for before, after in pairwise(tokens))


@given(SOUP)
def test_a_script_loses_nothing_but_comments_and_semicolons(text: str) -> None:
    tokens = closed_tokens(text)
    assume(tokens is not None)
    pieces = split_script(text)
    assert all(text[piece.start : piece.end] == piece.text for piece in pieces)
    assert [t for piece in pieces for t in texts(piece.text)] == [t for t in texts(text) if t != ";"]


@given(SOUP)
def test_any_text_becomes_a_statement_or_a_statement_error(text: str) -> None:
    found: Statement | StatementError
    try:
        found = read_statement(text)
    except StatementError as error:
        found = error
    assert isinstance(found, Statement) or (found.code == "HW303" and found.message)


SEEN = ("STRING_LITERAL", "DOUBLEQUOTED_STRING", "BACKQUOTED_IDENTIFIER", "SEMICOLON", "LEFT_PAREN", "RIGHT_PAREN")


def spark_pieces(spark: SparkSession, text: str) -> list[tuple[int, int]] | None:
    """Where Spark's lexer sees strings, quoted names, semicolons and parentheses; None if something is not closed."""
    jvm: Any = spark._jvm
    parser = jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(parser.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(text)))
    lexer.removeErrorListeners()
    names = lexer.getVocabulary()
    found: list[tuple[int, int]] = []
    opened: int | None = None
    for token in lexer.getAllTokens():
        name, start, end = names.getSymbolicName(token.getType()), token.getStartIndex(), token.getStopIndex() + 1
        if name == "BEGIN_DOLLAR_QUOTED_STRING":
            opened = start
        elif name == "END_DOLLAR_QUOTED_STRING" and opened is not None:
            found.append((opened, end))
            opened = None
        elif opened is not None:
            continue
        elif name == "UNRECOGNIZED" and text[start] in "'\"`":
            return None
        elif name in SEEN:
            found.append((start, end))
    return None if opened is not None or get_field(lexer, "has_unclosed_bracketed_comment") else found


def test_spark_cuts_at_the_same_places(spark: SparkSession) -> None:
    chance = Random(7)
    compared = 0
    for _ in range(400):
        text = "".join(chance.choice(SCRAPS) for _ in range(chance.randint(1, 12)))
        tokens = closed_tokens(text)
        if tokens is None:
            assert spark_pieces(spark, text) is None, repr(text)
            continue
        ours = [(t.start, t.end) for t in tokens if t.kind in CLOSED or t.key in (";", "(", ")")]
        assert spark_pieces(spark, text) == ours, repr(text)
        compared += bool(ours)
    assert compared > 80
