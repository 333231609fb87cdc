import json

import pytest
from django.contrib.auth.models import Permission

from mcp_django import MCPSite, site
from mcp_django.console.visibility_report import VisibilityReport, tokens
from mcp_django.context.call_restrictions import READ_ONLY, Narrowing
from mcp_django.models import CallEntry, Switch
from mcp_django.operating.switches import Off, board, set_switch
from mcp_django.scopes import Scope
from mcp_django.signin import FactName
from mcp_django.transports.local_client import LocalClient
from tests.factories import make_superuser, make_user
from tests.testapp.models import Book

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin():
    return make_superuser("admin")


def reasons(items):
    return {item.name: item.reason for item in items}


def test_it_is_what_a_client_is_told(admin):
    view = VisibilityReport.of(site, admin, [Scope.READ, Scope.WRITE])
    client = LocalClient(site, admin, [Scope.READ, Scope.WRITE])
    listed = client.request("tools/list")["tools"]
    assert [(tool.name, tool.tokens) for tool in view.tools] == [(item["name"], tokens(item)) for item in listed]
    assert view.instructions == client.request("server/discover")["instructions"]
    assert view.prompts == tuple(item["name"] for item in client.request("prompts/list")["prompts"])
    assert {item["uri"] for item in client.request("resources/list")["resources"]} <= set(view.resources)
    assert view.tool_tokens == sum(tool.tokens for tool in view.tools)


def test_tools_that_write_are_told_from_those_that_read(admin):
    writes = {tool.name: tool.writes for tool in VisibilityReport.of(site, admin, [Scope.READ, Scope.WRITE]).tools}
    assert (writes["query_records"], writes["create_record"]) == (False, True)


def test_fields_and_filters_are_those_that_describe_model_tells(admin):
    model = next(item for item in VisibilityReport.of(site, admin, [Scope.READ]).models if item.label == "testapp.book")
    client = LocalClient(site, admin, [Scope.READ])
    result = client.request("tools/call", name="describe_model", arguments={"model": "testapp.book"})
    described = result["structuredContent"]
    assert [item.split()[0] for item in described["fields"].split(", ")] == list(model.fields)
    assert set(described["filters"].split(", ")) <= set(model.filters)
    assert "exact" in model.filters["status"]


def test_a_narrowed_access_is_the_reason_for_what_it_leaves_out(admin):
    facts = {Narrowing.FACT: {"models": ["testapp.book"], READ_ONLY: True}}
    view = VisibilityReport.of(site, admin, [Scope.READ, Scope.WRITE], facts=facts)
    assert [model.label for model in view.models] == ["testapp.book"]
    assert reasons(view.missing_models)["testapp.author"] == "the access is only for other records"
    assert reasons(view.missing_tools)["create_record"] == "the access is read-only"
    assert reasons(view.missing_tools)["publish_testapp_book"] == "the access is read-only"


@pytest.mark.parametrize("facts", [{}, {Narrowing.FACT: {"models": ["testapp.book"], READ_ONLY: True}}])
def test_where_nothing_can_be_changed_actions_are_missing_for_that_reason(admin, settings, facts):
    if not facts:
        settings.MCP_DJANGO = settings.MCP_DJANGO | {"READ_ONLY": True}
    view = VisibilityReport.of(site, admin, [Scope.READ, Scope.WRITE], facts=facts)
    book = next(model for model in view.models if model.label == "testapp.book")
    told = "the access is read-only" if facts else "READ_ONLY is on"
    assert "publish" not in book.actions
    assert reasons(book.missing_actions)["publish"] == told
    assert reasons(view.missing_tools)["publish_testapp_book"] == told


def test_a_prompt_that_is_not_there_has_a_reason(admin):
    own = MCPSite("own")
    own.add_prompt(lambda request: "", name="guarded", permission=lambda request: False)
    view = VisibilityReport.of(own, admin, [Scope.READ])
    assert reasons(view.missing_prompts)["guarded"] == "its own permission refuses the user"


def test_nobody_called(admin, call_log):
    VisibilityReport.of(site, admin, [Scope.READ, Scope.WRITE])
    assert not CallEntry.objects.exists()


def test_a_user_who_is_not_active_sees_nothing(admin):
    admin.is_active = False
    admin.save()
    with pytest.raises(LocalClient.CallFailed):
        VisibilityReport.of(site, admin, [Scope.READ])


def test_a_user_with_few_permissions_sees_no_more_than_these_allow():
    reader = make_user("reader")
    reader.user_permissions.add(Permission.objects.get(codename="view_book"))
    view = VisibilityReport.of(site, reader, [Scope.READ, Scope.WRITE])
    assert [model.label for model in view.models] == ["admin.logentry", "testapp.book"]
    assert reasons(view.models[1].missing)["tags"] == "the user does not see testapp.tag"
    assert view.models[1].allowed == ("view",)


def test_one_model_alone_leaves_out_the_lists(admin):
    view = VisibilityReport.of(site, admin, [Scope.READ], model=Book)
    assert (view.tools, view.resources, view.instructions) == ((), (), "")
    assert [model.label for model in view.models] == ["testapp.book"]


def test_it_is_json(admin):
    view = VisibilityReport.of(site, admin, [Scope.READ])
    found = json.loads(json.dumps(view.as_json()))
    assert found["tool_tokens"] == view.tool_tokens
    assert found["models"][0]["fields"]


def test_the_number_of_queries_does_not_grow_with_the_models(django_assert_max_num_queries):
    reader = make_user("reader")
    with django_assert_max_num_queries(12):
        VisibilityReport.of(site, reader, [Scope.READ, Scope.WRITE])
    reader.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    with django_assert_max_num_queries(12):
        assert len(VisibilityReport.of(site, reader, [Scope.READ, Scope.WRITE]).models) == 11


@pytest.fixture
def off():
    yield set_switch
    board.__init__()


def test_what_is_switched_off_has_its_reason(admin, off):
    off("tool", "query_records", reason="stocktaking")
    off("model", "testapp.author")
    off("action", "testapp.book.publish")
    view = VisibilityReport.of(site, admin, [Scope.READ, Scope.WRITE])
    assert reasons(view.missing_tools)["query_records"].endswith("is switched off. Reason given: stocktaking")
    assert reasons(view.missing_models)["testapp.author"] == "The model testapp.author is switched off."
    book = next(model for model in view.models if model.label == "testapp.book")
    assert "is switched off" in reasons(book.missing_actions)["publish"]
    assert "is switched off" in reasons(view.missing_tools)["publish_testapp_book"]
    assert not view.off


def test_a_permission_that_is_missing_comes_before_a_switch(off):
    reader = make_user("reader", "testapp.view_book")
    off("model", "testapp.author")
    view = VisibilityReport.of(site, reader, [Scope.READ, Scope.WRITE])
    assert reasons(view.missing_models)["testapp.author"] == "the user lacks the permission testapp.view_author"


def test_a_caller_who_is_switched_off_is_told(admin, off):
    off("user", "admin", reason="on leave")
    assert VisibilityReport.of(site, admin, [Scope.READ]).off == "This account is switched off. Reason given: on leave"
    off("client", "robot")
    reader = make_user("reader", "testapp.view_book")
    assert VisibilityReport.of(site, reader, [Scope.READ], client_id="robot").off == "This client is switched off."
    assert not VisibilityReport.of(site, reader, [Scope.READ], client_id="other").off


def test_what_is_left_of_budgets_is_told_of_the_account_the_client_and_the_service(admin, settings):
    limits = {"user": {"calls": 5}, "client:robot": {"bytes": 900}, "service": {"rows_read": 7}}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": limits}
    assert VisibilityReport.of(site, admin, [Scope.READ]).budgets == {"user": {"calls": 5}}
    assert VisibilityReport.of(site, admin, [Scope.READ], client_id="robot").budgets == {
        "user": {"calls": 5},
        "client": {"bytes": 900},
    }
    account = {FactName.SERVICE_ACCOUNT: 1, "name": "nightly"}
    assert VisibilityReport.of(site, admin, [Scope.READ], client_id="robot", facts=account).budgets == {
        "service": {"rows_read": 7}
    }


def test_a_service_account_that_is_switched_off_is_told(admin):
    board.off = Off((Switch(kind="service", target="robot"),))
    assert VisibilityReport.of(site, admin, [Scope.READ], client_id="robot", facts={FactName.SERVICE_ACCOUNT: 1}).off
    assert not VisibilityReport.of(site, admin, [Scope.READ], client_id="robot").off
