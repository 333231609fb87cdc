"""Search for rows with similar spelling by trigrams, on PostgreSQL with ``pg_trgm``.

It searches the text fields of the exposure's search that the caller could read, in the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import add
from time import monotonic
from typing import Any, Final

from django.db import connections
from django.db.models import Case, F, FloatField, Func, QuerySet, Value, When
from django.db.models.functions import Greatest

from ..exceptions import ToolError
from .access import ModelAccess
from .cells import Page
from .conditions import Applied
from .fields import kind_of, resolve_path
from .hidden_parts import with_no_part_hidden
from .named_filters import Narrowed
from .pagination import PageQuery, narrowed
from .query_limits import read_limits
from .row_reading import read_page
from .search import TextSearch, search_paths

# Minimum similarity of a term and part of a text (pg_trgm, 0 to 1), and minimum share of the best row's similarity.
LEAST: Final = 0.3
LEAST_SHARE: Final = 0.7
# Share of the call's time that a trigram search may take.
TIME_SHARE: Final = 0.4
# Number of seconds for which the answer of can_compare() is kept.
KNOWN_FOR: Final = 600


def similar_page(query: PageQuery, nothing: Page) -> Page:
    """Return the page of a query whose search matches nothing: rows of a similar spelling, or a note on what to do."""
    similar = _similar_query(query)
    page = read_page(similar) if similar is not None else nothing
    if page.rows:
        # These rows do not match the search, so no cursor can continue them.
        page.keys = []
        page.notes.append("nothing matches the search as it is written: these rows are the nearest in spelling")
        return page
    left = TextSearch(query.model).left_out()
    beside = f", which does not look into {', '.join(left)} for you" if left else ""
    page.notes.append(f"nothing matches the search{beside}; try a part of the word, or filters")
    return page


def _similar_query(query: PageQuery) -> PageQuery | None:
    """Search by trigrams: return the query of the rows most like a misspelt search term, at most one page.

    Returns None if there are no such rows, or if the database cannot search by trigrams.
    """
    words = [word for part in query.search.split() if (word := part.strip("\"'"))]
    paths = list(_text_paths(query.model))
    if not words or not paths:
        return None
    try:
        with read_limits(TIME_SHARE):
            rows = narrowed(query.model, query.conditions, "")
            if not can_compare(rows.db, int(monotonic() // KNOWN_FOR)):
                return None
            keys = _most_similar(*search_paths(query.model.request, rows, paths), words, query.limit)
    except ToolError:
        # The exact search was answered in time and found nothing: keep that answer.
        return None
    if not keys:
        return None
    return replace(
        query, search="", conditions=(*query.conditions, Applied(Narrowed(lambda rows: rows.filter(pk__in=keys)), {}))
    )


@lru_cache(maxsize=64)
def can_compare(using: str, when: int) -> bool:
    """Return whether the database has trigram search (``pg_trgm``), asked once for each ``when``."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regprocedure('word_similarity(text, text)') IS NOT NULL")
        return bool(cursor.fetchone()[0])


def _text_paths(model: ModelAccess) -> Iterator[str]:
    """Yield the text fields of the admin's search in which a trigram search compares words."""
    exposure = model.exposure
    owners = (type(owner).get_search_results.__module__ for owner in exposure.permission_owners)
    if not all(module.startswith(("django.", "mcp_django.")) for module in owners):
        # The project's own code decides where it searches and which rows it leaves out.
        return
    for text in exposure.get_search_fields(model.request):
        name = text.removeprefix("^")
        path = resolve_path(exposure.model, name)
        is_text = path is not None and path.column == name and not path.many and kind_of(path.field).word == "text"
        if is_text and TextSearch(model).looks_into(name):
            yield name


def _most_similar(rows: QuerySet[Any], paths: Sequence[str], words: Sequence[str], limit: int) -> list[Any]:
    """Search by trigrams: return the keys of the rows with the most similar trigrams to each search word."""
    if not paths:
        return []
    likeness = []
    for number, word in enumerate(words):
        # Similarity of the word and the most similar part of each text.
        texts = [Case(When(with_no_part_hidden(path), then=F(path)), default=Value("")) for path in paths]
        each = [Func(Value(word), text, function="WORD_SIMILARITY", output_field=FloatField()) for text in texts]
        name = f"mcp_like{number}"
        likeness.append(name)
        rows = rows.annotate(**{name: Greatest(*each) if len(each) > 1 else each[0]}).filter(**{f"{name}__gte": LEAST})
    found = rows.annotate(mcp_like=reduce(add, map(F, likeness))).order_by("-mcp_like", "pk")
    read = list(found.values_list("pk", "mcp_like")[:limit])
    return [key for key, like in read if like >= read[0][1] * LEAST_SHARE]
