"""Hooks of an admin that ask where they are: on the page of the admin that does what the call does."""

import json

import pytest
from django.contrib import admin, messages
from django.core.handlers.asgi import ASGIHandler
from django.urls import include, path

from mcp_django import MCPSite, asgi
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db(transaction=True)

# What hooks were asked, and with which requests.
seen = []
requests = []
tenants = set()


class LogAdmin(admin.ModelAdmin):
    """A log: its rows go with what they belong to, and are not deleted, changed or acted on by themselves."""

    actions = ["stamp"]
    list_display = ["name"]

    def _is(self, request, page):
        match = request.resolver_match
        return match.url_name == f"testapp_author_{page}" and request.path.startswith("/office/testapp/author/")

    def _note(self, request, hook, obj=None):
        requests.append(request)
        match = request.resolver_match
        note = hook, match.view_name, request.path, match.kwargs.get("object_id"), obj.pk if obj else None
        tenants.add(match.kwargs.get("tenant"))
        if note not in seen:
            seen.append(note)

    def has_view_permission(self, request, obj=None):
        self._note(request, "view", obj)
        return True

    def has_add_permission(self, request):
        self._note(request, "add")
        return not self._is(request, "add")

    def has_change_permission(self, request, obj=None):
        self._note(request, "change", obj)
        return not (self._is(request, "change") and obj is not None and obj.name == "closed")

    def has_delete_permission(self, request, obj=None):
        self._note(request, "delete", obj)
        return not self._is(request, "delete")

    def get_queryset(self, request):
        self._note(request, "queryset")
        found = super().get_queryset(request)
        return found.exclude(name="archived") if self._is(request, "changelist") else found

    def get_actions(self, request):
        found = super().get_actions(request)
        return found if self._is(request, "changelist") else {}

    def stamp(self, request, queryset):
        """Stamp the rows."""
        self._note(request, request.method)
        self.message_user(request, "stamped", messages.SUCCESS)

    stamp.mcp_destructive = False  # type: ignore[attr-defined]


class LoanInline(admin.TabularInline):
    """Asks on whose page it is, which nothing else of its page does."""

    model = Loan
    fields = ["borrower", "due"]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(book=request.resolver_match.kwargs["object_id"])


class BookAdmin(admin.ModelAdmin):
    """What log rows belong to: an author here, so that deleting one deletes the other."""

    list_display = ["title"]
    inlines = [LoanInline]


office = admin.AdminSite("office")
office.register(Author, LogAdmin)
office.register(Book, BookAdmin)
office.register(Tag)
mcp = MCPSite("placed", admin_site=office)
admin.sites.all_sites.discard(office)
urlpatterns = [
    path("office/", office.urls),
    path("mcp", mcp.urls),
    path("t/<slug:tenant>/", include([path("mcp", mcp.urls)])),
    path("", include("mcp_django.oauth.urls")),
]


@pytest.fixture(autouse=True)
def nothing_seen(settings):
    settings.ROOT_URLCONF = __name__
    seen.clear()
    requests.clear()
    tenants.clear()


@pytest.fixture
def client():
    return MCPClient(make_superuser())


@pytest.fixture
def row(transactional_db):
    return make_author("one")


@pytest.fixture
def token(transactional_db):
    return issue_token(make_superuser(), scopes=["mcp:read"], resource="http://testserver/t/acme/mcp")


def notes(*hooks):
    return {note for note in seen if note[0] in hooks}


def test_an_inline_of_a_plain_admin_is_asked_on_the_page_of_its_row(client):
    book, _ = (make_book(title) for title in ("one", "two"))
    loan = Loan.objects.create(book=book, borrower="Ann", due="2026-01-01T00:00:00Z")
    Loan.objects.create(book=make_book("three"), borrower="Bob", due="2026-01-01T00:00:00Z")
    shown = client.call("get_record", model="testapp.book", pk=book.pk)
    assert [row["borrower"] for row in shown.structured["inlines"]["loans"]] == ["Ann"]
    values = {"loans": [{"pk": loan.pk, "borrower": "Cleo"}]}
    changed = client.call("update_record", model="testapp.book", pk=book.pk, values=values)
    assert not changed.is_error, changed.text
    assert [loan.borrower for loan in Loan.objects.order_by("pk")] == ["Cleo", "Bob"]


def test_a_log_is_not_deleted_where_its_page_refuses(client):
    row = make_author("one")
    answer = client.call("delete_record", model="testapp.author", pk=row.pk)
    assert answer.is_error
    assert "may view but not delete" in answer.text
    where = f"/office/testapp/author/{row.pk}/delete/"
    assert ("delete", "office:testapp_author_delete", where, str(row.pk), row.pk) in seen


def test_a_log_is_deleted_with_what_it_belongs_to(client):
    book = make_book()
    shown = client.call("delete_record", model="testapp.book", pk=book.pk)
    assert not shown.is_error, shown.text
    assert not client.call(
        "delete_record", model="testapp.book", pk=book.pk, confirm_token=shown.structured["confirm_token"]
    ).is_error


def test_what_the_admins_list_deletes_is_deleted_in_bulk(client):
    row = make_author("one")
    shown = client.call("delete_record", model="testapp.author", pks=[row.pk])
    assert not shown.is_error, shown.text
    where = "/office/testapp/author/"
    assert ("delete", "office:testapp_author_changelist", where, None, row.pk) in seen


def test_each_operation_is_on_its_own_page(client):
    row, closed = make_author("one"), make_author("closed")
    assert client.call("create_record", model="testapp.author", values={"name": "x"}).is_error
    assert ("add", "office:testapp_author_add", "/office/testapp/author/add/", None, None) in seen
    assert client.call("update_record", model="testapp.author", pk=closed.pk, values={"name": "x"}).is_error
    assert client.call("update_record", model="testapp.author", pks=[closed.pk], values={"name": "x"}).is_error
    answer = client.call("update_record", model="testapp.author", pk=row.pk, values={"name": "two"})
    assert not answer.is_error, answer.text
    assert client.call("get_record", model="testapp.author", pk=row.pk).structured["fields"]["name"] == "two"
    page = f"/office/testapp/author/{row.pk}/change/"
    changed = ("change", "office:testapp_author_change", page, str(row.pk), row.pk)
    assert changed in seen
    # A model is visible or not as its list says; its rows are looked for on their own pages.
    assert {note[2] for note in notes("queryset")} == {page, f"/office/testapp/author/{closed.pk}/change/"} | {
        "/office/testapp/author/"
    }


def test_lists_and_rows_are_those_of_their_pages(client):
    archived = make_author("archived")
    make_author("one")
    rows = client.call("query_records", model="testapp.author", fields=["name"]).structured["rows"]
    assert [row[-1] for row in rows] == ["one"]
    counted = client.call("aggregate_records", model="testapp.author", aggregates=["count"])
    assert counted.structured["rows"] == [[1]]
    assert client.call("get_record", model="testapp.author", pk=archived.pk).structured["label"] == "archived"
    assert "archived" in client.read(f"django://testapp/author/{archived.pk}")[0]["text"]
    assert "archived" not in client.read("django://testapp/author")[0]["text"]


def test_a_write_that_is_repeated_by_its_key_looks_for_the_row_on_its_own_page(client):
    archived = make_author("archived")
    asked = {"model": "testapp.author", "pk": archived.pk, "values": {"email": "a@x.example"}, "idempotency_key": "k"}
    first, second = (client.call("update_record", **asked) for _ in range(2))
    assert not first.is_error, first.text
    assert second.structured == first.structured


def test_actions_run_on_the_list(client):
    row = make_author("one")
    assert "stamp_testapp_author" in {tool["name"] for tool in client.tools()}
    done = client.call("stamp_testapp_author", pks=[row.pk])
    assert not done.is_error, done.text
    assert ("POST", "office:testapp_author_changelist", "/office/testapp/author/", None, None) in seen


@pytest.mark.parametrize("road", ["plain", "fast"])
async def test_what_the_url_of_the_endpoint_names_stays(road, row, token):
    application = asgi.get_asgi_application() if road == "fast" else ASGIHandler()
    headers = {"authorization": f"Bearer {token}", "mcp_protocol_version": "2025-11-25"}
    asked = Exchange(application, http_scope("/t/acme/mcp", **headers))
    params = {"name": "get_record", "arguments": {"model": "testapp.author", "pk": row.pk}}
    await asked.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert not json.loads((await asked.answer())[2])["result"].get("isError", False)
    # The call is over: the request is where it came in again.
    assert tenants == {"acme"}
    for request in requests:
        assert request.resolver_match.kwargs == {"tenant": "acme"}
        assert request.path == "/t/acme/mcp"
        assert request.resolver_match.view_name == "placed:endpoint"


def test_an_admin_without_code_of_its_own_is_not_asked_about():
    exposures = mcp.exposures_by_label
    assert exposures["testapp.author"].options.asks_where
    assert not exposures["testapp.tag"].options.asks_where


def test_without_pages_of_the_admin_a_request_stays_where_it_is(settings):
    settings.ROOT_URLCONF = "tests.unit.checks.test_oauth"
    row = make_author("one")
    request = request_of(make_superuser())
    before = request.path, request.resolver_match
    request.go_to(mcp.exposures_by_label["testapp.author"], "change", row.pk)
    assert (request.path, request.resolver_match) == before
