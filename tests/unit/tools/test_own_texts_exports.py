"""Exports as resources: read by the user and client that asked for them, as long as they could ask for them now."""

import base64
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django.models import Export
from mcp_django.operating.switches import set_switch
from mcp_django.testing import MCPClient, MCPError
from tests.exporting import export_of, with_storage
from tests.factories import make_book, make_superuser, make_user
from tests.testapp.admin import BookAdmin
from tests.testapp.models import Book

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def storage(settings: Any) -> Any:
    return with_storage(settings)


@pytest.fixture
def reader() -> User:
    make_book("Dune", price="5.00")
    return make_user("reader", "testapp.view_book", "testapp.view_author")


def uri_of(user: Any, **arguments: Any) -> str:
    uri: str = export_of(user, **arguments).structured["uri"]
    return uri


def refusal(client: MCPClient, uri: str) -> str:
    """Return why both ways to read it are refused."""
    told = client.call("get_record", pk=uri)
    assert told.is_error
    with pytest.raises(MCPError) as caught:
        client.read(uri)
    assert "not found" in str(caught.value).lower()
    return told.text


def test_a_text_is_read_in_two_ways_without_a_mark_of_its_encoding(reader: User) -> None:
    uri = uri_of(reader)
    text = f"id,title,price\r\n{Book.objects.get().pk},Dune,5.00\r\n"
    assert MCPClient(reader).read(uri) == [{"uri": uri, "mimeType": "text/csv", "text": text}]
    assert MCPClient(reader).call("get_record", pk=uri).text == text
    assert MCPClient(reader).call("get_record", uri=uri).text == text


def test_a_workbook_is_read_as_bytes(reader: User) -> None:
    uri = uri_of(reader, format="xlsx")
    (contents,) = MCPClient(reader).read(uri)
    assert contents["mimeType"].endswith("spreadsheetml.sheet")
    assert base64.b64decode(contents["blob"])[:2] == b"PK"


def test_a_file_that_is_too_long_to_read_is_told_with_its_address(reader: User, settings: Any) -> None:
    told = export_of(reader).structured
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_FILE_BYTES": 10}
    said = MCPClient(reader).call("get_record", pk=told["uri"])
    assert said.is_error
    assert said.text.endswith(f"at most 10 can be read. The user can open it in a browser: {told['url']}")
    with pytest.raises(MCPError, match="at most 10 can be read"):
        MCPClient(reader).read(told["uri"])


def forget_permissions(user: User) -> None:
    user.user_permissions.remove(*user.user_permissions.filter(codename="view_book"))


def expire(user: User) -> None:
    Export.objects.update(expires=timezone.now())


def be_of_another_client(user: User) -> None:
    Export.objects.update(client_id="another")


def be_of_another_site(user: User) -> None:
    Export.objects.update(site="staff")


ENDS = [forget_permissions, expire, be_of_another_client, be_of_another_site]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_what_has_ended_is_not_there(reader: User, end: Any) -> None:
    uri = uri_of(reader)
    client = MCPClient(reader)
    assert client.read(uri)
    end(reader)
    missing = uri.replace(uri.partition("/")[0], f"export:{'0' * 32}")
    assert refusal(client, uri) == refusal(client, missing)


def test_a_column_that_is_hidden_now_takes_the_file_away(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = uri_of(reader)
    monkeypatch.setattr(BookAdmin, "list_display", ["title"])
    monkeypatch.setattr(BookAdmin, "get_fieldsets", lambda *args: [(None, {"fields": ["title"]})])
    refusal(MCPClient(reader), uri)


def test_it_is_its_users_alone(reader: User) -> None:
    refusal(MCPClient(make_superuser("eve")), uri_of(reader))


def test_a_token_that_was_taken_back_reads_nothing(reader: User) -> None:
    uri = uri_of(reader)
    client = MCPClient(reader)
    get_access_token_model().objects.all().delete()
    assert client.send("resources/read", {"uri": uri}).status_code == 401


@pytest.mark.parametrize("switched", [("model", "testapp.book"), ("tool", "export_records")])
def test_what_is_switched_off_is_refused_with_the_reason(reader: User, switched: tuple[str, str]) -> None:
    uri = uri_of(reader)
    set_switch(*switched, reason="Stocktaking", by="boss")
    with pytest.raises(MCPError, match="Stocktaking"):
        MCPClient(reader).read(uri)


@pytest.mark.parametrize(
    "end", ["/", "/x", "/../../etc/passwd", "/testapp.book-2026-01-01.csv?x", "/%2e%2e%2fsettings.py"]
)
def test_another_name_is_another_file(reader: User, end: str) -> None:
    uri = uri_of(reader)
    client = MCPClient(reader)
    refusal(client, uri.partition("/")[0] + end)
    refusal(client, uri + end)


@pytest.mark.parametrize("uri", ["export:", "export:/", f"export:{'0' * 32}", "export:%00/x", "export:" + "1" * 5000])
def test_no_uri_fails(reader: User, uri: str) -> None:
    refusal(MCPClient(reader), uri)
