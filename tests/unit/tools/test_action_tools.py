import json
import re
from typing import Annotated

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse

from mcp_django import Ask, MCPSite, ModelExposure, Param, action, site
from mcp_django.emulation.picked_rows import Selection
from mcp_django.exposures.declared_actions import FunctionAction
from mcp_django.orm.access import access_of
from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.action_tools import ActionTool, RunAction, action_tool_name
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.model_description import Description
from mcp_django.tools.model_overview import Overview
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

RUN = RunAction()
SCOPES = frozenset({"mcp:read", "mcp:write"})


class TagExposure(ModelExposure):
    fields = ["name"]
    search_fields = ["name"]
    actions = ["append", "drop", "look", "find"]

    @action(destructive=False)
    def append(self, request, queryset, *, text: str, times: int = 1):
        for tag in queryset:
            tag.name += text * times
            tag.save()

    @action(permissions=["delete"])
    def drop(self, request, queryset):
        queryset.delete()

    @action(permissions=["view"], read_only=True)
    def look(self, request, queryset):
        return sorted(tag.name for tag in queryset)

    @action(permissions=["view"], read_only=True)
    def find(self, request, queryset, *, search: str, all: bool = False):
        return [search, all, len(queryset)]


class BookAdmin(admin.ModelAdmin):
    actions = ["touch"]

    def touch(self, request, queryset) -> None:
        pass


@pytest.fixture(scope="module")
def own():
    admin_site = admin.AdminSite(name="admin")
    admin_site.register(Book, BookAdmin)
    own = MCPSite("own", admin_site=admin_site)
    own.register(Tag, TagExposure)
    return own


@pytest.fixture
def root(own):
    return request_of(make_superuser(), own)


def tool_of(request, model, name):
    return ActionTool(request.mcp.site.exposures[model].get_actions(request)[name])


def tags(*names):
    return [Tag.objects.create(name=name).pk for name in names or ("a", "b")]


def test_H136_a_tool_is_for_those_who_may_run_its_action():
    actions = site.exposures[Book].get_actions(request_of(make_superuser()))
    publish = ActionTool(actions["publish"])
    viewer = request_of(make_user("viewer", "testapp.view_book"))
    blind = request_of(make_user("blind", "testapp.publish_book"))
    outsider = request_of(make_user("outsider", "testapp.view_book", "testapp.publish_book", staff=False))
    publisher = request_of(make_user("publisher", "testapp.view_book", "testapp.publish_book"))
    assert [publish.has_permission(request) for request in (viewer, blind, outsider, publisher)] == [
        *[False, False, False, True]
    ]
    assert [RUN.has_permission(request) for request in (viewer, outsider)] == [True, False]
    # Called all the same, it is refused like an action that does not exist.
    text = refusal(publish, viewer, pks=[make_book().pk])
    assert text == refusal(RUN, viewer, model="testapp.book", action="nothing", pks=[1])


def test_H152_only_reading_actions_remain_in_read_only_mode(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    pks = tags("a")
    assert not RUN.has_permission(root)
    assert tool_of(root, Tag, "look").has_permission(root)
    append = tool_of(root, Tag, "append")
    assert not append.has_permission(root)
    assert "no such action. Valid: look, find." in refusal(append, root, pks=pks, text="!")


def test_H151_hints_say_what_is_known(root):
    hints = {
        name: tool_of(root, Tag, name).definition()["annotations"]["destructiveHint"] for name in TagExposure.actions
    }
    assert hints == {"append": False, "drop": True, "look": False, "find": False}
    # Of code that says nothing the worst is assumed.
    assert tool_of(root, Book, "touch").definition()["annotations"]["destructiveHint"] is True


def test_the_schema_of_a_tool_is_flat_and_names_its_rows(root):
    schema = tool_of(root, Tag, "append").definition()["inputSchema"]
    assert list(schema["properties"]) == ["pks", "filters", "text", "times", "confirm_token"]
    assert schema["required"] == ["text"]
    assert schema["type"] == "object"


def test_what_all_tools_of_actions_take_is_declared_by_run_action_and_taken_by_each(root):
    tags()
    tool = tool_of(root, Tag, "append")
    declared = RunAction().input_schema["properties"].keys() - tool.input_schema["properties"].keys()
    assert {"search", "all", "idempotency_key"} < declared
    # A client that checks arguments itself lets them pass.
    assert "additionalProperties" not in tool.input_schema
    assert call(tool, root, all=True, text="!")["confirmation_required"]


def test_a_form_is_declared_where_a_page_can_be_shown_with_the_fields_of_the_page(root):
    properties = tool_of(root, Book, "touch").input_schema["properties"]
    assert "form" not in properties, "it says that it returns None alone"
    assert "confirm_token" in properties
    admin_site = admin.AdminSite(name="admin")
    admin_site.register(Book, RefundAdmin)
    made = MCPSite("asks", admin_site=admin_site)
    made.register(Tag, AskingExposure)
    request = request_of(make_superuser("other"), made, scopes=SCOPES)
    form = tool_of(request, Book, "refund").input_schema["properties"]["form"]
    assert form == {"type": "object", "additionalProperties": True, "description": "reason* late|lost, comment, to*"}
    assert tool_of(request, Tag, "ship").input_schema["properties"]["form"]["description"] == "door*"


def test_a_parameter_cannot_bear_the_name_of_an_argument_of_the_tool():
    class Clashing(ModelExposure):
        actions = ["tag"]

        @action
        def tag(self, request, queryset, *, pks: str):
            pass

    with pytest.raises(ImproperlyConfigured, match="cannot have a parameter named pks"):
        ActionTool(FunctionAction(Clashing(Tag, site), "tag"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("publish", "publish_testapp_book"),
        ("Publish", r"publish_testapp_book_[0-9a-f]{8}"),
        ("x" * 50, r"x{31}_[0-9a-f]{8}"),
        ("veröffentlichen", r"ver_ffentlichen_testapp_book_[0-9a-f]{8}"),
    ],
)
def test_names_of_tools_are_short_and_plain(name, expected):
    found = action_tool_name(name, Book._meta)
    assert re.fullmatch(expected, found)
    assert re.fullmatch("[a-z0-9_]{1,40}", found)
    assert action_tool_name(name, Book._meta) == found


def test_names_that_are_cut_stay_apart():
    assert action_tool_name("x" * 50, Book._meta) != action_tool_name("x" * 51, Book._meta)
    assert action_tool_name("x" * 50, Book._meta) != action_tool_name("x" * 50, Author._meta)


def test_the_default_site_offers_the_actions_as_tools():
    make_author()
    names = {tool.name for tool in site.get_tools(request_of(make_superuser(), scopes=frozenset({"mcp:write"})))}
    assert {"publish_testapp_book", "withdraw_testapp_book", "export_testapp_book", "run_action"} <= names


def test_annotations_and_arguments_tell_what_an_action_does():
    make_author()
    offered = MCPClient(make_superuser()).tools()
    tools = {tool["name"]: tool for tool in offered}
    looks, writes = tools["export_testapp_book"], tools["publish_testapp_book"]
    # An action that needs only the permission to view is not confirmed: some clients ask by the hint alone.
    assert looks["annotations"]["destructiveHint"] is True
    assert looks["inputSchema"]["properties"].keys() == Selection.PICKING.keys()
    assert writes["annotations"]["destructiveHint"] is False
    assert writes["inputSchema"]["properties"].keys() == Selection.PICKING.keys() | {"confirm_token"}
    # Nothing but the project's own word makes it one that a token for reading may run.
    with pytest.raises(MCPError, match="403"):
        MCPClient(make_superuser("reader"), scopes=["mcp:read"]).call("export_testapp_book", all=True)


def test_an_export_of_a_query_asks_nothing():
    make_book(title="Ada's", isbn="1")
    for more in ({}, {"confirm_token": "", "form": {}}):
        result = MCPClient(make_superuser(f"root{len(more)}")).call("export_testapp_book", all=True, **more)
        assert result.structured["file"]["text"] == "1,Ada's\n"


def test_a_parameter_with_the_name_of_a_way_to_pick_rows_is_the_actions_own(root):
    pks = tags()
    tool = tool_of(root, Tag, "find")
    assert {"pks", "filters"} < tool.input_schema["properties"].keys()
    assert call(tool, root, pks=pks, search="a", all=True)["result"] == ["a", True, 2]
    # run_action keeps them apart.
    arguments = {"model": "testapp.tag", "action": "find", "search": "b", "arguments": {"search": "x"}}
    assert call(RUN, root, **arguments)["result"] == ["x", False, 1]


def test_a_tool_of_an_action_runs_on_all_rows_of_a_query(root):
    tags("a", "b", "ba")
    tool = tool_of(root, Tag, "append")
    question = call(tool, root, search="b", text="!")
    assert (question["rows"], question["objects"]) == (2, ["b", "ba"])
    assert call(tool, root, search="b", text="!", confirm_token=question["confirm_token"])["rows"] == 2
    assert sorted(Tag.objects.values_list("name", flat=True)) == ["a", "b!", "ba!"]


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_121_over_the_wire_all_rows_are_those_that_the_caller_may_see(version):
    user = make_user("seller", "testapp.view_book", "testapp.change_book", "testapp.publish_book")
    mine, shared = make_book("Mine", owner=user), make_book("Shared")
    theirs = make_book("Theirs", owner=make_superuser())
    client = MCPClient(user, version=version)
    question = client.call("publish_testapp_book", all=True).structured
    assert question["objects"] == ["Mine", "Shared"]
    assert "Theirs" not in str(question)
    done = client.call("publish_testapp_book", all=True, confirm_token=question["confirm_token"])
    assert done.structured["rows"] == 2
    statuses = [Book.objects.get(pk=book.pk).status for book in (mine, shared, theirs)]
    assert statuses == ["published", "published", "draft"]


def test_77_a_client_that_asks_its_user_is_asked_before_all_rows_are_touched():
    make_book("Dune")
    root = make_superuser()
    declined = MCPClient(root, answers={"_confirm": None}).call("publish_testapp_book", all=True)
    assert declined.is_error
    assert Book.objects.get().status == "draft"
    assert MCPClient(root, answers={"_confirm": True}).call("publish_testapp_book", all=True).structured["done"]
    assert Book.objects.get().status == "published"


# Few tokens


class Shelving(ModelExposure):
    fields = ["name"]
    actions = ["shelve", "unshelve", "count"]

    @action(destructive=False)
    def shelve(self, request, queryset, *, room: Annotated[str, Param("Where they stand, by " + "the plan " * 20)]):
        """Put them on a shelf."""

    @action(destructive=False)
    def unshelve(self, request, queryset, *, room: Annotated[str, Param("Where they stand, by " + "the plan " * 20)]):
        """Take them off."""
        queryset.update(name=room)

    @action(permissions=["view"], read_only=True)
    def count(self, request, queryset, *, room: str = ""):
        """Count them."""


def test_what_an_action_requires_stands_in_its_description():
    shelving = MCPSite("shelving")
    shelving.register(Tag, Shelving)
    tools = {tool.name: tool for tool in shelving.get_tools(request_of(make_superuser(), shelving, scopes=SCOPES))}
    assert tools["shelve_testapp_tag"].description == "Put them on a shelf.\nRuns on rows of testapp.tag. Needs room."
    assert tools["count_testapp_tag"].description == "Count them.\nRuns on rows of testapp.tag."


class ReasonForm(forms.Form):
    reason = forms.ChoiceField(choices=[("late", "Too late"), ("lost", "Lost")])
    comment = forms.CharField(required=False)
    version = forms.CharField(widget=forms.HiddenInput)
    to = forms.ModelChoiceField(Tag.objects)


class PickForm(ActionForm):
    shelf = forms.CharField()
    note = forms.CharField(required=False)


class RefundAdmin(admin.ModelAdmin):
    actions = ["refund", "wipe"]
    action_form = PickForm

    def refund(self, request, queryset):
        return HttpResponse(ReasonForm().as_p())

    refund.mcp_form = ReasonForm

    @admin.action(permissions=["delete"])
    def wipe(self, request, queryset):
        return HttpResponse(ReasonForm().as_p())

    wipe.mcp_form = ReasonForm


class AskingExposure(ModelExposure):
    fields = ["name"]
    actions = ["ship"]

    @action(destructive=False)
    def ship(self, request, queryset, *, carrier: str, door: Annotated[str, Ask("Which door?")]):
        """Ship them."""


def test_what_an_action_asks_for_stands_in_its_description_and_that_of_its_model(django_assert_num_queries):
    admin_site = admin.AdminSite(name="admin")
    admin_site.register(Book, RefundAdmin)
    made = MCPSite("asks", admin_site=admin_site)
    made.register(Tag, AskingExposure)
    root = request_of(make_superuser(), made, scopes=SCOPES)
    Tag.objects.create(name="a secret row")
    told = {name: tool_of(root, Book, name).description for name in ("refund", "wipe")}
    about = "Runs on rows of testapp.book. Needs shelf. Asks for reason, to"
    assert told == {"refund": f"Refund\n{about} first.", "wipe": f"Wipe\n{about}, confirmation first."}
    assert tool_of(root, Tag, "ship").description == (
        "Ship them.\nRuns on rows of testapp.tag. Needs carrier. Asks for door first."
    )
    # A definition is everybody's: no row is read for it.
    with django_assert_num_queries(0):
        assert "secret" not in str(tool_of(root, Book, "refund").definition())
    payload = Overview(access_of(root)[made.exposures[Book]]).in_short()
    assert (
        payload["actions"] == "refund(shelf*, note) asks for reason and to, wipe(shelf*, note) asks for reason and to"
    )
    refund, *_ = Description(access_of(root)[made.exposures[Book]]).in_full()["actions"]
    assert (refund["required"], refund["asks_for"]) == (["shelf"], ["reason", "to"])


def test_long_schemas_that_are_equal_are_told_once():
    shelving = MCPSite("shelving")
    shelving.register(Tag, Shelving)
    request = request_of(make_superuser(), shelving, scopes=SCOPES)

    def listed(caller):
        tools = {tool.name: tool.definition() for tool in shelving.get_tools(caller)}
        return {name: tool["inputSchema"]["properties"]["room"] for name, tool in tools.items() if "_testapp_" in name}

    found = listed(request)
    assert "the plan" in found["shelve_testapp_tag"]["description"]
    assert found["unshelve_testapp_tag"] == {"type": "string", "description": "As in shelve_testapp_tag"}
    assert found["count_testapp_tag"]["type"] == "string"
    assert listed(request) == found
    # It is the list that refers: the tool takes what it took, and alone it is told in full.
    tag = Tag.objects.create(name="t")
    tool = shelving.get_tool(request, "unshelve_testapp_tag")
    assert "the plan" in tool.definition()["inputSchema"]["properties"]["room"]["description"]
    call(tool, request, pks=[tag.pk], room="attic")
    assert Tag.objects.get().name == "attic"
    detail = call(DescribeModel(), request, model="testapp.tag", detail=True)["actions"]
    assert [item["arguments"] if item["name"] == "unshelve" else "" for item in detail] == [
        "",
        "Same as shelve",
        "",
    ]


def test_a_tool_of_an_action_costs_few_characters():
    """About four characters a token; arguments that all such tools have are described in run_action."""
    for tool in site.get_tools(request_of(make_superuser(), scopes=SCOPES)):
        if isinstance(tool, ActionTool):
            assert len(json.dumps(tool.definition())) < 650
