"""What may be filtered on: names in allow-lists, never keywords of the ORM."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.orm.access import access_of
from mcp_django.orm.allowed_filters import AllowedFilter
from mcp_django.orm.ordering import Orderings
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_book, make_superuser, make_user
from tests.fieldapp.models import Guest, Passport
from tests.fileapp.models import Manual, Page
from tests.testapp.models import AudioBook, Author, Book, Loan, Tag
from tests.tool_calls import call, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]


@pytest.mark.django_db
class TestFilters:
    def test_row_112_a_hidden_field_and_no_field_are_alike(self) -> None:
        site = site_with(Book, Author, fields=["id", "author"])
        request, exposure = request_of(make_superuser(), site), site.exposures[Book]
        for name in ("title", "nothing", "author__secret_token", "author__name", "owner", "tags", "pk__in", "", "__"):
            assert AllowedFilter.find(access_of(request)[exposure], name) is None
            assert Orderings(access_of(request)[exposure]).key(name, descending=False) is None

    @pytest.mark.parametrize(
        "name", ["_connector", "_negated", "__or", "x" * 5000, "id;--", "id__gt__", "id%s", "\0", "?"]
    )
    def test_rows_115_116_a_keyword_of_the_orm_is_no_filter(self, name: str) -> None:
        site = site_with(Book)
        request = request_of(make_superuser(), site)
        assert AllowedFilter.find(access_of(request)[site.exposures[Book]], name) is None
        assert Orderings(access_of(request)[site.exposures[Book]]).key(name, descending=False) is None

    def test_declared_filters_narrow_to_what_they_name(self) -> None:
        declared: Mapping[str, Sequence[str]] = {"pages": ["gte"], "author__name": ["exact", "iexact"], "title": ["in"]}
        site = site_with(Book, fields=["pages", "author"], filter_fields=declared)
        request = request_of(make_superuser(), site)
        found = {name: lookups for name, (_, lookups) in AllowedFilter.all(access_of(request)[site.exposures[Book]])}
        # The title is not among the fields: a filter on it would tell what it holds.
        assert found == {"pages": ("gte",), "author__name": ("exact", "iexact")}
        assert AllowedFilter.find(access_of(request)[site.exposures[Book]], "author") is None

    def test_paths_of_the_admin_are_followed_as_far_as_the_caller_sees(self) -> None:
        site = MCPSite(admin_site=admin.site)
        exposure = site.exposures[Book]
        assert AllowedFilter.find(access_of(request_of(make_superuser(), site))[exposure], "tags__name") is not None
        member = make_user("u", "testapp.view_book")
        assert AllowedFilter.find(access_of(request_of(member, site))[exposure], "tags__name") is None

    def test_aliases_lead_to_the_visible_field(self) -> None:
        site = site_with(Book, fields=["author"])
        model = access_of(request_of(make_superuser(), site))[site.exposures[Book]]
        assert AllowedFilter.find(model, "author_id") == AllowedFilter.find(model, "author")
        assert AllowedFilter.find(model, "pk") == AllowedFilter.find(model, "id")
        assert AllowedFilter.find(model, "owner_id") is None

    def test_fields_of_the_admins_sidebar_are_open_though_they_are_no_columns(self) -> None:
        class Sidebar(admin.ModelAdmin):
            list_display = ("title",)
            fields = ("title",)
            list_filter = ("pages", ("active", admin.BooleanFieldListFilter), "tags", "author__secret_token")
            date_hierarchy = "published"

        class Secret(admin.ModelAdmin):
            list_display = fields = ("name",)
            list_filter = ("secret_token", "email")

        own = admin.AdminSite("own")
        own.register(Book, Sidebar)
        own.register(Author, Secret)
        site = MCPSite(admin_site=own)
        exposure = site.exposures[Book]
        request = request_of(make_superuser(), site)
        # The model of the tags is not exposed, and a secret is none to filter by.
        assert {name for name, _ in AllowedFilter.all(access_of(request)[exposure])} == {
            "id",
            "title",
            "pages",
            "active",
            "published",
        }
        assert {name for name, _ in AllowedFilter.all(access_of(request)[site.exposures[Author]])} == {
            "id",
            "name",
            "email",
        }
        found = AllowedFilter.find(access_of(request)[exposure], "published")
        assert found is not None
        assert {"year", "month", "day"} <= set(found[1])
        site.unregister(Book)
        site.register(Book, AdminExposure, fields=["title"])
        assert (
            AllowedFilter.find(access_of(request_of(make_superuser("b"), site))[site.exposures[Book]], "pages") is None
        )

    def test_a_declared_path_may_begin_with_a_relation_from_elsewhere(self) -> None:
        declared = {"loans__borrower": ["exact"], "audiobook__narrator": ["exact"], "loans__book__title": ["exact"]}
        site = site_with(Book, fields=["title"], filter_fields=declared)
        hidden = request_of(make_superuser(), site)
        assert list(AllowedFilter.all(access_of(hidden)[site.exposures[Book]])) == []
        site.register(Loan, ModelExposure, fields=["borrower"])
        site.register(AudioBook, ModelExposure, fields=["narrator"])
        request = request_of(make_superuser("b"), site)
        found = {
            name: (path.many, path.guards)
            for name, (path, _) in AllowedFilter.all(access_of(request)[site.exposures[Book]])
        }
        # Those of the loans are in the query of the loans themselves.
        assert found == {
            "loans__borrower": (True, ()),
            "audiobook__narrator": (False, ()),
            "loans__book__title": (True, ()),
        }
        assert AllowedFilter.find(access_of(request)[site.exposures[Book]], "loans") is None
        assert AllowedFilter.find(access_of(request)[site.exposures[Book]], "loans__due") is None

    def test_row_127_a_path_from_elsewhere_holds_by_visible_rows(self) -> None:
        book = make_book()
        make_book()
        gone = {"deleted": "2024-01-01T00:00:00Z"}
        for borrower, values in (("here", {}), ("here", {}), ("gone", gone)):
            Loan.objects.create(book=book, borrower=borrower, due="2024-01-01T00:00:00Z", **values)
        AudioBook.objects.create(title="Heard", author=book.author, isbn="x", price=5, narrator="N")
        declared = {"loans__borrower": ["exact"], "audiobook__narrator": ["exact", "icontains"]}
        site = site_with(Book, fields=["title"], filter_fields=declared)
        site.register(Loan, ModelExposure, fields=["borrower"])
        site.register(AudioBook, ModelExposure, fields=["narrator"])
        request = request_of(make_superuser(), site)

        def found(filters: object) -> list[str]:
            return [row[1] for row in call(QueryRecords(), request, model="testapp.book", filters=filters)["rows"]]

        assert found({"loans__borrower": "here"}) == [book.title]
        assert found({"loans__borrower": "gone"}) == []
        assert found({"audiobook__narrator": "N"}) == ["Heard"]
        assert len(found({"not": {"audiobook__narrator__icontains": "n"}})) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("hidden", [False, True])
def test_records_without_a_file_are_found_also_through_relations(hidden: bool) -> None:
    """A related row that is hidden has no file either, nor has one that is not there."""

    class Manuals(ModelExposure):
        fields = ["id", "picture"]

        def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(title="Hidden" if hidden else "")

    class Pages(ModelExposure):
        fields = ["id", "manual"]

    site = MCPSite(admin_site=None)
    site.register(Manual, Manuals)
    site.register(Page, Pages)
    for number, (title, picture) in enumerate([("Plain", ""), ("Drawn", "a.png"), ("Hidden", "b.png")]):
        manual = Manual.objects.create(title=title, picture=picture)
        Page.objects.create(manual=manual, number=number)

    request = request_of(make_superuser(), site)

    def numbers(filters: Any, model: str = "page") -> list[Any]:
        asked = {"model": f"fileapp.{model}", "filters": filters, "fields": ["id"]}
        return sorted(row[0] for row in call(QueryRecords(), request, **asked)["rows"])

    every, with_picture = set(numbers({})), set(numbers({"manual__picture__isnull": False}))
    without = set(numbers({"manual__picture__isnull": True}))
    assert len(with_picture) == (1 if hidden else 2)
    assert without == every - with_picture == set(numbers({"not": {"manual__picture__isnull": False}}))
    assert without == set(numbers({"manual.picture": None}))
    drawn = len(numbers({"picture__isnull": False}, "manual"))
    assert (drawn, len(numbers({"picture": None}, "manual"))) == (len(with_picture), 1)


@pytest.mark.django_db
class TestDeclaredPaths:
    """What a project declares is open as far as rows can be joined and no hook keeps anything from the caller."""

    def test_only_its_first_relation_may_lead_to_several_rows(self) -> None:
        own = site_with(Author, Loan)
        names = ("author__name", "loans__borrower", "author__books__title")
        declared = {name: ["exact"] for name in names}
        own.register(Book, ModelExposure, fields="__all__", filter_fields=declared)
        model = access_of(request_of(make_superuser(), own))[own.exposures[Book]]
        assert [name for name in declared if AllowedFilter.find(model, name)] == ["author__name", "loans__borrower"]

    def test_its_models_have_to_be_the_callers(self) -> None:
        own = site_with(Author)
        own.register(Book, ModelExposure, fields="__all__", filter_fields={"author__name": ["exact"]})
        for permissions, expected in ((["testapp.view_author"], True), ([], False)):
            user = make_user(f"u{len(permissions)}", "testapp.view_book", *permissions)
            model = access_of(request_of(user, own))[own.exposures[Book]]
            assert (AllowedFilter.find(model, "author__name") is not None) is expected

    def test_links_into_another_database_are_not_followed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = site_with(Book, Tag, fields=["id", "tags"])
        model = access_of(request_of(make_superuser(), own))[own.exposures[Book]]
        assert AllowedFilter.find(model, "tags") is not None
        monkeypatch.setattr("mcp_django.orm.allowed_filters.is_joinable", lambda field: False)
        assert AllowedFilter.find(model, "tags") is None

    def test_a_field_that_a_hook_keeps_from_the_caller_is_no_filter(self) -> None:
        class Discreet(ModelExposure):
            fields = "__all__"

            def get_fields(self, request: Any, obj: Any = None) -> Sequence[str]:
                return [name for name in super().get_fields(request, obj) if name != "email"]

        own = MCPSite()
        own.register(Author, Discreet)
        own.register(
            Book, ModelExposure, fields="__all__", filter_fields={"author__email": ["exact"], "author__name": ["exact"]}
        )
        model = access_of(request_of(make_superuser(), own))[own.exposures[Book]]
        assert AllowedFilter.find(model, "author__name") is not None
        assert AllowedFilter.find(model, "author__email") is None

    def test_a_path_from_the_key_is_none_from_a_field(self) -> None:
        own = site_with(Guest)
        own.register(Passport, ModelExposure, fields="__all__", filter_fields={"pk__name": ["exact"]})
        assert (
            AllowedFilter.find(access_of(request_of(make_superuser(), own))[own.exposures[Passport]], "pk__name")
            is None
        )


@pytest.mark.django_db
def test_a_path_that_the_caller_does_not_read_is_not_offered() -> None:
    own = site_with(Book, Author, fields=["id", "author", "name"])
    model = access_of(request_of(make_superuser(), own))[own.exposures[Book]]
    assert AllowedFilter.is_open(model, "author")
    assert not AllowedFilter.is_open(model, "title")
