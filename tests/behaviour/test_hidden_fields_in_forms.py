"""A field that a caller may not read, or reads masked, is of no use in any form of a question, and is never named."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from mcp_django import MCPSite
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import ToolError
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.refused_calls import RefusedCall
from tests.behaviour.hidden_worlds import Serialized, World, admin_site, declared_site
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
QUERY, TOTALS, GET = QueryRecords(), AggregateRecords(), GetRecord()
Form = Callable[[str], tuple[Tool, dict[str, Any]]]


def query(**arguments: Any) -> tuple[Tool, dict[str, Any]]:
    return QUERY, arguments


def totals(measure: Any = "count", **arguments: Any) -> tuple[Tool, dict[str, Any]]:
    return TOTALS, {"aggregates": [measure] if not isinstance(measure, list) else measure, **arguments}


def a_share(name: str) -> tuple[Tool, dict[str, Any]]:
    some = {"function": "count", "where": {f"{name}__isnull": False}, "as": "some"}
    return totals([some, "count", {"ratio": ["some", "count"]}])


# What a caller could ask of a field, each form once.
FORMS: Mapping[str, Form] = {
    "column": lambda name: query(fields=["pk", name]),
    "order": lambda name: query(ordering=[f"-{name}"]),
    "filter": lambda name: query(filters={name: "9"}),
    "lookup": lambda name: query(filters={f"{name}__isnull": True}),
    "spelt-out filter": lambda name: query(filters={"field": name, "operator": ">", "value": 1}),
    "or": lambda name: query(filters={"or": [{"pages": 1}, {name: "9"}]}),
    "not": lambda name: query(filters={"not": {name: "9"}}),
    "against a field": lambda name: query(filters={"pages__gt": {"field": name}}),
    "a field against": lambda name: query(filters={f"{name}__gt": {"field": "pages"}}),
    "shifted": lambda name: query(filters={"pages__gt": {"field": name, "plus": 1}}),
    "against arithmetic": lambda name: query(filters={"pages__gt": {"field": f"pages*{name}"}}),
    "some": lambda name: query(filters={"loans": {"some": {f"book.{name}": "9"}}}),
    "none": lambda name: query(filters={"tags": {"none": {f"books.{name}": "9"}}}),
    "every": lambda name: query(filters={"loans": {"every": {"book": {"some": {name: "9"}}}}}),
    "count where": lambda name: query(filters={"loans": {"count__gte": 1, "where": {f"book.{name}": "9"}}}),
    "field of a record": lambda name: (GET, {"pk": 1, "fields": ["title", f"{name}"]}),
    "measure": lambda name: totals(f"max:{name}"),
    "count of values": lambda name: totals(f"count_distinct:{name}"),
    "arithmetic": lambda name: totals(f"sum:pages*{name}"),
    "difference": lambda name: totals(f"avg:{name}-pages"),
    "median": lambda name: totals(f"median:{name}"),
    "percentile": lambda name: totals({"function": "percentile", "field": name, "share": 0.9}),
    "spread": lambda name: totals(f"stddev:{name}"),
    "condition of a measure": lambda name: totals({"function": "count", "where": {name: "9"}}),
    "ratio": a_share,
    "group": lambda name: totals(group_by=[name]),
    "steps": lambda name: totals(group_by=[f"{name}:10"]),
    "period": lambda name: totals(group_by=[f"{name}:month"], fill=True),
    "part of a date": lambda name: totals(group_by=[f"{name}:weekday"]),
    "first of each": lambda name: totals(group_by=["title"], per=name, top=1),
    "order of groups": lambda name: totals(group_by=["title"], ordering=[f"sum:{name}"]),
    "having": lambda name: totals(group_by=["title"], having={f"max:{name}": {"gte": 1}}),
}
# Left out, named like a secret, behind what is left out, and behind a model that is not there.
HIDDEN = ("isbn", "owner", "author.email", "author.secret_token", "owner.password", "audiobook.narrator")
# Relations, for forms that ask about rows.
RELATED_FORMS: Mapping[str, Form] = {
    "some": lambda name: query(filters={name: {"some": {}}}),
    "none": lambda name: query(filters={name: {"none": {}}}),
    "every": lambda name: query(filters={name: {"every": {"pk": 1}}}),
    "count": lambda name: query(filters={name: {"count__gte": 1}}),
    "measure": lambda name: totals(f"count:{name}"),
    "sum": lambda name: totals(f"sum:{name}.position"),
    "related": lambda name: (GET, {"pk": 1, "related": [name]}),
}
SITES: tuple[Callable[[], MCPSite], ...] = (declared_site, admin_site, partial(declared_site, Serialized))
# The forms that show values as they are for the caller: masked ones are shown masked.
SHOWING = ("column", "field of a record")


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """The rows, made once and rolled back after the last test."""
    with django_db_blocker.unblock(), transaction.atomic():
        world = World()
        world.become(1)
        yield world
        transaction.set_rollback(True)


@pytest.fixture
def callers(world: World) -> list[MCPRequest]:
    return [request_of(world.root, make(), scopes=frozenset({"mcp:read", "mcp:write"})) for make in SITES]


def refused(request: MCPRequest, tool: Tool, arguments: dict[str, Any]) -> str:
    """Return all that the client is told of a call that is refused."""
    arguments = {"model": "testapp.book", **arguments}
    with pytest.raises(ToolError) as error:
        tool.call(request, dict(arguments))
    return str(RefusedCall(request, tool, arguments, error.value).result())


def is_named(text: str, name: str, given: str) -> bool:
    """Return whether the text has the name elsewhere than where the call said it itself."""
    return name in text.replace(given, "").replace(given.replace(".", "__"), "")


@pytest.mark.parametrize("form", FORMS)
def test_a_hidden_field_has_no_use_in_any_form(callers: list[MCPRequest], form: str) -> None:
    for request in callers:
        for name in HIDDEN if form in SHOWING else (*HIDDEN, "rating"):
            refused(request, *FORMS[form](name))


def test_a_masked_field_is_shown_masked(callers: list[MCPRequest]) -> None:
    declared, _, serialized = callers
    found = call(QUERY, declared, model="testapp.book", fields=["rating"], limit=1)
    assert found["rows"] == [[found["rows"][0][0], "masked"]]
    found = call(QUERY, serialized, model="testapp.author", fields=["email"], limit=1)
    assert found["rows"] == [[found["rows"][0][0], "masked"]]


@pytest.mark.parametrize("form", RELATED_FORMS)
def test_a_hidden_relation_has_no_use_in_any_form(callers: list[MCPRequest], form: str) -> None:
    for request in callers:
        for name in ("placement_set", "placement", "audiobook", "owner", "shelf_set"):
            refused(request, *RELATED_FORMS[form](name))


@pytest.mark.parametrize("form", FORMS)
def test_no_form_names_a_hidden_field_that_was_nearly_written(callers: list[MCPRequest], form: str) -> None:
    near = {"isbm": "isbn", "ownr": "owner", "author.emial": "email", "author.secret_tokn": "token"}
    near |= {} if form in SHOWING else {"ratng": "rating"}
    for request in callers:
        for given, name in near.items():
            text = refused(request, *FORMS[form](given))
            assert not is_named(text, name, given), (given, text)


@pytest.mark.parametrize("form", RELATED_FORMS)
def test_no_form_names_a_hidden_relation_that_was_nearly_written(callers: list[MCPRequest], form: str) -> None:
    for request in callers:
        for given, name in {"placement_sets": "placement_set", "audiobok": "audiobook", "ownr": "owner"}.items():
            text = refused(request, *RELATED_FORMS[form](given))
            assert not is_named(text, name, given), (given, text)


@pytest.mark.parametrize("question", ["isbn", "narrator", "secret token", "website", "placements"])
def test_a_hidden_field_finds_no_model(callers: list[MCPRequest], question: str) -> None:
    for request in callers:
        assert call(ListModels(), request, query=question)["rows"] == call(ListModels(), request, query="xqzvj")["rows"]


@pytest.mark.parametrize("detail", [False, True])
def test_a_description_names_no_hidden_field(callers: list[MCPRequest], detail: bool) -> None:
    for request in callers:
        text = str(call(DescribeModel(), request, model="testapp.book", detail=detail))
        assert not [name for name in ("isbn", "owner", "narrator", "placement", "secret_token") if name in text]
