"""Hooks of a `ModelAdmin` that take a row or fail: they are asked as the admin asks them, and cost what is theirs."""

import json
from typing import Any, ClassVar

import pytest
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.urls import include, path
from django.utils import timezone

from mcp_django import MCPSite
from mcp_django.runtime.failing_hooks import call_hook
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Profile, Tag

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
LOAN, BOOK, AUTHOR, TAG = "testapp.loan", "testapp.book", "testapp.author", "testapp.tag"


class LogAdmin(admin.ModelAdmin):
    """The rows of a log, which nobody adds: each hook of the page takes the row that it is about."""

    list_display = ["borrower"]
    search_fields = ["borrower"]
    rowless: ClassVar[list[str]] = []

    def has_add_permission(self, request: Any) -> bool:
        return False

    def _kind(self, hook: str, obj: Any) -> str:
        if obj is None:
            self.rowless.append(hook)
        return obj.book.status.upper()

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        return [(self._kind("get_fieldsets", obj), {"fields": ["book", "borrower", "due"]})]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        self._kind("get_readonly_fields", obj)
        return [field.name for field in obj._meta.fields]

    def get_form(self, request: Any, obj: Any = None, **kwargs: Any) -> Any:
        self._kind("get_form", obj)
        return super().get_form(request, obj, **kwargs)

    def get_inlines(self, request: Any, obj: Any = None) -> Any:
        self._kind("get_inlines", obj)
        return []


class ReadOnlyAdmin(admin.ModelAdmin):
    """The admin of which all fields are read-only, as many projects have it."""

    def has_add_permission(self, request: Any) -> bool:
        return False

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return [field.name for field in obj.__class__._meta.fields]


class ProfileInline(admin.StackedInline):
    model = Profile


class BrokenAdmin(admin.ModelAdmin):
    """Nothing that its project wrote works."""

    def _fail(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("nothing works")

    get_fieldsets = get_readonly_fields = get_form = get_inlines = get_actions = _fail
    get_list_display = get_list_filter = get_search_fields = get_sortable_by = _fail
    get_list_select_related = has_add_permission = _fail
    inlines = [ProfileInline]


class ClosedAdmin(admin.ModelAdmin):
    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        raise RuntimeError("nobody knows")

    def get_queryset(self, request: Any) -> Any:
        raise RuntimeError("no rows")


class BookAdmin(admin.ModelAdmin):
    list_display = ["title", "author"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).select_related("author")


class PersonalProfiles(admin.TabularInline):
    """Rows of which others than superusers see no biography, and a column that names who asks."""

    model = Profile
    readonly_fields = ["asked_by"]
    exclude = ["website"]
    request: Any = None

    def get_queryset(self, request: Any) -> Any:
        self.request = request
        return super().get_queryset(request)

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "biography" and not request.user.is_superuser:
            return None
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def asked_by(self, profile: Profile) -> str:
        return self.request.user.username


class PersonalAdmin(admin.ModelAdmin):
    """An admin that is another one for each caller."""

    list_display = ["name"]
    inlines = [PersonalProfiles]

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "email" and not request.user.is_superuser:
            return None
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def get_actions(self, request: Any) -> Any:
        def greet(modeladmin: Any, request: Any, queryset: Any) -> None:
            """Nothing."""

        return {"greet": (greet, "greet", f"Greet as {request.user.username}")}


library = admin.AdminSite(name="library")
library.register(Loan, LogAdmin)
library.register(Tag, ClosedAdmin)
library.register(Author, BrokenAdmin)
library.register(Book, BookAdmin)
library.register(Profile, ReadOnlyAdmin)
site = MCPSite("hooks", admin_site=library)
office = admin.AdminSite(name="office")
office.register(Author, PersonalAdmin)
office.register(User, UserAdmin)
people = MCPSite("people", admin_site=office)
people.register(User)
urlpatterns = [
    path("admin/", library.urls),
    path("office/", office.urls),
    path("mcp", site.urls),
    path("people", people.urls),
    path("", include("mcp_django.oauth.urls")),
]


@pytest.fixture
def client() -> MCPClient:
    LogAdmin.rowless.clear()
    return MCPClient(make_superuser())


def told(client: MCPClient, tool: str, **arguments: Any) -> Any:
    result = client.call(tool, **arguments)
    assert not result.is_error, result.text
    return result.structured


def test_the_rows_of_a_log_are_described_queried_searched_counted_and_read(client: MCPClient) -> None:
    loan = Loan.objects.create(book=make_book("Found"), borrower="Ann", due=timezone.now())
    Loan.objects.create(book=make_book("Other"), borrower="Bob", due=timezone.now())
    for detail in (False, True):
        found = json.dumps(told(client, "describe_model", model=LOAN, detail=detail))
        assert "due" in found
        assert "borrower" in found
    assert told(client, "query_records", model=LOAN, fields=["book", "due"])["returned"] == 2
    assert told(client, "query_records", model=LOAN, search="Ann", filters={"book": loan.book_id})["returned"] == 1
    assert told(client, "aggregate_records", model=LOAN, group_by=["borrower"])["rows"]
    row = told(client, "get_record", model=LOAN, pk=loan.pk)
    assert row["fields"]["borrower"] == "Ann"
    assert "due" in row["fields"]
    assert "Ann" in client.read(f"django://testapp/loan/{loan.pk}")[0]["text"]
    assert "Ann" in client.read("django://testapp/loan")[0]["text"]
    assert "due" in client.read("django://testapp/loan/schema")[0]["text"]
    assert LogAdmin.rowless == []


def test_who_may_not_add_is_asked_about_with_a_row_also_where_there_is_none(client: MCPClient) -> None:
    assert "borrower" in told(client, "describe_model", model=LOAN)["fields"]
    assert told(client, "query_records", model=LOAN)["returned"] == 0
    assert LogAdmin.rowless == []


def test_a_page_of_which_all_is_read_only_shows_all(client: MCPClient) -> None:
    profile = Profile.objects.create(author=make_author(), biography="Long", website="https://example.com")
    fields = told(client, "describe_model", model="testapp.profile")["fields"]
    assert "biography" in fields
    assert "website" in fields
    assert told(client, "query_records", model="testapp.profile", fields=["website"])["rows"][0][1]
    assert told(client, "get_record", model="testapp.profile", pk=profile.pk)["fields"]["biography"] == "Long"
    refused = client.call("update_record", model="testapp.profile", pk=profile.pk, values={"biography": "x"})
    assert refused.is_error


def test_hooks_that_fail_end_no_read_and_are_logged_once(
    client: MCPClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests before this one had the same failures.
    monkeypatch.setattr("mcp_django.runtime.failing_hooks._logged", set())
    author = make_author("Ann")
    book = make_book("Found", author=author)
    for _ in range(2):
        assert LOAN in json.dumps(told(client, "list_models"))
        assert client.tools()
        assert told(client, "describe_model", model=f"{BOOK},{AUTHOR}")["returned"] == 2
        assert told(client, "query_records", model=BOOK)["rows"][0][1:] == ["Found", [author.pk, "Ann"]]
        assert told(client, "query_records", model=AUTHOR)["returned"] == 1
        assert told(client, "get_record", model=AUTHOR, pk=author.pk)["label"] == "Ann"
        assert told(client, "get_record", model=BOOK, pk=book.pk)["fields"]["title"] == "Found"
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("get_list_display of testapp.author" in text for text in logged)
    assert len(logged) == len(set(logged))


def test_a_model_of_which_nobody_can_say_who_views_it_is_not_there(client: MCPClient) -> None:
    assert TAG not in json.dumps(told(client, "list_models"))
    assert client.call("query_records", model=TAG).is_error
    book = make_book()
    book.tags.add(Tag.objects.create(name="hidden"))
    assert "hidden" not in json.dumps(told(client, "get_record", model=BOOK, pk=book.pk))


def test_nothing_that_hooks_work_out_for_one_user_is_kept_for_another() -> None:
    author = make_author("Ann", email="ann@example.com")
    Profile.objects.create(author=author, biography="Private")
    permissions = [f"testapp.{verb}_{model}" for verb in ("view", "change") for model in ("author", "profile")]
    first, second = make_superuser(), make_user("second", *permissions)
    for user, sees in ((first, True), (second, False), (first, True)):
        client = MCPClient(user, path="/people")
        for detail in (False, True):
            described = json.dumps(told(client, "describe_model", model=AUTHOR, detail=detail))
            assert ("email" in described, "biography" in described) == (sees, sees)
        assert client.call("query_records", model=AUTHOR, fields=["email"]).is_error is not sees
        assert client.call("query_records", model=AUTHOR, filters={"email": "x"}).is_error is not sees
        row = json.dumps(told(client, "get_record", model=AUTHOR, pk=author.pk))
        assert ("ann@example.com" in row, "Private" in row) == (sees, sees)
        assert f'"asked_by": "{user.username}"' in row
        greeting = next(tool for tool in client.tools() if tool["name"] == "greet_testapp_author")
        assert f"Greet as {user.username}" in greeting["description"]


def test_the_add_page_and_the_change_page_are_both_described_where_they_differ() -> None:
    client, user = MCPClient(make_superuser(), path="/people"), make_user("ann")
    fields = told(client, "describe_model", model="auth.user")
    assert "password1" not in json.dumps(fields)
    named = {text.split()[0]: text for text in fields["fields"].split(", ")}
    assert named["username*"] == "username*"
    assert named["first_name"] == "first_name update only"
    assert named["is_active"] == "is_active boolean update only"
    assert named["last_login"] == "last_login datetime update only"
    full = told(client, "describe_model", model="auth.user", detail=True)
    lines = {line.partition(":")[0]: line for line in full["fields"]}
    assert "optional update only" in lines["is_active"]
    assert "required" in lines["username"]
    assert "is_active" in full["update_schema"]["properties"]
    assert "is_active" not in full["input_schema"]["properties"]
    values = {"first_name": "Ann", "is_active": True, "last_login": "2026-01-01T12:00:00Z"}
    row = told(client, "update_record", model="auth.user", pk=user.pk, values=values)
    assert row["fields"]["first_name"] == "Ann"
    assert row["fields"]["last_login"] == "2026-01-01T12:00:00Z"
    assert told(client, "query_records", model="auth.user", filters={"last_login__gte": "2026-01-01"})["returned"] == 1


def test_who_may_only_change_is_told_nothing_of_the_add_page() -> None:
    client = MCPClient(make_user("clerk", "auth.view_user", "auth.change_user"), path="/people")
    found = told(client, "describe_model", model="auth.user", detail=True)
    assert "update_schema" not in found
    assert "is_active" in found["input_schema"]["properties"]
    assert "update only" not in json.dumps(found["fields"])


def test_what_refuses_is_not_logged_and_what_the_database_says_passes(caplog: pytest.LogCaptureFixture) -> None:
    from django.core.exceptions import PermissionDenied
    from django.db import OperationalError

    def refuse() -> int:
        raise PermissionDenied

    def away() -> int:
        raise OperationalError("gone")

    assert call_hook("a.b", "refuse", refuse, default=7) == 7
    assert not caplog.records
    with pytest.raises(OperationalError):
        call_hook("a.b", "away", away, default=7)
