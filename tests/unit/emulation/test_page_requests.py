"""Hooks of the admin get what a page would give them, and the caller's request is itself again afterwards."""

from typing import Any

import pytest
from django.contrib import messages

from mcp_django.emulation.page_requests import as_page
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_superuser
from tests.inlineapp.admin import OrderAdmin
from tests.inlineapp.factories import ORDER, make_order, shop_request
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]


def test_a_request_is_a_page_for_as_long_as_it_plays_one() -> None:
    request: Any = request_of(None)
    request.GET = {"a": "b"}
    before = dict(vars(request))
    with as_page(request, "GET"):
        assert (request.method, dict(request.GET), dict(request.POST)) == ("GET", {}, {})
        with as_page(request, "POST", [("x", "1")]):
            assert (request.method, request.POST["x"]) == ("POST", "1")
        assert (request.method, dict(request.POST)) == ("GET", {})
    assert vars(request) == before


def test_it_is_itself_again_after_a_failure() -> None:
    request: Any = request_of(None)
    before = dict(vars(request))
    with pytest.raises(ZeroDivisionError), as_page(request, "GET"):
        request.session["a"] = 1 / 0
    assert vars(request) == before


@pytest.mark.django_db
def test_row_145_what_hooks_say_reaches_the_caller_and_is_stored_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def save_model(self: Any, request: Any, obj: Any, form: Any, change: bool) -> None:
        request.session["last"] = obj.number
        self.message_user(request, "Stock is low.", messages.WARNING)
        obj.save()

    monkeypatch.setattr(OrderAdmin, "save_model", save_model)
    request = shop_request(make_superuser())
    said = [{"level": "warning", "text": "Stock is low."}]
    assert call(CreateRecord(), request, **ORDER, values={"number": "1"})["messages"] == said
    order = make_order("2")
    assert call(UpdateRecord(), request, **ORDER, pk=order.pk, values={"number": "3"})["messages"] == said
    assert "session" not in vars(request)
    assert "_messages" not in vars(request)

    def delete_model(self: Any, request: Any, obj: Any) -> None:
        self.message_user(request, f"Gone, {request.POST['post']}.")
        obj.delete()

    monkeypatch.setattr(OrderAdmin, "delete_model", delete_model)
    token = call(DeleteRecord(), request, **ORDER, pk=order.pk)["confirm_token"]
    deleted = call(DeleteRecord(), request, **ORDER, pk=order.pk, confirm_token=token)
    assert deleted["messages"] == [{"level": "info", "text": "Gone, yes."}]
    order = make_order("5")
    monkeypatch.undo()
    assert "messages" not in call(UpdateRecord(), request, **ORDER, pk=order.pk, values={"number": "4"})
