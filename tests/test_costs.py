"""What a read may cost: the time of its queries, and their estimated cost; nothing of it stays behind."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from django.db import DatabaseError, connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.test import override_settings

from mcp_django import ModelExposure, ToolError, costs
from mcp_django.context import MCPRequest
from mcp_django.costs import TOO_SLOW, read_limits
from mcp_django.methods.completions import complete
from mcp_django.methods.resources import read_resource
from mcp_django.methods.tools import call_tool
from tests.factories import make_superuser
from tests.reading import reader, site_with
from tests.testapp.models import Tag

# Counts until somebody stops it.
ENDLESS: Final = RawSQL("(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n)", [])
POSTGRESQL_ONLY = pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL estimates costs")


class Endless(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(pk__lt=ENDLESS)


def limited(**limits: Any) -> Any:
    return override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", **limits})


@pytest.fixture
def in_a_hurry(transactional_db: None) -> Iterator[None]:
    with limited(STATEMENT_TIMEOUT=0.3):
        yield


@pytest.fixture
def request_(transactional_db: None) -> MCPRequest:
    site = site_with()
    site.register(Tag, Endless)
    for number in range(3):
        Tag.objects.create(name=f"tag {number}")
    return reader(make_superuser(), site)


def text_of(result: Any) -> str:
    assert result["isError"] is True
    return str(result["content"][0]["text"])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("query_records", {}),
        ("query_records", {"ordering": ["-name"], "count": True}),
        ("get_record", {"pk": None}),
        ("aggregate_records", {"group_by": ["name"]}),
    ],
    ids=["page", "order", "row", "groups"],
)
def test_row_118_a_read_that_takes_too_long_is_stopped_and_says_how_to_narrow_it(
    request_: MCPRequest, in_a_hurry: None, tool: str, arguments: Mapping[str, Any]
) -> None:
    given = {name: Tag.objects.earliest("pk").pk if name == "pk" else value for name, value in arguments.items()}
    result = call_tool(request_, {"name": tool, "arguments": {"model": "testapp.tag", **given}})
    assert text_of(result) == TOO_SLOW
    assert not costs._watched
    # The same connection goes on.
    assert Tag.objects.count() == 3


def test_row_118_resources_and_completions_are_stopped_too(request_: MCPRequest, in_a_hurry: None) -> None:
    with pytest.raises(Exception, match="The database took too long"):
        read_resource(request_, {"uri": "django://testapp/tag"})
    reference = {"type": "ref/resource", "uri": "django://{app_label}/{model_name}/{pk}"}
    given = {"arguments": {"app_label": "testapp", "model_name": "tag"}}
    with pytest.raises(ToolError) as error:
        complete(request_, {"ref": reference, "argument": {"name": "pk", "value": ""}, "context": given})
    assert error.value.message == TOO_SLOW
    assert Tag.objects.count() == 3


def test_row_118_a_count_that_takes_too_long_costs_no_page(in_a_hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Tag.objects.create(name="tag")
    request = reader(make_superuser(), site_with(Tag))
    monkeypatch.setattr(
        "mcp_django.tools.query.count_rows", lambda *arguments: Tag.objects.filter(pk__lt=ENDLESS).count()
    )
    arguments = {"model": "testapp.tag", "count": True, "fields": ["name"]}
    found: Any = call_tool(request, {"name": "query_records", "arguments": arguments})
    assert "isError" not in found
    text = found["content"][0]["text"]
    assert '"count":"unknown"' in text
    assert "counting took too long" in text
    assert '"tag"' in text


def stopped_twice() -> None:
    for _ in range(2):
        try:
            list(Tag.objects.filter(pk__lt=ENDLESS))
        except DatabaseError as error:
            raised = error
    raise raised


def test_a_query_that_begins_after_the_time_is_over_is_stopped(in_a_hurry: None) -> None:
    Tag.objects.create(name="tag")
    with pytest.raises(ToolError) as error, read_limits():
        stopped_twice()
    assert error.value.message == TOO_SLOW


def test_other_errors_of_the_database_stay_what_they_are(in_a_hurry: None) -> None:
    with pytest.raises(DatabaseError), read_limits():
        Tag.objects.extra(where=["no_such_column = 1"]).first()


@limited(STATEMENT_TIMEOUT=None)
def test_without_a_limit_nothing_watches() -> None:
    with read_limits():
        assert not costs._watched


def test_a_limit_sends_no_statement_of_its_own(db: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1), read_limits():
        assert costs._watched
        Tag.objects.count()


def test_the_watching_thread_ends_and_begins_again(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with read_limits():
        first = costs._threads[0]
    monkeypatch.setattr(costs, "IDLE", -1)
    first.join(timeout=30)
    assert not first.is_alive()
    monkeypatch.undo()
    with read_limits():
        assert costs._threads[0].is_alive()


def test_a_forked_process_begins_anew(db: None) -> None:
    with read_limits():
        before = list(costs._threads)
        costs._forget()
        assert not costs._watched
        assert not costs._threads
    costs._threads.extend(before)


@POSTGRESQL_ONLY
def test_row_118_a_query_that_is_estimated_to_cost_too_much_is_not_run(db: None) -> None:
    Tag.objects.create(name="tag")
    request = reader(make_superuser(), site_with(Tag))
    call = {"name": "query_records", "arguments": {"model": "testapp.tag"}}
    with limited(MAX_QUERY_COST=0.01):
        assert "too much to do" in text_of(call_tool(request, call))
    with limited(MAX_QUERY_COST=100_000):
        answered: Any = call_tool(request, call)
    assert "isError" not in answered
    # Only reads are asked about.
    with limited(MAX_QUERY_COST=0.01):
        assert Tag.objects.count() == 1


@pytest.mark.skipif(connection.vendor == "postgresql", reason="PostgreSQL estimates costs")
@limited(MAX_QUERY_COST=0.01)
def test_other_databases_are_not_asked_for_costs(db: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1), read_limits():
        Tag.objects.count()
