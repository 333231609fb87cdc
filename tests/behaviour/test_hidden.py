"""What an exposure hides stays hidden on the ways that lead around it.

A field that is left out is not guessed by search, nor by the order of what is computed from it; rows that are left out
are not told by the choices of a filter, nor lost by a write of who does not see them; names of hidden fields are in no
message. (The plain ways, such as filters, are tested with each of them.)
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db.models import QuerySet

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Profile, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
QUERY, GET, UPDATE, DESCRIBE, AGGREGATE = (
    QueryRecords(),
    GetRecord(),
    UpdateRecord(),
    DescribeModel(),
    AggregateRecords(),
)


class AuthorAdmin(admin.ModelAdmin):
    list_display = ["name", "masked", "token"]
    search_fields = ["name", "^email"]

    @admin.display(ordering="email")
    def masked(self, author: Author) -> str:
        return "*"

    @admin.display(ordering="secret_token")
    def token(self, author: Author) -> str:
        return "*"


class IsbnFilter(admin.SimpleListFilter):
    """Makes choices of the rows, as the documentation of Django has it."""

    title = "ISBN"
    parameter_name = "isbn_is"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(book.isbn, book.title) for book in model_admin.get_queryset(request)]

    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(isbn=self.value()) if self.value() else queryset


class ValuesFilter(admin.AllValuesFieldListFilter):
    """One of the project's own."""


class BookAdmin(admin.ModelAdmin):
    list_display = ["title"]
    search_fields = ["title", "author__email"]
    list_filter = [IsbnFilter, ("title", ValuesFilter)]


class SomeTags(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="hidden")


class SomeAuthors(ModelExposure):
    fields = ("name",)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="Hidden")


class OwnBooks(AdminExposure):
    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(owner=request.user)


@pytest.fixture
def site() -> MCPSite:
    admin_site = admin.AdminSite("hidden")
    admin_site.register(Author, AuthorAdmin)
    admin_site.register(Book, BookAdmin)
    return MCPSite(admin_site=admin_site)


def titles(request: MCPRequest, model: str = "testapp.book", **arguments: Any) -> list[Any]:
    return [row[1] for row in call(QUERY, request, model=model, **arguments)["rows"]]


@pytest.mark.parametrize("options", [{"exclude": ["email"]}, {"fields": ["name", "masked"]}], ids=["exclude", "fields"])
def test_row_112_the_admins_search_does_not_look_into_a_field_that_is_left_out(site: MCPSite, options: Any) -> None:
    request = request_of(make_superuser(), site)
    make_book("Found", author=make_author("Ada", email="canary@example.org"))
    authors = {"model": "testapp.author", "fields": ["name"], "search": "canary"}
    assert titles(request, **authors) == ["Ada"]
    assert titles(request, search="canary", fields=["title"]) == ["Found"]
    site.register(Author, AdminExposure, **options)
    request = request_of(request.user, site)
    assert titles(request, **authors) == []
    assert titles(request, **{**authors, "search": "ada"}) == ["Ada"]
    # Nor from elsewhere.
    assert titles(request, search="canary", fields=["title"]) == []
    assert titles(request, search="found", fields=["title"]) == ["Found"]


def test_row_112_no_column_is_sorted_by_what_is_left_out_or_secret(site: MCPSite) -> None:
    make_author("Ada", email="z@example.org")
    make_author("Bob", email="a@example.org")
    request = request_of(make_superuser(), site)
    authors = {"model": "testapp.author", "fields": ["name"]}
    assert titles(request, **authors, ordering="masked") == ["Bob", "Ada"]
    assert "cannot be ordered by 'token'" in refusal(QUERY, request, **authors, ordering="token")
    site.register(Author, AdminExposure, exclude=["email"])
    request = request_of(request.user, site)
    assert "cannot be ordered by 'masked'" in refusal(QUERY, request, **authors, ordering="masked")


def test_row_121_choices_of_the_sidebar_are_made_of_the_rows_of_the_exposure(site: MCPSite) -> None:
    user = make_superuser()
    make_book("Mine", isbn="111", owner=user)
    make_book("canary", isbn="999")
    site.register(Book, OwnBooks)
    request = request_of(user, site)
    for name in ("isbn_is", "title"):
        message = refusal(QUERY, request, model="testapp.book", filters={name: {"x": 1} if name == "title" else "x"})
        assert "999" not in message
        assert "canary" not in message
    described = str(call(DESCRIBE, request, model="testapp.book", detail=True))
    assert "111" in described
    assert "999" not in described
    assert "canary" not in described
    assert titles(request, filters={"isbn_is": "111"}) == ["Mine"]


@pytest.mark.parametrize("name", ["author__name", "^author__name", "tags__name", "author__name__startswith"])
def test_row_121_a_search_through_a_relation_finds_nothing_by_hidden_rows(name: str) -> None:
    site = MCPSite()
    site.register(Author, SomeAuthors)
    site.register(Tag, SomeTags)
    site.register(Book, ModelExposure, fields=["title", "author", "tags"], search_fields=["title", name])
    tags = [Tag.objects.create(name=text) for text in ("hidden", "seen", "seen too")]
    make_book("a", author=make_author("Hidden")).tags.add(tags[0])
    make_book("b", author=make_author("Seen")).tags.set(tags)
    request = request_of(make_superuser(), site)
    assert titles(request, search="hidden") == []
    assert titles(request, search="Hidden") == []
    assert titles(request, search="Seen") == ["b"]
    assert titles(request, search="a") == ["a"]
    user = make_user("u", "testapp.view_book")
    assert titles(request_of(user, site), search="seen") == []
    assert titles(request_of(user, site), search="b") == ["b"]


class SomeAuthorsAdmin(admin.ModelAdmin):
    list_display = ["name"]
    exclude = ["email"]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(name="Hidden")


class SearchedAdmin(admin.ModelAdmin):
    list_display = ["title", "author"]
    exclude = ["isbn"]
    search_fields = [
        "title",
        "^isbn",
        "author__name",
        "author__email",
        "tags__name",
        "loans__borrower",
        "owner__username",
    ]


class ClosedAdmin(admin.ModelAdmin):
    mcp_expose = False


@pytest.mark.parametrize("term", ["Hidden", "canary@", "999", "covert", "borrowed", "somebody"])
def test_row_112_the_admins_search_finds_nothing_by_what_the_caller_could_not_read(term: str) -> None:
    admin_site = admin.AdminSite("searched")
    for model, model_admin in ((Book, SearchedAdmin), (Author, SomeAuthorsAdmin), (Tag, None), (Loan, None)):
        admin_site.register(model, model_admin or admin.ModelAdmin)
    admin_site.register(User, ClosedAdmin)
    owner = User.objects.create(username="somebody")
    book = make_book("Found", isbn="999", author=make_author("Hidden", email="canary@example.org"), owner=owner)
    book.tags.add(Tag.objects.create(name="covert"))
    Loan.objects.create(book=book, borrower="borrowed", due=datetime(2026, 1, 1, tzinfo=UTC))
    other = make_book("Other", author=make_author("Seen", email="canary@example.com"))
    other.tags.add(Tag.objects.create(name="overt"))
    site = MCPSite(admin_site=admin_site)
    member = request_of(make_user("u", "testapp.view_book", "testapp.view_author", staff=True), site)
    root = request_of(make_superuser(), site)
    # A column of the model itself that no page shows is searched, as in the admin.
    own = ["Found"] if term == "999" else []
    assert titles(member, search=term, fields=["title"]) == own
    assert titles(root, search=term, fields=["title"]) == (["Found"] if term in ("covert", "borrowed") else own)
    assert call(AGGREGATE, member, model="testapp.book", search=term)["rows"] == [[len(own)]]
    assert titles(member, search="seen", fields=["title"]) == ["Other"]
    assert titles(root, search="overt other", fields=["title"]) == ["Other"]


def test_a_search_in_nothing_that_the_caller_could_read_is_refused() -> None:
    admin_site = admin.AdminSite("unsearched")
    options = {
        "list_display": ["title"],
        "fields": ["title"],
        "search_fields": ["isbn", "data", "author__secret_token"],
    }
    admin_site.register(Book, type("IsbnAdmin", (admin.ModelAdmin,), options))
    closed = MCPSite(admin_site=admin_site)
    closed.register(Book, AdminExposure, exclude=["isbn"])
    request = request_of(make_superuser(), closed)
    assert "no text search" in refusal(QUERY, request, model="testapp.book", search="9")
    assert "no text search" in refusal(AGGREGATE, request, model="testapp.book", search="9")
    declared = MCPSite(admin_site=admin_site)
    declared.register(Book, AdminExposure, search_fields=["isbn"])
    make_book("Found", isbn="999")
    assert titles(request_of(request.user, declared), search="999", fields=["title"]) == ["Found"]


class OwnedAdmin(admin.ModelAdmin):
    list_display = ["title", "owner"]
    search_fields = ["title", "owner__username", "=owner__email", "owner__password", "author__secret_token"]


class FewUsersAdmin(UserAdmin):
    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(username="ada")


def test_the_search_looks_at_users_for_those_who_may_view_them_in_the_admin_and_for_nobody_else() -> None:
    admin_site = admin.AdminSite("owned")
    admin_site.register(Book, OwnedAdmin)
    admin_site.register(User, UserAdmin)
    ada = User.objects.create(username="ada", email="a@lace.example", password="zanzibar")
    make_book("Found", owner=ada, author=make_author("A", secret_token="zanzibar"))
    make_book("Plain")
    site = MCPSite(admin_site=admin_site)
    viewer = make_user("viewer", "testapp.view_book", "auth.view_user", staff=True)
    member = make_user("member", "testapp.view_book", staff=True)
    for user in (make_superuser(), viewer):
        for term in ("ada", "a@lace.example"):
            assert titles(request_of(user, site), search=term, fields=["title"]) == ["Found"]
        assert titles(request_of(user, site), search="zanzibar", fields=["title"]) == []
        assert "not_searched" not in call(DESCRIBE, request_of(user, site), model="testapp.book", detail=True)
    asked: dict[str, Any] = {"model": "testapp.book", "fields": ["title"]}
    answers = [call(QUERY, request_of(member, site), **asked, search=term) for term in ("ada", "nobody")]
    assert answers[0] == answers[1]
    assert answers[0]["hint"].startswith("nothing matches the search, which does not look into owner for you;")
    assert titles(request_of(member, site), **asked, search="plain") == ["Plain"]
    assert call(DESCRIBE, request_of(member, site), model="testapp.book", detail=True)["not_searched"] == ["owner"]
    assert call(DESCRIBE, request_of(member, site), model="testapp.book")["may"] == "view search, no search in owner"
    # Nor where the admin keeps some users from its own list, or the project has closed the model to clients.
    for kind in (FewUsersAdmin, ClosedAdmin):
        admin_site.unregister(User)
        admin_site.register(User, kind)
        closed = MCPSite(admin_site=admin_site)
        assert titles(request_of(viewer, closed), **asked, search="ada") == []
    assert titles(request_of(viewer, closed), **asked, search="plain") == ["Plain"]


def test_row_121_a_search_that_may_look_nowhere_finds_nothing() -> None:
    site = MCPSite()
    site.register(Author, SomeAuthors)
    site.register(Book, ModelExposure, fields=["title", "author"], search_fields=["author__name"])
    make_book("a", author=make_author("Seen"))
    assert titles(request_of(make_superuser(), site), search="seen") == ["a"]
    assert titles(request_of(make_user("u", "testapp.view_book"), site), search="seen") == []
    assert titles(request_of(make_user("v", "testapp.view_book"), site), search="other") == []


def test_row_125_a_declared_order_through_a_model_that_the_caller_may_not_view_is_not_there() -> None:
    site = MCPSite()
    site.register(Author, SomeAuthors)
    site.register(Book, ModelExposure, fields=["title", "author"], sortable_by=["title", "author__name"])
    make_book("a")
    assert titles(request_of(make_superuser(), site), ordering="author__name") == ["a"]
    request = request_of(make_user("u", "testapp.view_book"), site)
    message = refusal(QUERY, request, model="testapp.book", ordering="author__name")
    assert message == refusal(QUERY, request, model="testapp.book", ordering="author__nope").replace("__nope", "__name")


@pytest.mark.parametrize(
    ("values", "left"),
    [([1], ["hidden", "t1"]), ([], ["hidden"]), (None, ["hidden"]), ([1, 2], ["hidden", "t1", "t2"])],
    ids=["one", "none", "null", "two"],
)
def test_row_121_rows_that_the_caller_does_not_see_stay_linked(values: Any, left: list[str]) -> None:
    site = MCPSite()
    site.register(Tag, SomeTags)
    site.register(Book, ModelExposure, fields=["title", "tags"])
    tags = [Tag.objects.create(name=name) for name in ("t1", "t2", "hidden")]
    book = make_book("a")
    book.tags.set([tags[0], tags[2]])
    keys = None if values is None else [tags[number - 1].pk for number in values]
    result = call(UPDATE, request_of(make_superuser(), site), model="testapp.book", pk=book.pk, values={"tags": keys})
    assert list(book.tags.values_list("name", flat=True)) == left
    assert "hidden" not in str(result)


def test_row_112_a_default_order_by_a_hidden_column_is_not_named() -> None:
    site = MCPSite()
    site.register(Profile, ModelExposure, fields=["website"], ordering=["biography"])
    for number in range(2):
        Profile.objects.create(author=make_author(), biography="x" * 4_000 + str(number))
    found = call(QUERY, request_of(make_superuser(), site), model="testapp.profile", limit=1)
    assert "cannot be paged" in found["hint"]
    assert "biography" not in str(found)


def test_row_128_the_history_does_not_name_hidden_fields() -> None:
    site = MCPSite(admin_site=admin.site)
    site.register(Author, AdminExposure, exclude=["email"])
    root, author = make_superuser(), make_author()

    def say(message: Any) -> None:
        LogEntry.objects.log_actions(root.pk, [author], CHANGE, change_message=message)

    say([{"changed": {"fields": ["Email"]}}])
    say([{"changed": {"fields": ["Name", "Email", "Secret token"]}}, {"added": {"name": "Profile", "object": "x"}}])
    say("By hand.")
    found = call(GET, request_of(root, site), model="testapp.author", pk=author.pk, history=True)["history"]
    assert {entry["message"] for entry in found} == {
        "By hand.",
        "Changed Name. Added Profile “x”.",
        "No fields changed.",
    }
