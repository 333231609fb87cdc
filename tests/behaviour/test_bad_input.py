"""What holds for every bad call of a generic tool (security.md, S0), whatever is wrong with it.

The answer is a well-formed error, nothing is changed, nothing is told that the caller may not know, at most one thing
is logged and none as an error of the server, and the next caller is served. Which words the error has is for the tests
of the tools.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import django_filters
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.utils import timezone

from mcp_django import MCPSite, ModelExposure
from mcp_django.models import KeyedCall
from mcp_django.resources.completions import complete_field
from mcp_django.server.methods.tools import call_tool
from mcp_django.testing import MCPClient
from tests.cases import some
from tests.factories import make_author, make_book, make_user
from tests.testapp.models import Author, Book, Loan, Section, Shelf, Tag
from tests.tool_calls import request_of

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db]

CANARY = "canary"
LEAKS = re.compile(
    r"canary|secret_token|SELECT |INSERT INTO|UPDATE \"|WHERE |Traceback|File \"|\.py\b|site-packages|sqlite|psycopg"
    r"|testapp_book|django\.db|Exception|<class|object at 0x"
)
WRITING = ("create_record", "update_record", "delete_record", "run_action")
HUGE = (2**63, -(2**63) - 1, 2**64, 10**400, str(10**400), 1e300)
# What stands in the place of a name: fields that are hidden or missing, keywords of the ORM, SQL.
NAMES = (
    "secret_token",
    "author__secret_token",
    "author__books__author__secret_token",
    "nothing",
    "_connector",
    "_negated",
    "pk__regex",
    "title__iregex",
    "title__search",
    "title__unaccent__icontains",
    "title__icontains__exact",
    "title\x00",
    "title__icontains\n",
    "title; DROP TABLE x",
    'title"',
    "title%s",
    "title.x",
    "(SELECT 1)",
    "__class__",
    "_state",
    "objects",
    "delete",
    "data__a__b",
    "blob__len",
    "owner__password",
    "owner__username__startswith",
    "groups__permissions",
    "loans__borrower",
    "x" * 10_000,
    "\ud800",
)
# What stands in the place of any argument.
JUNK = (True, 1.5, [], [None], [[[]]], {"a": {"b": []}}, "\x00", "\ud800", "x" * 5_000, "1; DROP TABLE x")
BOOKS = {"model": "testapp.book"}


def _conditions() -> Iterator[tuple[str, Any]]:
    for name in NAMES:
        yield f"filter on {name[:20]!r}", {name: "1"}
    for value in HUGE:
        yield f"key {str(value)[:20]}", {"id": {"range": [value, {}]}}
        yield f"price {str(value)[:20]}", {"price__year": value}
    yield "an or that is an object", {"or": {"_connector": "OR"}}
    yield "a keyword within an or", {"or": [{"_connector": "OR"}, {"title": "x"}]}
    yield "a not that is a list", {"not": [{"title": "x"}]}
    yield "an empty or", {"or": []}
    yield "an empty condition", {"title": {}}
    yield "too deep", {"or": [{"and": [{"or": [{"and": [{"or": [{"title": "x"}]}]}]}]}]}
    yield "too many", {"or": [{"pages": number} for number in range(50)]}
    yield "too many values", {"id__in": list(range(100_000))}
    yield "a list of objects", {"id__in": [{"a": 1}]}
    yield "a lookup that is none", {"title": {"raw": "1"}}
    yield "a lookup of SQL", {"title": {"icontains' OR 1=1 --": "1"}}
    yield "a date that is none", {"created__gte": "32nd of never"}
    yield "a date beyond the calendar", {"created__gte": "today+99999999y"}
    yield "a regular expression", {"title__regex": "^(a+)+$"}
    yield "bytes for JSON", {"data__contains": {"a": "b"}}
    yield "a file", {"cover": "../../settings.py"}
    yield "no UUID", {"uuid": "not-a-uuid"}
    yield "NUL", {"title__icontains": "a\x00b"}
    yield "a surrogate", {"title": "\ud800"}
    yield "no truth value", {"active": "perhaps"}
    yield "NaN", {"rating__gte": "NaN"}
    yield "text", "title=1 OR 1=1"
    yield "JSON that is broken", '{"title": '


def _queries() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in _conditions():
        yield name, {**BOOKS, "filters": value}
    for name in NAMES:
        yield f"order by {name[:20]!r}", {**BOOKS, "ordering": [f"-{name}"]}
        yield f"field {name[:20]!r}", {**BOOKS, "fields": [name]}
    for value in (-1, "-1", 1.5, "ten", True, "1" * 400, [1]):
        yield f"limit {str(value)[:20]}", {**BOOKS, "limit": value}
    for value in JUNK:
        for argument in ("model", "search", "cursor", "count"):
            if (argument, value) not in (("search", "1; DROP TABLE x"), ("count", True)):
                yield f"{argument} {str(value)[:20]!r}", {**BOOKS, argument: value or [value]}
    yield "place of NULL", {**BOOKS, "ordering": ["title:nulls_first; DROP TABLE x"]}
    yield "order that is an object", {**BOOKS, "ordering": {"title": {"asc": True}}}
    yield "too many orders", {**BOOKS, "ordering": ["title"] * 100}
    yield "no model", {}
    yield "unknown argument", {**BOOKS, "using": "default"}
    yield "sensitive model", {"model": "auth.user"}
    yield "hidden model", {"model": "testapp.note"}
    yield "model of the framework", {"model": "sessions.session"}
    yield "long search", {**BOOKS, "search": " ".join(["word"] * 1_000)}


def _aggregates() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in NAMES:
        yield f"sum of {name[:20]!r}", {**BOOKS, "aggregates": [f"sum:{name}"]}
        yield f"group by {name[:20]!r}", {**BOOKS, "aggregates": ["count"], "group_by": [name]}
        yield f"having {name[:20]!r}", {**BOOKS, "aggregates": ["count"], "having": {name: 1}}
        yield f"title {name[:20]!r}", {**BOOKS, "aggregates": [{"function": "count", "as": f" {name}"}]}
    for value in JUNK:
        yield f"aggregates {str(value)[:20]!r}", {**BOOKS, "aggregates": value or [value]}
        yield (
            f"top {str(value)[:20]!r}",
            {**BOOKS, "aggregates": ["count"], "group_by": ["status"], "top": value or [value]},
        )
    yield "raw", {**BOOKS, "aggregates": ["raw:price"]}
    yield "period", {**BOOKS, "aggregates": ["count"], "group_by": ["created:month'); DROP TABLE x"]}
    yield "having huge", {**BOOKS, "aggregates": ["count"], "group_by": ["status"], "having": {"count": 10**400}}
    yield "sum of texts", {**BOOKS, "aggregates": ["sum:title"]}


def _keys() -> Iterator[tuple[str, Any]]:
    for value in (*HUGE, *JUNK, "0", "01", " 1", "1 ", "１", "1e3", "../1", "1%2F", "None", "1 OR 1=1"):
        yield f"pk {str(value)[:20]!r}", value


def _records() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in _keys():
        for model in ("testapp.book", "testapp.section", "testapp.shelf"):
            yield f"{name} of {model}", {"model": model, "pk": value}
    for uri in (
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "data:,x",
        "gopher://x",
        "django://testapp/book/../1",
        "\x00",
    ):
        yield f"uri {uri!r}", {"uri": uri}
    yield "fields", {**BOOKS, "pk": 1, "fields": ["secret_token"]}


def _values() -> Iterator[tuple[str, Any]]:
    for name in (
        "pk",
        "id",
        "uuid",
        "created",
        "owner_id",
        "is_superuser",
        "_state",
        "objects",
        "nothing",
        "x" * 9_000,
    ):
        yield f"value of {name[:20]!r}", {name: 1}
    for value in (2**63, 10**400, "1" * 5_000, "NaN", "1e400", {}, [], True, "\x00"):
        yield f"price {str(value)[:20]!r}", {"price": value}
        yield f"pages {str(value)[:20]!r}", {"pages": value}
    for value in (2**63, 10**400, {}, [1, 2, 3], "1 OR 1=1", True, 1.5):
        yield f"author {str(value)[:20]!r}", {"author": value}
        yield f"tags {str(value)[:20]!r}", {"tags": [value]}
    yield "title too long", {"title": "x" * 5_000}
    yield "NUL", {"title": "a\x00b"}
    yield "choice", {"status": "DROP TABLE x"}
    yield "date", {"published": "0000-00-00"}
    yield "isbn that another one has", {"isbn": "canary-isbn"}
    yield "file", {"cover": {"name": "../../settings.py", "base64": "%%%"}}
    yield "text", "title=1"
    yield "list", [1]


def _creations() -> Iterator[tuple[str, Mapping[str, Any]]]:
    whole = {"title": "New", "isbn": "123", "price": "1", "pages": 1}
    for name, values in _values():
        yield name, {**BOOKS, "values": {**whole, **values} if isinstance(values, dict) else values}
    yield "model", {"model": "testapp.note", "values": {"text": "x"}}
    yield "users", {"model": "auth.user", "values": {"username": "x", "is_superuser": True}}
    yield "nothing", BOOKS
    for value in JUNK:
        yield f"key {str(value)[:20]!r}", {**BOOKS, "values": {}, "idempotency_key": value or [value]}


def _selections() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in _keys():
        yield f"{name} alone", {"pk": value}
        yield f"{name} among pks", {"pks": [value]}
    for name, value in _conditions():
        yield name, {"filters": value}
    yield "pks and filters", {"pks": [1], "filters": {"title": "x"}}
    yield "too many pks", {"pks": list(range(1, 5_000))}
    yield "no pks", {"pks": []}
    yield "pks of text", {"pks": "all"}
    yield "token", {"pks": ["OWN"], "confirm_token": "x" * 5_000}
    yield "all", {"all": "yes"}


def _updates() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, picked in _selections():
        yield name, {**BOOKS, **picked, "values": {"title": "Changed"}}
    for name, values in _values():
        yield name, {**BOOKS, "pk": "OWN", "values": values}
    yield "version", {**BOOKS, "pk": "OWN", "values": {"title": "Changed"}, "version": "AAAA"}
    yield "row of another", {**BOOKS, "pk": "HIDDEN", "values": {"title": "Changed"}}


def _deletions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, picked in _selections():
        yield name, {**BOOKS, **picked}
    yield "row of another", {**BOOKS, "pk": "HIDDEN"}
    yield "protected", {"model": "testapp.author", "pk": "AUTHOR"}


def _actions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, picked in _selections():
        if "pk" in picked:
            continue
        yield name, {**BOOKS, "action": "withdraw", **picked}
    for name in (*NAMES, "delete_selected", "publish", "get_queryset", "delete_model"):
        yield f"action {name[:20]!r}", {**BOOKS, "action": name, "pks": ["OWN"]}
    for value in JUNK:
        yield (
            f"arguments {str(value)[:20]!r}",
            {
                **BOOKS,
                "action": "withdraw",
                "pks": ["OWN"],
                "arguments": value or [value],
            },
        )
    yield "row of another", {**BOOKS, "action": "withdraw", "pks": ["HIDDEN"]}


def _descriptions() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for value in (*JUNK, "testapp.note", "auth.user", "testapp.book,auth.user", ",".join(["testapp.book"] * 60)):
        yield f"model {str(value)[:30]!r}", {"model": value or [value]}
    yield "detail", {**BOOKS, "detail": "perhaps"}


CASES = {
    "aggregate_records": _aggregates,
    "create_record": _creations,
    "delete_record": _deletions,
    "describe_model": _descriptions,
    "get_record": _records,
    "query_records": _queries,
    "run_action": _actions,
    "update_record": _updates,
}


@pytest.fixture
def caller() -> MCPClient:
    """Who may do all with books, authors, shelves and sections, of which some rows are those of another."""
    names = ("book", "author", "shelf", "section", "tag")
    verbs = ("view", "add", "change", "delete")
    user = make_user("caller", *(f"testapp.{verb}_{name}" for name in names for verb in verbs))
    other = User.objects.create_user("canary-user", password="canary-password")
    author = make_author("Grace", secret_token="canary-token")
    make_book("Own", author=author, owner=user)
    hidden = make_book("canary-title", author=author, owner=other, isbn="canary-isbn")
    Loan.objects.create(book=hidden, borrower="canary-borrower", due=timezone.now())
    Shelf.objects.create(code="A/1")
    Section.objects.create(name="Root")
    return MCPClient(user)


@pytest.fixture
def other() -> MCPClient:
    return MCPClient(make_user("other", "testapp.view_tag"))


def everything() -> list[Any]:
    """All that a call could have changed."""
    models = (Book, Author, Tag, Loan, Shelf, Section, User)
    rows = [list(model._base_manager.order_by("pk").values_list()) for model in models]
    return [*rows, LogEntry.objects.count(), KeyedCall.objects.count()]


def texts_of(value: Any) -> Iterator[str]:
    """Yield what the caller wrote, which an answer may repeat."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, str) and value:
        yield value
        yield from filter(None, re.split("__|^-|:", value))


def problems_of(response: Any, arguments: Mapping[str, Any], records: list[logging.LogRecord]) -> list[str]:
    """Return in which points the answer is not what a bad call has to get."""
    message = json.loads(response.content)
    result, error = message.get("result"), message.get("error")
    found = []
    if response.status_code >= 500:
        found.append(f"status {response.status_code}")
    if error is not None:
        if result is not None or not isinstance(error.get("code"), int) or not error.get("message"):
            found.append(f"ill-formed error {error}")
    elif result.get("isError") is not True or not 0 < len(result["content"][0]["text"]) < 3_000:
        found.append(f"no error: {result['content'][0]['text'][:200]}")
    told = response.content.decode() + str(response.headers)
    logged = [record for record in records if record.levelno >= logging.INFO]
    told += "".join(logging.Formatter().format(record) for record in logged)
    for text in sorted(texts_of(arguments), key=len, reverse=True):
        told = told.replace(text, "")
    if leak := LEAKS.search(told):
        found.append(f"tells {leak[0]!r}: {told[max(0, leak.start() - 100) : leak.end() + 100]}")
    # Beside the cause Django logs each status from 400 on.
    ours = [record for record in logged if record.name != "django.request"]
    if max(len(ours), len(logged) - len(ours)) > 1 or any(record.levelno > logging.WARNING for record in logged):
        found.append(f"logs {[record.getMessage() for record in logged]}")
    return found


@pytest.mark.parametrize("tool", CASES)
def test_rows_112_to_162_bad_input_is_an_error_of_the_caller_and_of_nothing_else(
    tool: str, caller: MCPClient, other: MCPClient, caplog: pytest.LogCaptureFixture
) -> None:
    places = {
        "OWN": Book.objects.get(title="Own").pk,
        "HIDDEN": Book.objects.get(title="canary-title").pk,
        "AUTHOR": Author.objects.get().pk,
    }
    before, wrong = everything(), {}
    for name, given in some(CASES[tool](), 3):
        arguments = json.loads(json.dumps(given))
        arguments |= {
            key: places.get(arguments[key], arguments[key]) for key in ("pk",) if _is_text(arguments.get(key))
        }
        if isinstance(arguments.get("pks"), list):
            arguments["pks"] = [
                places[item] if _is_text(item) and item in places else item for item in arguments["pks"]
            ]
        caplog.clear()
        with caplog.at_level(logging.INFO):
            response = caller.send("tools/call", {"name": tool, "arguments": arguments})
        found = problems_of(response, arguments, caplog.records)
        if tool in WRITING and everything() != before:
            found.append("changes something")
            before = everything()
        if not other.call("query_records", model="testapp.tag").structured["columns"]:
            found.append("the next caller is not served")
        if found:
            wrong[name] = found
    assert everything() == before
    assert not wrong, json.dumps(wrong, indent=1)[:8_000]


EDGE_MOMENTS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
# What a database may hold no value for, as far as it is not refused before.
EDGES: tuple[dict[str, Any], ...] = (
    {"reading_time__gt": "999999999 23:59:59"},
    {"reading_time__range": ["-999999999 00:00:00", "P999999999D"]},
    {"not": {"reading_time": "999999999 23:59:59"}},
    {"created__gt": "0001-01-01T00:00:00+14:00"},
    {"created__lt": "9999-12-31T23:59:59-14:00"},
    {"published__gt": "0001-01-01"},
    {"published__range": ["0001-01-01", "9999-12-31"]},
    {"opens": "23:59:60"},
    {"rating__gt": 1e308},
    {"price__lt": "-99999999999999999999"},
)


@pytest.mark.parametrize("tool", ["query_records", "aggregate_records"])
def test_row_123_values_at_the_ends_of_their_types_are_no_failures(
    tool: str, caller: MCPClient, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"aggregates": ["count"]} if tool == "aggregate_records" else {"fields": ["title"]}
    for condition in EDGES:
        result = caller.call(tool, **BOOKS, filters=condition, **more)
        assert "failed" not in result.text, condition
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


@pytest.mark.parametrize("text", ["999999999 23:59:59", "-999999999 00:00:00", "9" * 30, "1e30"])
def test_rows_123_135_nothing_is_completed_from_values_at_the_ends(text: str) -> None:
    make_book("Own")
    request = request_of(make_user("caller", "testapp.view_book"), scopes=frozenset({"mcp:read"}))
    for name in ("reading_time", "pages", "price", "rating"):
        assert not complete_field(request, "testapp.book", name, text).values


class EdgeFilters(django_filters.FilterSet):
    created = django_filters.IsoDateTimeFilter(lookup_expr="gt")
    price = django_filters.NumberFilter(lookup_expr="gt")
    pages = django_filters.NumberFilter(lookup_expr="gt")


def test_row_123_what_the_projects_own_filters_let_through_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    site = MCPSite()
    search = ["price__gte", "pages__exact", "published__year"]
    site.register(Book, ModelExposure, fields=["title"], filterset_class=EdgeFilters, search_fields=search)
    make_book("Own")
    user = make_user("caller", "testapp.view_book")
    given: list[dict[str, Any]] = [{"filters": {"created": text}} for text in EDGE_MOMENTS]
    given += [{"filters": {name: text}} for name in ("price", "pages") for text in ("1e49", "9" * 50, "-1e49")]
    given += [{"search": text} for text in ("1e40", "9" * 60, "NaN", "-999999999", "P999999999D")]
    for arguments in given:
        request = request_of(user, site, scopes=frozenset({"mcp:read"}))
        result = call_tool(request, {"name": "query_records", "arguments": {**BOOKS, **arguments}})
        assert isinstance(result, dict)
        assert "failed" not in result["content"][0]["text"], arguments
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
