"""The calls that are measured over the articles and events, the same for all contenders that have them."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from .calls import Call

ROWS = 50
STATUS = "published"
MODEL = "bench.article"
# A quarter of a year, which ends with the last articles.
SINCE = "2026-02-01"
# So many values of four digits, that no two writes at the same time have one value.
WORDS = range(1000, 2000)
# Whose pages are read otherwise than by a plan that was compiled before; the SDK's tool does the same work for each.
ROADS = {
    "own_queryset": ("bench.ownarticle", "an own get_queryset"),
    "computed_column": ("bench.computedarticle", "a computed column"),
    "serializer": ("bench.serializedarticle", "a serializer_class"),
}
# Columns of a page, to which one of a related row is added.
COLUMNS = ["title", "status", "price", "words", "rating", "published"]
CALL_NAMES = (
    "tools_list",
    "query_records",
    *ROADS,
    "plain_columns",
    "related_column",
    "get_record",
    "aggregate_records",
    "first_page",
    "deep_page",
    "update_record",
)


# What has to be the same


def _tools(result: Mapping[str, Any]) -> int:
    return len(result["tools"])


def _page(result: Mapping[str, Any]) -> list[Any]:
    """Return the keys of the rows and the authors' labels."""
    author = result["columns"].index("author")
    found = [(row[0], row[author][1]) for row in result["rows"]]
    assert found, "no rows"
    return found


def _keys(result: Mapping[str, Any]) -> list[Any]:
    found = [row[0] for row in result["rows"]]
    assert found, "no rows"
    return found


def _record(result: Mapping[str, Any]) -> Any:
    fields = result["fields"]
    return fields["id"], fields["title"], fields["author"][1]


def _events_after(number: int) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Return what gives the keys of a page and requires them to be those that follow ``number``."""

    def read(result: Mapping[str, Any]) -> list[Any]:
        found = [row[0] for row in json.loads(result["contents"][0]["text"])["rows"]]
        assert found == list(range(number + 1, number + 1 + len(found))), "not the rows that follow"
        assert found, "no rows"
        return found

    return read


def _totals(result: Mapping[str, Any]) -> list[Any]:
    found = [(status, month, count, Decimal(total)) for status, month, count, total in result["rows"]]
    assert found, "no rows"
    return found


def _changed(result: Mapping[str, Any]) -> Any:
    fields = result["fields"]
    return result.get("pk", fields.get("id")), fields["words"]


# The calls


def calls(rows: int, deep_uri: str, deep_row: int) -> list[Call]:
    """Return the measured calls for a table of ``rows`` articles; ``deep_uri`` is the page at event ``deep_row``.

    The write comes last: it makes the tables grow.
    """
    pk = rows // 2
    return [
        Call("tools_list", "tools/list", "tools/list", {}, None, _tools),
        Call(
            "query_records",
            f"query_records: {ROWS} of {rows:,} rows, one relation label",
            "tools/call",
            _query(MODEL),
            f"/bare/articles?status={STATUS}&limit={ROWS}",
            _page,
            group="query_records",
        ),
        *(_road(name, model, what) for name, (model, what) in ROADS.items()),
        _columns("plain_columns", "query_records: the same rows, six columns", COLUMNS),
        _columns("related_column", "query_records: and one of a related row", [*COLUMNS, "author.name"]),
        Call(
            "get_record",
            "get_record",
            "tools/call",
            {"name": "get_record", "arguments": {"model": MODEL, "pk": pk}},
            f"/bare/articles/{pk}",
            _record,
        ),
        Call(
            "aggregate_records",
            "aggregate_records: a quarter by status and month",
            "tools/call",
            {"name": "aggregate_records", "arguments": _QUESTION},
            f"/bare/totals?since={SINCE}",
            _totals,
        ),
        *_pages(deep_uri, deep_row),
        Call(
            "update_record",
            "update_record: one field",
            "tools/call",
            {"name": "update_record", "arguments": {"model": MODEL, "pk": pk + 1}},
            f"/bare/articles/{pk + 1}",
            _changed,
            values=[{"words": words} for words in WORDS],
        ),
    ]


_QUESTION = {
    "model": MODEL,
    "aggregates": ["count", "sum:price"],
    "group_by": ["status", "published:month"],
    "filters": {"published__gte": SINCE},
}


def _query(model: str) -> dict[str, Any]:
    query = {"model": model, "filters": {"status": STATUS}, "ordering": ["-published"], "limit": ROWS}
    return {"name": "query_records", "arguments": query}


def _road(name: str, model: str, what: str) -> Call:
    """Return the call that asks for the rows of ``query_records`` of another exposure."""
    title = f"query_records: the same rows through {what}"
    only = frozenset({"fast", "sdk", "sdk_token"})
    params, together = _query(model), "query_records"
    return Call(name, title, "tools/call", params, None, _page, only=only, group=together, essence_of=together)


def _columns(name: str, title: str, columns: list[str]) -> Call:
    """Return the call that asks for these columns of the rows."""
    params = {"name": "query_records", "arguments": {**_query(MODEL)["arguments"], "fields": columns}}
    only, together = frozenset({"fast"}), "columns"
    return Call(name, title, "tools/call", params, None, _keys, only=only, group=together, essence_of=together)


def _pages(deep_uri: str, deep_row: int) -> list[Call]:
    first, deep = "resources/read: the first page of a table", f"resources/read: the page after row {deep_row:,}"
    begin, beyond = {"uri": "django://bench/event"}, {"uri": deep_uri}
    return [
        Call("first_page", first, "resources/read", begin, None, _events_after(0), sdk=False, group="pages"),
        Call("deep_page", deep, "resources/read", beyond, None, _events_after(deep_row), sdk=False, group="pages"),
    ]
