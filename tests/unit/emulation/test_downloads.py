"""Files of actions that are read after the call that made them."""

import logging

import pytest

from mcp_django.runtime.cache_and_rate_limits import cache
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_book, make_superuser, make_user

pytestmark = pytest.mark.django_db
VIEW = "testapp.view_book"


@pytest.fixture
def viewer():
    for number in range(40):
        make_book("x" * 190, isbn=str(number))
    return make_user("viewer", VIEW)


def exported(user, **options):
    return MCPClient(user, **options).call("export_testapp_book", all=True)


def test_a_file_is_read_as_a_resource_and_by_a_tool(viewer):
    made = exported(viewer)
    uri = made.structured["file"]["uri"]
    assert made.structured["file"]["bytes"] > 40 * 190
    assert "xxx" not in str(made.content)
    [contents] = MCPClient(viewer).request("resources/read", uri=uri)["contents"]
    assert (contents["uri"], contents["mimeType"], contents["text"].count("x" * 190)) == (uri, "text/csv", 40)
    for named in ({"pk": uri}, {"uri": uri}):
        assert MCPClient(viewer).call("get_record", **named).text == contents["text"]


def test_a_revision_without_links_names_the_file_in_text(viewer):
    made = exported(viewer, version="2024-11-05")
    assert [block["type"] for block in made.content] == ["text", "text"]
    assert "attachment:" in made.content[1]["text"]


def test_a_file_is_for_its_user_and_for_as_long_as_they_may_view_the_model(viewer):
    uri = exported(viewer).structured["file"]["uri"]

    root = MCPClient(make_superuser())
    with pytest.raises(MCPError):
        root.request("resources/read", uri=uri)
    assert "No such record" in root.call("get_record", pk=uri).text
    viewer.user_permissions.clear()
    with pytest.raises(MCPError):
        MCPClient(viewer).request("resources/read", uri=uri)


def test_a_cache_that_fails_sends_the_file_with_the_result(viewer, monkeypatch, caplog):
    def fail(*args):
        raise ConnectionError

    monkeypatch.setattr(cache, "set", fail, raising=False)
    with caplog.at_level(logging.WARNING, "mcp_django"):
        made = exported(viewer)
    assert made.content[1]["resource"]["text"].count("x" * 190) == 40
    assert "ConnectionError" in caplog.text
