from datetime import UTC, datetime

import pytest

from mcp_django.context.call_record import CallRecord
from mcp_django.models import SUBJECTS, Switch
from mcp_django.operating.switches import Off


def off(*pairs):
    return Off(tuple(Switch(kind=kind, target=target, reason="why") for kind, target in pairs))


def test_there_are_words_for_each_kind():
    assert set(SUBJECTS) == set(Switch.Kind.values)
    for kind in SUBJECTS:
        assert Switch(kind=kind, target="x").text.endswith(" is switched off.")


def test_callers_are_told_until_when_and_why():
    found = Switch(kind="tool", target="delete_record", reason="Audit", until=datetime(2027, 1, 2, 3, 4, tzinfo=UTC))
    assert found.text == "The tool delete_record is switched off until 2027-01-02 03:04 UTC. Reason given: Audit"
    refusal = found.refusal()
    assert (refusal.message, refusal.reason) == (found.text, "switch")


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("everything", "", True),
        ("user", "7", True),
        ("user", "8", False),
        ("client", "abc", True),
        ("client", "claude.ai", True),
        ("client", "Claude.AI", True),
        ("client", "ABC", False),
        ("client", "ai", False),
        ("service", "abc", False),
        ("tool", "7", False),
    ],
)
def test_a_person_is_kept_out_by_user_client_and_host(kind, target, expected):
    record = CallRecord(user="7", client_id="abc", client_host="claude.ai", kind="person")
    assert (off((kind, target)).caller(record) is not None) is expected


def test_a_service_is_kept_out_by_its_client_id():
    assert off(("service", "abc")).caller(CallRecord(client_id="abc", kind="service")).kind == "service"


def test_a_caller_without_a_name_is_not_one_whose_name_is_empty():
    assert off(("user", ""), ("client", ""), ("service", "")).caller(CallRecord(kind="service")) is None


def test_a_tool_is_off_by_its_name_or_because_it_writes():
    both = off(("tool", "get_record"), ("writes", ""))
    assert both.tool("get_record", read_only=True).kind == "tool"
    assert both.tool("create_record", read_only=False).kind == "writes"
    assert both.tool("query_records", read_only=True) is None


def test_a_model_is_off_alone_or_with_its_app():
    found = off(("model", "shop.order"), ("model", "billing"))
    assert found.model("shop.order").target == "shop.order"
    assert found.model("billing.invoice").target == "billing"
    assert found.model("shop.item") is None
    assert off(("tool", "shop.order")).model("shop.order") is None


def test_an_action_is_off_for_one_model_or_for_all():
    found = off(("action", "shop.order.cancel"), ("action", "delete_selected"))
    assert found.action("shop.order", "cancel").target == "shop.order.cancel"
    assert found.action("shop.item", "delete_selected").target == "delete_selected"
    assert found.action("shop.item", "cancel") is None
    assert off(("model", "cancel")).action("shop.item", "cancel") is None


def test_writes_are_off_alone_or_with_everything():
    assert off(("writes", "")).writes.kind == "writes"
    assert off(("everything", "")).writes.kind == "everything"
    assert off(("tool", "x")).writes is None
