"""Resources within messages, as the caller would read them."""

import json

import pytest
from django.core.files.base import ContentFile

from mcp_django import site as default_site
from mcp_django.exceptions import NotFound
from mcp_django.protocol.errors import InvalidParams
from mcp_django.resources.function_resources import embed
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book

pytestmark = pytest.mark.django_db


def test_a_row_is_embedded_as_it_would_be_read():
    author = make_author("Ursula", secret_token="hidden value")
    found = embed(reader(make_superuser(), default_site), author)
    assert found.uri == f"django://testapp/author/{author.pk}"
    assert found.mime_type == "application/json"
    assert json.loads(found.body)["fields"]["name"] == "Ursula"
    assert "hidden value" not in found.body
    assert found.to_wire()["type"] == "resource"


def test_a_row_is_read_anew_among_those_of_the_caller():
    author = make_author("Ursula")
    author.name = "Changed and not saved"
    assert "Ursula" in embed(reader(make_superuser(), default_site), author).body


def test_125_a_row_that_the_caller_may_not_view_is_not_there():
    viewer = make_user("viewer", "testapp.view_book")
    hidden = make_book("Hidden", owner=make_user("other"))
    request = reader(viewer, default_site)
    for target in (hidden, hidden.author, Author(), Author(pk=999999), viewer):
        with pytest.raises(NotFound):
            embed(request, target)


def test_a_uri_of_this_server_is_embedded():
    book = make_book("Winter")
    book.cover.save("a.bin", ContentFile(b"\0\1"))
    site = site_with(Book)
    site.add_resource("shop://policy", lambda request: "Everything.", name="policy")
    request = reader(make_superuser(), site)
    assert json.loads(embed(request, "django://testapp/book").body)["rows"]
    assert embed(request, f"django://testapp/book/{book.pk}/cover").body == b"\0\1"
    assert embed(request, "shop://policy").body == "Everything."


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "http://127.0.0.1/", "django://auth/user/1", "", "shop://no"])
def test_162_any_other_uri_is_not_there(uri):
    with pytest.raises(NotFound):
        embed(reader(make_superuser(), default_site), uri)


def test_what_a_page_cannot_show_is_an_error():
    with pytest.raises(InvalidParams):
        embed(reader(make_superuser(), default_site), "django://testapp/book?ordering=nosuch")
