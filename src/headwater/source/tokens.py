"""SQL text as tokens, cut where Spark's own lexer cuts.

What matters is where strings, quoted names and comments end: a reader that differs from Spark here would take a statement apart
at a semicolon or a WHERE that Spark holds for text. So this follows Spark's lexical rules to the letter, also the odd ones:
a doubled quote stays inside its string, `r'...'` has no escapes, `$tag$ ... $tag$` is a string, comments nest, `/*+` is a hint
and not a comment, and a backslash at the end of a line continues a `--` comment.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from headwater.errors import StatementError
from headwater.source.statements import Fragment


class TokenKind(Enum):
    """What a token is, as far as taking statements apart needs to know."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """A token: `start` and `end` are offsets into the text. `key` is the word in upper case, or the symbol; else empty."""

    kind: TokenKind
    text: str
    start: int
    end: int
    key: str


_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+ | --(?:\\\n|[^\r\n])* )
    | (?P<comment> /\*(?!\+) )
    | (?P<string>  [rR]'[^']*' | [rR]"[^"]*"
                 | '(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+"
                 | \$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$ )
    | (?P<quoted>  `(?:[^`]|``)*+` )
    | (?P<number>  (?: (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|bd|[FfDd])?
                     | [0-9]+[eE][+-]?[0-9]+(?:BD|bd|[FfDd])?
                     | [0-9]+(?:BD|bd|[LlSsYyFfDd])? )(?!\w) )
    | (?P<word>    \w+ )
    | (?P<open>    ['"`] | \$[A-Za-z_]*\$ )
    | (?P<symbol>  <=> | == | != | <= | >= | => | -> | :: | \|\| | \|> | /\*\+ | \*/ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")
_KINDS = {
    "string": TokenKind.STRING,
    "quoted": TokenKind.QUOTED,
    "number": TokenKind.NUMBER,
    "word": TokenKind.WORD,
    "symbol": TokenKind.SYMBOL,
}
_OPEN = {"'": "string", '"': "string", "`": "quoted name", "$": "string"}


def tokens_of(source: Fragment) -> list[Token]:
    """Return the tokens of `source` without comments, and an END token after the last."""
    text = source.text
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"no token at offset {at}")
        group = match.lastgroup
        if group == "comment":
            at = _comment_end(source, at)
            continue
        if group == "open":
            raise _unterminated(source, at, _OPEN[text[at]], match.group())
        end = match.end()
        if group != "space" and group is not None:
            kind = _KINDS[group]
            word = match.group()
            key = word.upper() if kind is TokenKind.WORD else word if kind is TokenKind.SYMBOL else ""
            found.append(Token(kind, word, at, end, key))
        at = end
    found.append(Token(TokenKind.END, "", len(text), len(text), ""))
    return found


def _comment_end(source: Fragment, start: int) -> int:
    depth, at = 1, start + 2
    while depth:
        edge = _COMMENT_EDGE.search(source.text, at)
        if edge is None:
            raise _unterminated(source, start, "comment", "*/")
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at


def _unterminated(source: Fragment, at: int, what: str, closing: str) -> StatementError:
    return StatementError(
        f"a {what} is not closed",
        detail=f"{place(source, at)}. It has no closing {closing} before the end of the text.",
        hint=f"Add {closing} where the {what} ends."
        + (" A quote inside a string is written \\' or ''." if closing == "'" else ""),
    )


def place(source: Fragment, at: int) -> str:
    """Return where in the user's text an offset is, and what stands there: `Line 2, column 5, near "FROM t"`."""
    spot = source.piece(at, at)
    near = source.text[at : at + 40].partition("\n")[0].rstrip()
    if near:
        return f'Line {spot.line}, column {spot.column}, near "{near}"'
    return f"Line {spot.line}, column {spot.column}, at the end"


_ESCAPE = re.compile(
    r"\\u(?P<u4>[0-9A-Fa-f]{4})|\\U(?P<u8>[0-9A-Fa-f]{8})|\\(?P<octal>[0-1][0-7]{2})|\\(?P<char>.)|(?P<twice>''|\"\")",
    re.DOTALL,
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def string_value(literal: str) -> str:
    """Return what a string literal of Spark SQL stands for."""
    if literal[0] in "rR":
        return literal[2:-1]
    if literal[0] == "$":
        fence = literal.index("$", 1) + 1
        return literal[fence:-fence]

    def meaning(match: re.Match[str]) -> str:
        code = match["u4"] or match["u8"]
        if code:
            return chr(int(code, 16))
        if match["octal"]:
            return chr(int(match["octal"], 8))
        if match["twice"]:
            return literal[0] if match["twice"][0] == literal[0] else match["twice"]
        return _ESCAPED.get(match["char"], match["char"])

    return _ESCAPE.sub(meaning, literal[1:-1])
