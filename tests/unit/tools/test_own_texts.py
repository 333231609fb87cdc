"""The text that explains how to ask. That its calls run is for the tests of the example project."""

import pytest

from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.own_texts import TEXT, URI
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db


def test_the_text_is_listed_named_in_the_instructions_and_read_in_two_ways():
    client = MCPClient(make_superuser())
    assert URI in [item["uri"] for item in client.request("resources/list")["resources"]]
    assert URI in client.request("server/discover")["instructions"]
    [contents] = client.request("resources/read", uri=URI)["contents"]
    assert contents == {"uri": URI, "mimeType": "text/markdown", "text": TEXT}
    assert client.call("get_record", pk=URI).text == client.call("get_record", uri=URI).text == TEXT


def test_who_may_view_nothing_is_told_nothing():
    client = MCPClient(make_user("nobody"))
    assert client.request("resources/list")["resources"] == []
    with pytest.raises(MCPError):
        client.request("resources/read", uri=URI)
