"""ViewSets over MCP: each call is compared with the same call of a REST client who is the same user."""

import itertools
import json

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.cache import cache
from django.db import connection, transaction
from django.test import override_settings

from mcp_django import ToolError
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.context.confirmation import REFUSED
from mcp_django.context.tool_results import ToolResult
from mcp_django.exceptions import NotFound
from mcp_django.oauth.resource_urls import resource_url
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.testing import MCPError
from mcp_django.tools.generic import ToolSet
from tests.factories import make_superuser, make_user
from tests.question_rounds import DECLINE, ELICITS, YES, again, calling, only, send
from tests.restapp import views
from tests.restapp.calls import confirmed, make_order, mcp, names, rest, schema, tool_of
from tests.restapp.models import Client, Item, Order
from tests.restapp.site import site

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.one_server,
    pytest.mark.django_db,
    pytest.mark.urls("tests.restapp.urls"),
]


@pytest.fixture
def ann():
    return make_user("ann", staff=False)


@pytest.fixture
def bob():
    return make_user("bob", staff=False)


@pytest.fixture
def root():
    return make_superuser()


def unknown(client, tool, **arguments):
    """Return the whole answer to a call of a tool that must not be there, and to one of a tool that is not."""
    with pytest.raises(MCPError) as first:
        client.call(tool, **arguments)
    with pytest.raises(MCPError) as second:
        client.call("nonsense", **arguments)
    # The nearest names follow from the name that was sent and from the tools that this client is shown, alone.
    text, _, nearest = str(first.value).partition(". The nearest are ")
    listed = nearest.removesuffix(".'}").split(", ") if nearest else []
    assert {*listed} <= {*names(client)} - {tool}
    return text + ("'}" if nearest else ""), str(second.value).replace("nonsense", tool)


# The same verdicts


@pytest.mark.parametrize(
    ("tool", "arguments", "method", "path", "data"),
    [
        ("list_orders", {}, "get", "orders/", None),
        ("list_orders", {"page_size": 3}, "get", "orders/", {"page_size": 3}),
        ("list_orders", {"search": "B", "ordering": "-number"}, "get", "orders/?search=B&ordering=-number", None),
        ("list_orders", {"page": 9}, "get", "orders/?page=9", None),
        ("retrieve_orders", {"pk": "{mine}"}, "get", "orders/{mine}/", None),
        ("retrieve_orders", {"pk": "{theirs}"}, "get", "orders/{theirs}/", None),
        ("retrieve_orders", {"pk": "{hidden}"}, "get", "orders/{hidden}/", None),
        ("retrieve_orders", {"pk": 10**6}, "get", "orders/1000000/", None),
        ("create_orders", {"number": "new", "total": "12.50"}, "post", "orders/", {"number": "new", "total": "12.50"}),
        ("create_orders", {"number": "A1"}, "post", "orders/", {"number": "A1"}),
        ("create_orders", {"number": "n", "client": 99}, "post", "orders/", {"number": "n", "client": 99}),
        ("create_orders", {"number": "n", "status": "odd"}, "post", "orders/", {"number": "n", "status": "odd"}),
        ("create_orders", {"number": "n", "total": -1}, "post", "orders/", {"number": "n", "total": -1}),
        ("update_orders", {"pk": "{mine}", "number": "x"}, "put", "orders/{mine}/", {"number": "x"}),
        ("update_orders", {"pk": "{theirs}", "number": "x"}, "put", "orders/{theirs}/", {"number": "x"}),
        ("partial_update_orders", {"pk": "{mine}", "note": "x"}, "patch", "orders/{mine}/", {"note": "x"}),
        ("partial_update_orders", {"pk": "{mine}", "client": None}, "patch", "orders/{mine}/", {"client": None}),
        ("partial_update_orders", {"pk": "{theirs}", "note": "x"}, "patch", "orders/{theirs}/", {"note": "x"}),
        ("partial_update_orders", {"pk": "{hidden}", "note": "x"}, "patch", "orders/{hidden}/", {"note": "x"}),
        ("destroy_orders", {"pk": "{mine}"}, "delete", "orders/{mine}/", None),
        ("destroy_orders", {"pk": "{theirs}"}, "delete", "orders/{theirs}/", None),
        ("destroy_orders", {"pk": "{hidden}"}, "delete", "orders/{hidden}/", None),
        ("destroy_orders", {"pk": "{locked}"}, "delete", "orders/{locked}/", None),
        ("mark_paid_orders", {"pk": "{mine}"}, "post", "orders/{mine}/mark_paid/", None),
        ("mark_paid_orders", {"pk": "{theirs}"}, "post", "orders/{theirs}/mark_paid/", None),
        (
            "refund_orders",
            {"pk": "{mine}", "amount": "1.00", "reason": "late"},
            "post",
            "orders/{mine}/refund/",
            {"amount": "1.00", "reason": "late"},
        ),
        (
            "refund_orders",
            {"pk": "{mine}", "amount": "x", "reason": "none", "items": [{"quantity": -1}]},
            "post",
            "orders/{mine}/refund/",
            {"amount": "x", "reason": "none", "items": [{"quantity": -1}]},
        ),
        ("post_favourite_orders", {"pk": "{mine}"}, "post", "orders/{mine}/favourite/", None),
        ("delete_favourite_orders", {"pk": "{mine}"}, "delete", "orders/{mine}/favourite/", None),
        ("item_orders", {"pk": "{mine}", "item_pk": "{item}"}, "get", "orders/{mine}/items/{item}/", None),
        ("item_orders", {"pk": "{mine}", "item_pk": "x"}, "get", "orders/{mine}/items/x/", None),
        ("stats_orders", {}, "get", "orders/stats/", None),
        ("refused_orders", {}, "get", "orders/refused/", None),
        ("broken_orders", {}, "get", "orders/broken/", None),
        ("list_items", {"order_pk": "{mine}"}, "get", "orders/{mine}/items/", None),
        ("list_items", {"order_pk": "{theirs}"}, "get", "orders/{theirs}/items/", None),
        ("create_items", {"order_pk": "{mine}", "name": "Cup"}, "post", "orders/{mine}/items/", {"name": "Cup"}),
        ("create_items", {"order_pk": "{theirs}", "name": "Cup"}, "post", "orders/{theirs}/items/", {"name": "Cup"}),
    ],
)
def test_verdicts_are_those_of_the_rest_api(ann, bob, tool, arguments, method, path, data):
    rows = {
        "mine": make_order(ann, "A1", client=Client.objects.create(name="Zoe")),
        "theirs": make_order(bob, "B1"),
        "hidden": make_order(bob, "hidden1"),
        "locked": make_order(ann, "A2", locked=True),
    }
    pks = {name: row.pk for name, row in rows.items()}
    pks["item"] = Item.objects.create(order=rows["mine"], name="Pen").pk
    filled = {
        name: int(value.format(**pks)) if isinstance(value, str) and value.startswith("{") else value
        for name, value in arguments.items()
    }

    def state():
        orders = Order.objects.order_by("number").values_list("number", "note", "status", "owner", "total", "client")
        return list(orders), list(Item.objects.order_by("pk").values_list("name", "order"))

    before = state()
    with transaction.atomic():
        expected = rest(ann, method, path.format(**pks), data)
        left = state()
        transaction.set_rollback(True)
    assert state() == before
    client = mcp(ann)
    result = confirmed(client, tool, **filled) if method == "delete" else client.call(tool, **filled)
    assert result.is_error is (expected.status_code >= 400), (expected.status_code, result.text)
    assert state() == left
    assert "s3cret" not in result.text
    if not result.is_error and expected.content:
        shown = expected.json()
        for key, value in (shown if isinstance(shown, dict) else {"results": shown}).items():
            # A row that is made twice has two keys.
            if key not in ("next", "previous", "id"):
                assert result.structured[key] == value


def test_addresses_of_rows_are_those_of_the_rest_api(root):
    Client.objects.create(name="Zoe")
    expected = rest(root, "get", "clients/").json()
    assert expected["results"][0]["url"] == "http://testserver/api/clients/Zoe/"
    assert mcp(root).call("list_clients").structured["results"] == expected["results"]


@pytest.mark.parametrize("staff", [True, False])
def test_permissions_of_the_class_decide_what_is_listed(staff):
    user = make_user("ann", staff=staff)
    Client.objects.create(name="Zoe")
    status = rest(user, "get", "clients/").status_code
    listed = "list_clients" in names(mcp(user))
    assert (status, listed) == ((200, True) if staff else (403, False))


def test_row_136_what_the_permissions_refuse_is_an_unknown_tool_byte_for_byte(ann):
    first, second = unknown(mcp(ann), "list_clients")
    assert first == second
    first, second = unknown(mcp(ann), "audit_orders")
    assert first == second


def test_row_139_nobody_and_those_whom_a_permission_refuses_have_no_tool(ann):
    for name in ("list_orders", "create_orders", "list_clock"):
        assert tool_of(site, name, AnonymousUser())[0] is None
        assert tool_of(site, name, ann)[0] is not None


def test_row_125_a_view_that_is_refused_is_in_no_list(ann, root):
    client = mcp(ann)
    shown = json.dumps([client.tools(), client.request("resources/list"), client.request("resources/templates/list")])
    assert "list_clients" not in shown
    assert "rest://clients" not in shown
    assert "rest://clients" in json.dumps(mcp(root).request("resources/templates/list"))


# Identity


def test_row_186_the_view_gets_the_user_and_neither_token_nor_cookie(root):
    result = mcp(root).call("audit_orders")
    assert result.structured["auth"] is None
    assert result.structured["cookies"] == {}
    assert not {"Authorization", "Cookie"} & {*result.structured["headers"]}
    assert not [name for name in result.structured["headers"] if name.lower().startswith("mcp-")]


def test_the_authenticators_of_the_project_are_not_run(ann):
    # That of this view fails when it is run.
    assert mcp(ann).call("list_orders").structured["count"] == 0


def test_row_193_a_cached_view_does_not_show_one_caller_what_another_one_saw(ann, bob):
    first = [mcp(user).call("list_cached").structured["user"] for user in (ann, bob, ann)]
    assert first == ["ann", "bob", "ann"]


def test_the_context_of_the_serializer_is_that_of_the_view(ann, bob):
    mine, theirs = make_order(ann, "A1"), make_order(bob, "B1")
    assert mcp(ann).call("retrieve_orders", pk=mine.pk).structured["mine"] is True
    assert mcp(ann).call("retrieve_orders", pk=theirs.pk).structured["mine"] is False


# Arguments


def test_arguments_are_those_of_the_serializer_that_the_caller_has(ann, root):
    mine = schema(mcp(ann), "create_orders")
    assert mine["properties"].keys() == {"number", "client", "status", "total", "note"}
    assert mine["required"] == ["number"]
    assert schema(mcp(root), "create_orders")["properties"].keys() == {*mine["properties"], "locked"}
    assert schema(mcp(ann), "partial_update_orders")["required"] == ["pk"]
    assert schema(mcp(ann), "refund_orders")["required"] == ["pk", "amount", "reason"]


def test_row_147_what_the_serializer_does_not_take_is_refused_and_nothing_is_saved(ann, bob):
    order = make_order(ann, "A1")
    for name in ("id", "owner", "mine", "secret", "locked", "_state", "nonsense"):
        result = mcp(ann).call("create_orders", **{"number": "x", name: bob.pk})
        assert result.text.partition("Did you mean")[0].partition("Valid:")[0] == f"Unknown argument {name!r}. "
        assert mcp(ann).call("partial_update_orders", **{"pk": order.pk, name: bob.pk}).is_error
    assert list(Order.objects.values_list("number", "owner", "secret")) == [("A1", ann.pk, "s3cret")]


@pytest.mark.parametrize("name", ["secret", "owner", "nonsense", "client__name", "pk"])
def test_row_112_what_is_not_offered_is_no_filter_and_no_order(ann, name):
    make_order(ann, "A1")
    assert mcp(ann).call("list_orders", **{name: "x"}).text.startswith(f"Unknown argument {name!r}. ")
    result = mcp(ann).call("list_orders", ordering=f"-{name}")
    assert result.is_error
    assert result.text == f"Rows cannot be ordered by {name!r}. Valid: number, total."


@pytest.mark.parametrize(
    "pk",
    [2**63, 2**64, "9" * 90, -1, "1/mark_paid", "..", "1.0", "", "\x00", "é", [1]],
    ids=repr,
)
def test_row_123_odd_keys_lead_nowhere(ann, pk):
    make_order(ann, "A1")
    result = mcp(ann).call("retrieve_orders", pk=pk)
    assert (result.is_error, result.text) == (True, "Not found.")


def test_row_123_a_huge_integer_is_not_written_out(ann):
    tool, request = tool_of(site, "retrieve_orders", ann)
    with pytest.raises(NotFound):
        tool.call(request, {"pk": 10**4000})
    with pytest.raises(ToolError, match="a number that is too long"):
        tool.call(request, {"pk": 10**5000})
    tool, request = tool_of(site, "list_orders", ann)
    with pytest.raises(ToolError, match="page is out of range"):
        tool.call(request, {"page": 10**4000})


def test_null_and_ignored_arguments_count_as_left_out(ann):
    result = mcp(ann).call("list_orders", search=None, page=None, wait_for_previous=True)
    assert result.structured == {"count": 0, "results": []}


def test_row_121_rows_that_the_view_hides_are_not_there(ann, bob):
    hidden = make_order(bob, "hidden1")
    missing = mcp(ann).call("retrieve_orders", pk=10**6)
    for tool in ("retrieve_orders", "mark_paid_orders", "destroy_orders"):
        result = mcp(ann).call(tool, pk=hidden.pk)
        assert (result.is_error, result.text) == (True, missing.text)


def test_scopes_and_annotations_follow_the_methods(ann):
    reader = mcp(ann, scopes=["mcp:read"])
    found = {tool["name"]: tool["annotations"] for tool in reader.tools()}
    assert all(hints["readOnlyHint"] for hints in found.values())
    assert "list_orders" in found
    assert "create_orders" not in found
    assert reader.send("tools/call", {"name": "create_orders", "arguments": {"number": "x"}}).status_code == 403
    hints = {tool["name"]: tool["annotations"] for tool in mcp(ann).tools()}
    assert hints["create_orders"]["destructiveHint"] is False
    assert hints["destroy_orders"]["destructiveHint"] is True
    assert hints["update_orders"]["idempotentHint"] is True
    assert hints["mark_paid_orders"]["readOnlyHint"] is False


@override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "READ_ONLY": True})
def test_row_152_a_site_that_is_read_only_has_no_tool_that_writes(ann):
    client = mcp(ann)
    listed = client.tools()
    assert {tool["name"] for tool in listed} >= {"list_orders", "retrieve_orders", "stats_orders"}
    assert all(tool["annotations"]["readOnlyHint"] for tool in listed)
    for name in ("create_orders", "destroy_orders", "mark_paid_orders", "create_clock"):
        first, second = unknown(client, name, pk=1)
        assert first == second


def test_row_153_the_throttles_of_the_view_count(ann, bob):
    client = mcp(ann)
    assert [client.call("list_clock").is_error for _ in range(3)] == [False, False, True]
    text = client.call("create_clock", data={"a": 1}).text
    assert text.startswith("Too many calls. Wait ")
    assert text.endswith(" seconds, then repeat the call.")
    assert rest(ann, "get", "clock/").status_code == 429
    assert not mcp(bob).call("list_clock").is_error


def test_row_153_listing_the_tools_counts_for_no_throttle(ann):
    client = mcp(ann)
    for _ in range(4):
        assert "list_clock" in names(client)
    assert not client.call("list_clock").is_error


def test_row_153_a_deletion_that_asks_first_counts_as_two_calls(ann):
    assert confirmed(mcp(ann), "destroy_clock", pk=1).structured == {"deleted": True, "pk": 1}
    assert mcp(ann).call("destroy_clock", pk=1).text.startswith("Too many calls.")


@pytest.mark.parametrize("debug", [True, False])
def test_row_190_what_the_view_raises_is_not_told(ann, debug, settings):
    settings.DEBUG = debug
    text = mcp(ann).call("broken_orders").text
    assert text.startswith("The tool failed. Tell the operator the error id ")
    assert "secret" not in text
    assert "srv" not in text


# Deleting


def test_a_row_is_shown_before_it_is_deleted(ann):
    order = make_order(ann, "A1")
    preview = mcp(ann).call("destroy_orders", pk=order.pk).structured
    assert preview["shown"]["row"] == rest(ann, "get", f"orders/{order.pk}/").json()
    assert Order.objects.exists()
    result = mcp(ann).call("destroy_orders", pk=order.pk, confirm_token=preview["confirm_token"])
    assert result.structured == {"deleted": True, "pk": order.pk}
    assert not Order.objects.exists()


def test_row_137_a_confirmation_is_for_the_row_that_was_shown_and_counts_once(ann, bob):
    order, other = make_order(ann, "A1"), make_order(ann, "A2")
    token = mcp(ann).call("destroy_orders", pk=order.pk).structured["confirm_token"]
    assert mcp(ann).call("destroy_orders", pk=other.pk, confirm_token=token).text == REFUSED
    Order.objects.filter(pk=order.pk).update(note="changed")
    assert mcp(ann).call("destroy_orders", pk=order.pk, confirm_token=token).text == REFUSED
    Order.objects.filter(pk=order.pk).update(note="", owner=bob)
    refused = mcp(ann).call("destroy_orders", pk=order.pk, confirm_token=token)
    assert refused.text == "Permission denied. Only its owner may write it."
    assert Order.objects.count() == 2


def test_a_client_that_can_ask_its_user_does(ann):
    order = make_order(ann, "A1")
    client = mcp(ann, capabilities=ELICITS)
    params = calling("destroy_orders", pk=order.pk)
    asked = send(client, params)
    assert '"number":"A1"' in only(asked)[1]["message"]
    assert again(client, params, asked, DECLINE)["isError"] is True
    assert Order.objects.exists()
    done = again(client, params, send(client, params), YES)
    assert done["structuredContent"] == {"deleted": True, "pk": order.pk}
    assert not Order.objects.exists()


# Transactions


def test_a_refusal_rolls_back_where_the_project_says_atomic_requests(ann):
    assert mcp(ann).call("atomic_orders", data={"number": "kept"}).text == "Refused with HTTP status 409:\nNo more."
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert mcp(ann).call("atomic_orders", data={"number": "rolled back"}).is_error
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert list(Order.objects.values_list("number", flat=True)) == ["kept"]


# REST users


def test_the_class_is_as_it_was(ann):
    mcp(ann).tools()
    mcp(ann).call("list_orders")
    assert views.OrderViewSet.authentication_classes == [views.Explodes]
    assert views.UploadViewSet.renderer_classes[0].media_type == "text/html"
    assert rest(ann, "get", "orders/").json() == {"count": 0, "next": None, "previous": None, "results": []}


def test_a_view_that_reads_and_writes_no_json_does_for_mcp(ann):
    assert rest(ann, "post", "uploads/", {"title": "x"}).status_code == 415
    client = mcp(ann)
    assert schema(client, "create_uploads")["properties"].keys() == {"title"}
    assert client.call("create_uploads", title="x").structured == {"title": "x"}


def test_versions_and_nested_urls_reach_the_view(ann):
    assert mcp(ann).call("list_versioned").structured == {"version": "v1"}
    order = make_order(ann, "A1")
    mcp(ann).call("create_items", order_pk=order.pk, name="Cup")
    assert mcp(ann).call("list_items", order_pk=order.pk).structured["results"][0]["name"] == "Cup"


def test_titles_and_descriptions_come_from_the_view(ann):
    found = {tool["name"]: tool for tool in mcp(ann).tools()}
    assert found["list_orders"]["title"] == "List orders"
    assert "Orders of the shop." in found["list_orders"]["description"]
    assert found["mark_paid_orders"]["description"] == "Mark an order as paid."
    assert found["delete_favourite_orders"]["title"] == "Favourite, DELETE (orders)"
    assert "viewset that provides" not in json.dumps(list(found.values()))


# Whatever a client sends

# Views that fail for REST clients too: they look at nothing before they use it.
SLOPPY = {"atomic_orders", "broken_orders"}
ODD = [
    *([], {}, [[[]]], {"a": {"b": []}}, [{}], [None], "", " ", "\0", "\ud800", "é\u202e", "x" * 5_000, "' OR 1=1 --"),
    *(True, False, 0, -1, 1.5, 1e308, 2**31, 2**63, 2**64, 10**400, "9" * 400, "1e999", "NaN", "..", "%2e%2e/", "{}"),
]


@pytest.mark.parametrize("name", sorted(site._tools.keys() - SLOPPY))
def test_row_85_no_argument_makes_a_tool_fail(root, name):
    """Each argument in turn is something odd; the others are what they should be."""
    order = make_order(root, "A1")
    good = {
        **{"pk": order.pk, "order_pk": order.pk, "item_pk": 1, "name": "Zoe", "number": "A9", "title": "x"},
        **{"amount": "1", "reason": "late", "data": {"number": "A8"}},
    }
    tool, request = tool_of(site, name, root)
    if tool is None or name in ("run_action", *(kind.name for kind in ToolSet.GENERIC.value)):
        return
    properties = tool.for_caller(request).input_schema["properties"]
    required = tool.for_caller(request).input_schema.get("required", ())
    for argument, value in itertools.product([*properties, "nonsense"], ODD):
        arguments = {name: good[name] for name in required} | {argument: value}
        cache.clear()
        try:
            with transaction.atomic():
                result = tool.call(request, arguments)
                assert isinstance(result, ToolResult)
                transaction.set_rollback(True)
        except (ToolError, NotFound):
            continue


def test_tools_of_a_model_that_is_left_out_are_not_there(root):
    client = mcp(root)
    whole = set(names(client))
    facts = {Narrowing.FACT: {"models": [Item._meta.label_lower]}}
    token = issue_token(root, scopes=["mcp:read", "mcp:write"], resource=resource_url(None, "/rest"), facts=facts)
    client.headers["Authorization"] = f"Bearer {token}"
    sources = {tool.name: getattr(tool.route.viewset, "queryset", None) for tool in site.function_tools()}
    of_orders = {name for name, rows in sources.items() if rows is not None and rows.model is Order} & whole
    assert of_orders
    assert not of_orders.intersection(names(client))
    with pytest.raises(MCPError):
        client.call(min(of_orders))
