"""Calls that are kept, and made later for their caller."""

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from mcp_django.context.request import local_request
from mcp_django.exceptions import ToolError
from mcp_django.protocol.eras import Call, classify
from mcp_django.server.stored_calls import StoredCall
from mcp_django.sites import site
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db


def stored(**arguments: Any) -> StoredCall:
    request = local_request(site)
    request.user = make_superuser()
    return StoredCall.of(request, "get_record", arguments)


def test_the_call_is_what_its_client_has_sent() -> None:
    call = classify(stored(pk=1).body, None)
    assert isinstance(call, Call)
    assert call.params["name"] == "get_record"
    assert call.params["arguments"] == {"pk": 1}


def test_the_path_is_that_of_the_endpoint_wherever_the_request_stands() -> None:
    request = local_request(site)
    request.user = make_superuser()
    request.mcp.resource = "https://shop.example/mcp"
    request.path_info = request.path = "/admin/testapp/book/"
    assert StoredCall.of(request, "get_record", {}).data["path"] == "/mcp"


def test_a_user_who_is_there_and_active_is_its_caller() -> None:
    call = stored()
    user = make_superuser("other")
    assert call.user(user.pk) == user
    user.is_active = False
    user.save()
    with pytest.raises(ToolError, match="not active"):
        call.user(user.pk)


def test_a_call_of_nobody_is_made_only_where_the_site_is_open_to_all(settings: Any) -> None:
    call = stored()
    with pytest.raises(ToolError):
        call.user(None)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "AUTHENTICATION_CLASSES": []}
    assert isinstance(call.user(None), AnonymousUser)
