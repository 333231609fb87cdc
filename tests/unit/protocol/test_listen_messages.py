"""``subscriptions/listen``: what is asked for, and the messages of the stream."""

import json
from dataclasses import replace
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result

from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.listen_messages import ListenMessages
from mcp_django.protocol.messages import Id
from tests.protocol_messages import MODERN, accepted, modern_body, modern_headers
from tests.protocol_schemas import check_wire

pytestmark = pytest.mark.one_django

KEY = "io.modelcontextprotocol/subscriptionId"
ORDER, INVOICE = "django://shop/order/1", "django://shop/invoice/1"


def asked(**notifications: Any) -> dict[str, Any]:
    return {"notifications": notifications}


def messages(identifier: Id) -> ListenMessages:
    call = accepted(modern_body("subscriptions/listen", asked()), modern_headers("subscriptions/listen"))
    return ListenMessages(replace(call, id=identifier))


@pytest.mark.parametrize(
    ("wanted", "lists", "uris"),
    [
        (asked(), set(), ()),
        (asked(toolsListChanged=True), {"tools"}, ()),
        (asked(promptsListChanged=True, resourcesListChanged=True), {"prompts", "resources"}, ()),
        (asked(toolsListChanged=False, promptsListChanged=True), {"prompts"}, ()),
        (asked(resourceSubscriptions=[]), set(), ()),
        (asked(resourceSubscriptions=[ORDER]), set(), (ORDER,)),
        (asked(resourceSubscriptions=[INVOICE, ORDER, INVOICE, ORDER]), set(), (INVOICE, ORDER)),
        (asked(toolsListChanged=True, taskStatus=["a"], resourceUpdates=7), {"tools"}, ()),
    ],
)
def test_the_filter_says_which_lists_and_resources(wanted: Any, lists: set[str], uris: tuple[str, ...]) -> None:
    assert ListenMessages.read_filter(wanted) == (lists, uris)


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": True},
        *(asked(toolsListChanged=value) for value in (1, 0, "true", "yes", None, [], {})),
        asked(promptsListChanged="on"),
        asked(resourcesListChanged=1.0),
        asked(resourceSubscriptions=None),
        asked(resourceSubscriptions=ORDER),
        asked(resourceSubscriptions={ORDER: True}),
        asked(resourceSubscriptions=[ORDER, 1]),
        asked(resourceSubscriptions=[None]),
        asked(resourceSubscriptions=[[ORDER]]),
    ],
)
def test_106_a_filter_of_the_wrong_types_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match="notifications"):
        ListenMessages.read_filter(wanted)


@pytest.mark.parametrize(
    ("wanted", "ids"), [(asked(), ()), (asked(taskIds=[]), ()), (asked(taskIds=["b", "a", "b"]), ("b", "a"))]
)
def test_the_filter_names_tasks(wanted: Any, ids: tuple[str, ...]) -> None:
    assert ListenMessages.read_task_ids(wanted) == ids


@pytest.mark.parametrize(
    "ids", [None, "a", {"a": True}, ["a", 1], [""], ["a\0"], [str(number) for number in range(101)]]
)
def test_what_are_no_ids_of_tasks_is_refused(ids: Any) -> None:
    with pytest.raises(InvalidParams, match="taskIds"):
        ListenMessages.read_task_ids(asked(taskIds=ids))


def test_110_the_first_message_says_what_is_honoured() -> None:
    wire = json.loads(messages(1).acknowledged({"tools", "resources"}, (INVOICE, ORDER)))
    assert wire == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "_meta": {KEY: 1},
            "notifications": {
                "toolsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": [INVOICE, ORDER],
            },
        },
    }
    check_wire(MODERN, "SubscriptionsAcknowledgedNotification", wire)


def test_110_what_is_not_honoured_is_left_out() -> None:
    wire = json.loads(messages("a").acknowledged(frozenset(), ()))
    assert wire["params"] == {"_meta": {KEY: "a"}, "notifications": {}}
    check_wire(MODERN, "SubscriptionsAcknowledgedNotification", wire)


@pytest.mark.parametrize("identifier", ["", "a", 0, 7])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/tools/list_changed", {}),
        ("notifications/prompts/list_changed", {}),
        ("notifications/resources/list_changed", {}),
        ("notifications/resources/updated", {"uri": ORDER}),
    ],
)
def test_110_every_message_says_whose_it_is(method: str, params: dict[str, Any], identifier: str | int) -> None:
    wire = json.loads(messages(identifier).tagged(method, params))
    assert wire == {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": {KEY: identifier}}}
    assert type(wire["params"]["_meta"][KEY]) is type(identifier)
    check_wire(MODERN, "ServerNotification", wire)


def test_110_other_meta_of_a_message_stays_and_the_original_too() -> None:
    params = {"uri": ORDER, "_meta": {"a": 1, KEY: "forged"}}
    wire = json.loads(messages(7).tagged("notifications/resources/updated", params))
    assert wire["params"]["_meta"] == {"a": 1, KEY: 7}
    assert params["_meta"] == {"a": 1, KEY: "forged"}


@pytest.mark.parametrize("server", [None, {"name": "tests", "version": "1"}])
def test_110_a_stream_that_the_server_ends_ends_with_the_response(server: Any) -> None:
    wire = json.loads(messages(1).ended(server))
    assert (wire["jsonrpc"], wire["id"]) == ("2.0", 1)
    assert wire["result"]["resultType"] == "complete"
    assert wire["result"]["_meta"][KEY] == 1
    assert wire["result"]["_meta"].get("io.modelcontextprotocol/serverInfo") == server
    check_wire(MODERN, "SubscriptionsListenResult", wire["result"])
    assert serialize_server_result("subscriptions/listen", MODERN, wire["result"]) == wire["result"]


def test_a_request_that_passes_the_schema_may_still_be_refused() -> None:
    body = modern_body("subscriptions/listen", asked(toolsListChanged="yes"))
    call = accepted(body, modern_headers("subscriptions/listen"))
    with pytest.raises(InvalidParams, match="toolsListChanged"):
        ListenMessages.read_filter(call.params)
