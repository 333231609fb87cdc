"""``create_upload``: who is offered it, and what it gives."""

import pytest
from django.contrib import admin

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.tickets import Ticket
from mcp_django.emulation.uploads import Upload
from mcp_django.exceptions import ToolError
from mcp_django.testing import MCPClient
from mcp_django.tools.create_upload import CreateUpload
from tests.factories import make_superuser, make_user
from tests.fileapp.admin import files_admin
from tests.fileapp.models import Manual, Page
from tests.testapp.models import Author, Book
from tests.tool_calls import call, request_of

pytestmark = pytest.mark.django_db

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
ENDPOINT = "http://testserver/mcp"


@pytest.fixture
def offered(settings):
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": MEMORY}


def site_with(*models):
    site = MCPSite("own", admin_site=None)
    for model in models:
        site.register(model, ModelExposure, fields="__all__")
    return site


def may(user, site, **options):
    return CreateUpload().has_permission(request_of(user, site, **{"resource": ENDPOINT, **options}))


def names(client):
    return [tool["name"] for tool in client.tools()]


def test_it_is_listed_where_there_is_a_storage_for_it(settings):
    client = MCPClient(make_superuser())
    assert "create_upload" not in names(client)
    refused = client.send("tools/call", {"name": "create_upload", "arguments": {}}).json()
    assert "error" in refused
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": MEMORY}
    assert "create_upload" in names(client)


def test_it_is_there_for_those_who_may_write_a_file(offered):
    site = site_with(Book, Author)
    for permissions, verdict in (
        (["testapp.view_book"], False),
        (["testapp.view_book", "testapp.delete_book"], False),
        (["testapp.view_author", "testapp.change_author"], False),
        (["testapp.view_book", "testapp.add_book"], True),
        (["testapp.view_book", "testapp.change_book"], True),
        (["testapp.add_book", "testapp.view_author"], False),
    ):
        user = make_user("-".join(permissions), *permissions)
        assert may(user, site) is verdict, permissions
    assert "create_upload" not in names(MCPClient(make_superuser("reader"), scopes=["mcp:read"]))


def test_a_file_in_an_inline_counts(offered):
    class PageInline(admin.TabularInline):
        model = Page

    class ManualAdmin(admin.ModelAdmin):
        fields = ["title"]
        inlines = [PageInline]

    own = admin.AdminSite("own")
    own.register(Manual, ManualAdmin)
    assert may(make_superuser(), MCPSite("own", admin_site=own))
    assert may(make_superuser("second"), MCPSite("own", admin_site=files_admin))


def test_it_is_not_there_where_nothing_can_be_sent(offered, settings):
    user, site = make_superuser(), site_with(Book)
    assert may(user, site)
    assert not may(user, site, resource="")
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert not may(user, site)


def test_it_gives_a_url_and_a_handle_of_this_caller(offered):
    request = request_of(make_superuser(), site_with(Book), resource=ENDPOINT)
    made, other = call(CreateUpload(), request), call(CreateUpload(), request)
    assert made["upload"] != other["upload"]
    assert (made["method"], made["max_bytes"], made["expires_in"]) == ("PUT", 5 * 1024 * 1024, 600)
    start, _, text = made["url"].rpartition("/")
    assert start == f"{ENDPOINT}/uploads"
    ticket = Ticket.read("own", "uploads", text)
    assert ticket is not None
    assert ticket.about == (Upload.of(request, made["upload"]).name,)
    with pytest.raises(ToolError, match="Unknown argument"):
        CreateUpload().call(request, {"path": "/etc/passwd"})
