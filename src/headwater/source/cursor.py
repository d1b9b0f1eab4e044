"""A place in a list of tokens, and what can be asked of it: the ground that statement readers stand on.

A cursor moves forward only. It knows where a clause ends (outside brackets, outside CASE ... END), cuts fragments out of the
user's text, and says in one form what was expected and what was found instead.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.errors import StatementError
from headwater.model.names import TableName
from headwater.source.statements import Fragment
from headwater.source.tokens import Token, TokenKind, place, string_value, tokens_of

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_CLOSING = {"(": ")", "[": "]"}
_TYPES = ("ARRAY", "MAP", "STRUCT")

# CASE and END are legal column names. CASE opens an expression unless what follows can only come after a value; END closes one
# unless what precedes still waits for a value.
_BEFORE_VALUE_SYMBOLS = ("(", "-", "~", "!", ":", "?")
_AFTER_VALUE = ("AND", "OR", "IS", "IN", "LIKE", "BETWEEN", "THEN", "ELSE", "END", "AS", "FROM", "WHERE")
_BEFORE_VALUE = frozenset(
    ("CASE", "WHEN", "THEN", "ELSE", "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "LIKE", "ILIKE", "RLIKE", "REGEXP")
) | frozenset(("DISTINCT", "FROM", "DIV", "SET", "WHERE", "ON"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that is understood but not supported: what, why, and what to do instead."""

    what: str
    why: str
    hint: str


class Cursor:
    """A position in the tokens of one statement. `statement` and `form` name in errors what is being read."""

    def __init__(self, source: Fragment) -> None:
        self._source = source
        self._tokens = tokens_of(source)
        self._index = 0
        self._type_end: Token | None = None
        self.statement = "the statement"
        self.form = ""

    # -- looking -----------------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    def is_at_end(self) -> bool:
        """Tell whether the statement ends here: by a semicolon, or with the text."""
        return self.token.kind is TokenKind.END or self.token.key == ";"

    def key(self, ahead: int = 0) -> str:
        """Return the keyword or symbol so many tokens ahead, empty for anything else."""
        index = self._index + ahead
        return self._tokens[index].key if 0 <= index < len(self._tokens) else ""

    def at(self, *keys: str) -> bool:
        """Tell whether the next tokens are these."""
        return all(self.key(i) == key for i, key in enumerate(keys))

    def has_name(self, ahead: int = 0) -> bool:
        """Tell whether a name could stand there."""
        index = self._index + ahead
        return index < len(self._tokens) and self._tokens[index].kind in (TokenKind.WORD, TokenKind.QUOTED)

    @property
    def follows_value(self) -> bool:
        """Tell whether a value may have ended just before: a clause can begin here, an operand cannot."""
        before = self._tokens[self._index - 1] if self._index else self.token
        if before.kind is TokenKind.SYMBOL:
            return before.key in (")", "]") or before is self._type_end
        return before.key not in _BEFORE_VALUE or self.key(-2) == "."

    def ahead(self) -> Cursor:
        """Return a cursor at the same place that can look ahead without moving this one."""
        return copy.copy(self)

    # -- moving ------------------------------------------------------------------------------------------------------------

    def take(self, *keys: str) -> bool:
        """Step over these tokens if they are next."""
        if not self.at(*keys):
            return False
        self._index += len(keys)
        return True

    def expect(self, *keys: str) -> None:
        """Step over these tokens; anything else is an error."""
        for key in keys:
            if not self.take(key):
                raise self.expected(f'"{key}"' if not key.isalpha() else " ".join(keys))

    def name(self, what: str) -> str:
        """Step over one name and return it without backticks."""
        token = self.token
        if token.kind is TokenKind.QUOTED:
            name = token.text[1:-1].replace("``", "`")
            if not name:
                raise self.expected(what)
        elif token.kind is TokenKind.WORD:
            name = token.text
            if not _PLAIN_NAME.match(name):
                raise self.expected(
                    what, hint="A name with other than letters a-z, digits and _ is put in `backticks`."
                )
        elif token.kind is TokenKind.STRING:
            raise self.expected(what, hint="Quotes make a string; a name is put in `backticks`.")
        else:
            raise self.expected(what)
        self._index += 1
        return name

    def table_name(self) -> TableName:
        """Step over a name of one or more parts."""
        start = self.token
        parts = [self.name("a table name")]
        while self.take("."):
            parts.append(self.name("the next part of the table name"))
        if any("." in part for part in parts):
            raise self.refused(
                Refusal("a dot in a table name", "Dots separate the parts of a name.", "Use another character."),
                at=start,
            )
        if self.key() == "-":
            raise self.expected("the table name to end here", hint="A name with a hyphen is put in `backticks`.")
        return TableName(tuple(parts))

    def alias(self, *stops: str) -> str | None:
        """Step over `[AS] alias`, unless one of the keywords `stops` comes."""
        if self.take("AS"):
            return self.name("an alias")
        if self.has_name() and self.key() not in stops:
            return self.name("an alias")
        return None

    def string(self, what: str) -> str:
        """Step over a string, or several in a row, and return what it stands for."""
        values: list[str] = []
        while self.token.kind is TokenKind.STRING:
            values.append(string_value(self.step().text))
        if not values:
            raise self.expected(what)
        return "".join(values)

    def step(self) -> Token:
        """Step over the next token, whatever it is."""
        token = self.token
        if token.kind is not TokenKind.END:
            self._index += 1
        return token

    # -- cutting -----------------------------------------------------------------------------------------------------------

    def expression(self, what: str, is_stop: Callable[[], bool]) -> Fragment:
        """Cut out an expression: up to where `is_stop` holds, outside brackets and CASE, or to the end of the enclosing group.

        The cursor moves along, so `is_stop` asks it as any reader does. Nothing to cut out is an error: expected `what`.
        """
        return self._cut(what, is_stop, self._opens_in_expression)

    def query(self, is_stop: Callable[[], bool]) -> Fragment:
        """Cut out a query: as `expression`, but only brackets count, whatever its words may mean to Spark."""
        return self._cut("a query", is_stop, self._opens_bracket)

    def group(self, what: str) -> Fragment:
        """Cut out `( ... )` with its parentheses."""
        first = self.token
        if not self.take("("):
            raise self.expected(what)
        if not self.at(")"):
            self._cut(what, lambda: False, self._opens_bracket)
        if not self.take(")"):
            raise self._unclosed((first, ")"))
        return self.between(first)

    def between(self, first: Token) -> Fragment:
        """Return the text from the token `first` up to where the cursor is."""
        return self._source.piece(first.start, self._tokens[self._index - 1].end)

    def _cut(self, what: str, is_stop: Callable[[], bool], opens: Callable[[str], str]) -> Fragment:
        first = self.token
        open_tokens: list[tuple[Token, str]] = []
        while not self.is_at_end():
            token, closing = self.token, open_tokens[-1][1] if open_tokens else ""
            if not open_tokens and self._is_free() and is_stop():
                break
            if token.key in (")", "]"):
                if not open_tokens:
                    break
                if token.key != closing:
                    raise self._unclosed(open_tokens[-1])
                open_tokens.pop()
            elif closing and token.key == closing and (closing == ">" or self._closes_case()):
                open_tokens.pop()
                self._type_end = token if closing == ">" else None
            elif opened := opens(closing):
                open_tokens.append((token, opened))
            self._index += 1
        if open_tokens:
            raise self._unclosed(open_tokens[-1])
        if self.token is first:
            raise self.expected(what)
        return self.between(first)

    def _opens_bracket(self, closing: str) -> str:
        """What would close the bracket that the token opens; empty if it opens none."""
        return _CLOSING.get(self.token.key, "")

    def _opens_in_expression(self, closing: str) -> str:
        """What would close the bracket, CASE or type that the token opens, where `closing` is waited for."""
        key = self.token.key
        if key in _CLOSING:
            return _CLOSING[key]
        if closing in (")", "]"):
            return ""
        if key == "CASE" and self._is_free() and self._has_operand_after():
            return "END"
        if key == "<" and (closing == ">" or (self.key(-1) in _TYPES and self.key(-2) == "::")):
            return ">"
        return ""

    def _is_free(self) -> bool:
        """Whether the token is not the field of something: the WHERE of `t.where` starts no clause."""
        return self.key(-1) != "."

    def _has_operand_after(self) -> bool:
        after = self._tokens[self._index + 1]
        if after.kind is TokenKind.SYMBOL:
            return after.key in _BEFORE_VALUE_SYMBOLS
        return after.kind is not TokenKind.END and after.key not in _AFTER_VALUE

    def _closes_case(self) -> bool:
        return self.follows_value and self.key(1) != "."

    # -- refusing ----------------------------------------------------------------------------------------------------------

    def expected(self, what: str, *, at: Token | None = None, hint: str | None = None) -> StatementError:
        """Return the error that something else was expected here, or at the token `at`."""
        token = at or self.token
        found = "the end of the text" if token.kind is TokenKind.END else f'"{_shortened(token.text)}"'
        form = f"The form is: {self.form}" if self.form else None
        return self.wrong(f"expected {what}, found {found}", at=token, hint=hint or form)

    def wrong(self, problem: str, *, at: Token | None = None, hint: str | None = None) -> StatementError:
        """Return the error that what stands here, or at the token `at`, cannot be meant."""
        where = place(self._source, (at or self.token).start)
        return StatementError(f"cannot read {self.statement}: {problem}", detail=f"{where}.", hint=hint)

    def refused(self, refusal: Refusal, *, at: Token | None = None) -> StatementError:
        """Return the error that what stands here, or at the token `at`, is not supported."""
        where = place(self._source, (at or self.token).start)
        return StatementError(
            f"{self.statement} does not support {refusal.what}", detail=f"{refusal.why} {where}.", hint=refusal.hint
        )

    def refuse_any(self, refusals: Mapping[str, Refusal]) -> None:
        """Raise if one of these phrases comes next."""
        for phrase, refusal in refusals.items():
            if self.at(*phrase.split()):
                raise self.refused(refusal)

    def _unclosed(self, opened: tuple[Token, str]) -> StatementError:
        token, closing = opened
        case = " A column that is called case is put in `backticks`." if closing == "END" else ""
        return self.wrong(
            f'"{token.text}" is not closed by "{closing}"', at=token, hint=f"Add the missing {closing}.{case}"
        )


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
