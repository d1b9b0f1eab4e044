"""Which tables a SQL text may mean: those whose name occurs in it as an identifier. Too many is harmless, too few is not."""

from __future__ import annotations

from headwater.catalog import Snapshot
from headwater.model.tables import Table, TableKind
from headwater.source.statements import Fragment
from headwater.source.tokens import TokenKind, tokens_of


def mentioned_tables(text: str, snapshot: Snapshot) -> list[Table]:
    """Return the tables whose names occur in `text`."""
    words = set()
    for token in tokens_of(Fragment(text)):
        if token.kind is TokenKind.WORD:
            words.add(token.text.casefold())
        elif token.kind is TokenKind.QUOTED:
            words.add(token.text[1:-1].replace("``", "`").casefold())
    found = [
        snapshot.tables[i]
        for folded, i in snapshot.names.items()
        if folded in words and snapshot.tables[i].kind is not TableKind.AUX
    ]
    return sorted(found, key=lambda t: t.name)
