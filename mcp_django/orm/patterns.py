"""Regular expressions that clients write, and databases that would match them in this process.

SQLite has no matcher of its own. Django lends it Python's, which backtracks, holds the interpreter and obeys no
timeout.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.db import connections
from django.db.models import QuerySet
from django.db.models.lookups import Regex
from django.db.models.sql import Query
from django.utils.tree import Node

from ..exceptions import ToolError

# Without these an expression has one way to match, and takes linear time.
_BRANCHING: Final = re.compile(r"[*+?{|]")


def is_pattern_lookup(lookup: str) -> bool:
    """Return whether a lookup, or a path that ends with one, takes a regular expression."""
    return lookup.rpartition("__")[2] in ("regex", "iregex")


def matches_here(using: str) -> bool:
    """Return whether the database of the alias has this process match regular expressions."""
    return connections[using].vendor == "sqlite"


def check_patterns(queryset: QuerySet[Any], texts: Iterable[str]) -> None:
    """Pass unless this process would have to match an expression that a client's text made costly.

    Raises:
        ToolError: a regular expression of the query holds such a text.
    """
    costly = [text.casefold() for text in texts if _BRANCHING.search(text)]
    if costly and matches_here(queryset.db):
        for pattern in _patterns(queryset.query):
            if any(text in pattern.casefold() for text in costly):
                raise ToolError("This database takes no regular expressions: leave out * + ? { and |.")


def _patterns(node: Any) -> Iterator[str]:
    if isinstance(node, Regex) and isinstance(node.rhs, str):
        yield node.rhs
    if isinstance(node, Query):
        inner: Iterable[Any] = (node.where, *node.annotations.values(), *node.combined_queries)
    elif isinstance(node, Node):
        inner = node.children
    else:
        inner = node.get_source_expressions() if hasattr(node, "get_source_expressions") else ()
    for item in inner:
        yield from _patterns(item)
