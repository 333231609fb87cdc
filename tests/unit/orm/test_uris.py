"""URIs that name one thing each, and are read in linear time."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.db.models import Model
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import set_script_prefix

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.exceptions import NotFound
from mcp_django.orm.uris import Address, ParsedURI
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader
from tests.line_counts import is_linear
from tests.testapp.models import Author, Book, Loan, Placement, Shelf
from tests.tool_calls import call

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]


def address_of(model: type[Model]) -> Address:
    """The addresses that are the same for all callers."""
    found: Any = SimpleNamespace(request=None, exposure=ModelExposure(model, MCPSite()))
    return Address(found)


SHELF = address_of(Shelf)
BOOK = address_of(Book)
ODD = ["A/1", "50 %", "?x=1", "..", ".", "schema", "%2F", "ünï", "é", "é", "a#b", "😀", "a&b=c", "+", "a b", "\\"]


@pytest.mark.parametrize("pk", ODD)
def test_row_124_a_key_of_any_text_comes_back(pk: str) -> None:
    address = ParsedURI.read(SHELF.row(pk))
    assert (address.label, address.pk, address.is_schema, address.field_name) == ("testapp.shelf", pk, False, None)


def test_row_124_no_two_keys_have_one_uri() -> None:
    assert len({SHELF.row(pk) for pk in ODD}) == len(set(ODD))


def test_models_pages_files_and_schemas_have_their_forms() -> None:
    assert BOOK.pattern() == "django://testapp/book/{id}"
    assert BOOK.row(5) == "django://testapp/book/5"
    assert ParsedURI.read(BOOK.schema()).is_schema
    assert ParsedURI.read("django://testapp/book/5/cover").field_name == "cover"
    uri = BOOK.page(search="a b&c", ordering="-title", cursor=None)
    assert uri == "django://testapp/book?search=a%20b%26c&ordering=-title"
    assert ParsedURI.read(uri).query == {"search": "a b&c", "ordering": "-title"}


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "http://testapp/book/1",
        "data:text/plain,x",
        "gopher://x",
        "DJANGO://testapp/book/1",
        "django:/testapp/book/1",
        "django://testapp",
        "django://",
        "django://testapp/book/1/cover/x",
        "django://testapp/book/1?x=1",
        "django://testapp/book?x=1",
        "django://testapp/book?cursor=a&cursor=b",
        "django://testapp/book/%zz",
        "django://testapp/book/%ff",
        "django://testapp/book/%00",
        "django://testapp/book/1#x",
        "django://testapp/book/%31",
        "django://testapp/book/1/c%6fver",
        "django://testapp/shelf/a b",
        "django://testapp/shelf/a+b",
        "django://testapp/shelf/s%63hema",
        "django://testapp/shelf/%2E%2E",
        "django://test%61pp/book/1",
        "django://testapp/%ff/1",
        "django://testapp/b%2Fook/1/x/y",
        "",
        None,
        5,
        [],
    ],
)
def test_rows_162_161_another_uri_is_not_found(uri: Any) -> None:
    with pytest.raises(NotFound):
        ParsedURI.read(uri)


@pytest.mark.parametrize("name", ["stra%C3%9Fe", "stra%c3%9fe", "straße"])
def test_a_name_with_other_letters_is_found_escaped_and_as_it_is(name: str) -> None:
    assert ParsedURI.read(f"django://shop/{name}/1").label == "shop.straße"
    assert ParsedURI.read(f"django://shop/{name}/schema").label == "shop.straße"


@pytest.mark.parametrize("part", ["/", "%", "%25", "?", "&cursor=", "{", "a/"])
def test_row_161_a_hostile_uri_of_64_kib_takes_linear_time(part: str) -> None:
    assert is_linear(lambda size: ParsedURI.read("django://testapp/book" + (part * size)[:size]))
    with pytest.raises(NotFound):
        ParsedURI.read("django://testapp/book" + part * (65_536 // len(part)))


class TestAdminPages:
    """The admin's page of a row, for whoever may open it there."""

    pytestmark = pytest.mark.django_db

    def pages(self, user: Any, site: Any, *rows: Any) -> list[Any]:
        """Return the URLs of rows of a model in `get_record`, which are the same as those of a page."""
        request = reader(user, site)
        label = rows[0]._meta.label_lower
        alone = [call(GetRecord(), request, model=label, pk=str(row.pk)).get("admin_url") for row in rows]
        found = call(QueryRecords(), request, model=label, fields=["pk", "admin_url"], ordering=["pk"])
        assert found["columns"] == [rows[0]._meta.pk.name, "admin_url"]
        assert [url for _, url in found["rows"]] == alone
        return alone

    def test_it_is_absolute_and_opens(self, client: Any) -> None:
        book, shelf = make_book(), Shelf.objects.create(code="A/1 ?")
        root = make_superuser()
        (url,) = self.pages(root, MCPSite(admin_site=admin.site), book)
        assert url == f"http://testserver/admin/testapp/book/{book.pk}/change/"
        (other,) = self.pages(root, MCPSite(admin_site=admin.site), shelf)
        client.force_login(root)
        for page in (url, other):
            assert client.get(page).status_code == 200

    def test_it_is_below_the_prefix_of_the_project_at_the_base_url(self) -> None:
        author = make_author()
        set_script_prefix("/shop/")
        with override_settings(MCP_DJANGO={"BASE_URL": "https://shop.example:8443"}):
            (url,) = self.pages(make_superuser(), MCPSite(admin_site=admin.site), author)
        assert url == f"https://shop.example:8443/shop/admin/testapp/author/{author.pk}/change/"

    def test_without_an_address_there_is_none(self) -> None:
        with override_settings(MCP_DJANGO={}):
            assert self.pages(make_superuser(), MCPSite(admin_site=admin.site), make_author()) == [None]

    @override_settings(ROOT_URLCONF="tests.unit.orm.test_uris")
    def test_without_a_mounted_admin_there_is_none(self) -> None:
        assert self.pages(make_superuser(), MCPSite(admin_site=admin.site), make_author()) == [None]

    def test_it_is_for_staff_who_may_view_the_row_in_the_admin(self) -> None:
        site = MCPSite()
        site.register(Author, ModelExposure, fields=["name"])
        site.register(Loan, ModelExposure, fields=["borrower"])
        author = make_author()
        assert self.pages(make_user("s", "testapp.view_author"), site, author) != [None]
        assert self.pages(make_user("c", "testapp.change_author"), site, author) != [None]
        assert self.pages(make_user("n", "testapp.view_author", staff=False), site, author) == [None]

    def test_rows_that_the_admin_leaves_out_have_none(self) -> None:
        site = MCPSite()
        site.register(Book, ModelExposure, fields=["title"])
        user = make_user("s", "testapp.view_book")
        # The admin shows others than superusers their own books and those of nobody.
        mine, theirs = make_book(owner=user), make_book(owner=make_user("o"))
        first, second = self.pages(user, site, mine, theirs)
        assert first.endswith(f"/book/{mine.pk}/change/")
        assert second is None

    def test_who_may_view_anything_here_does_not_open_it_there(self) -> None:
        class Everything(AdminExposure):
            def has_permission(self, request: Any, action: str, obj: Any = None) -> bool:
                return True

        site = MCPSite(admin_site=admin.site)
        site.unregister(Author)
        site.register(Author, Everything)
        author = make_author()
        assert self.pages(make_user("v"), site, author) == [None]
        assert self.pages(make_superuser(), site, author) != [None]

    def test_permissions_of_single_rows_count(self) -> None:
        class Picky(admin.ModelAdmin):
            def has_view_permission(self, request: Any, obj: Any = None) -> bool:
                return obj is None or obj.name == "Open"

            def has_change_permission(self, request: Any, obj: Any = None) -> bool:
                return self.has_view_permission(request, obj)

        admin_site = admin.AdminSite("admin")
        admin_site.register(Author, Picky)
        site = MCPSite(admin_site=admin_site)
        make_author("Open")
        make_author("Closed")
        request = reader(make_superuser(), site)
        found = call(QueryRecords(), request, model="testapp.author", fields=["name", "admin_url"], ordering=["name"])
        assert [url is not None for *_, url in found["rows"]] == [False, True]

    def test_an_exposure_names_the_admin_site_of_its_pages(self) -> None:
        class Elsewhere(ModelExposure):
            fields = ["name"]
            admin_site_name = "office"

        site = MCPSite()
        site.register(Author, Elsewhere)
        author = make_author()
        assert self.pages(make_superuser(), site, author) == [None]

    def test_a_model_without_an_admin_has_none(self) -> None:
        site = MCPSite()
        site.register(Placement, ModelExposure, fields=["position"])
        row = Placement.objects.create(shelf=Shelf.objects.create(code="x"), book=make_book())
        assert self.pages(make_superuser(), site, row) == [None]

    def test_pages_are_asked_for_by_no_more_than_one_query(self, django_assert_max_num_queries: Any) -> None:
        site = MCPSite(admin_site=admin.site)
        for _ in range(5):
            make_book()
        request = reader(make_superuser(), site)
        arguments: dict[str, Any] = {"model": "testapp.book", "fields": ["title"]}
        call(QueryRecords(), request, **arguments)
        with CaptureQueriesContext(connection) as plain:
            call(QueryRecords(), reader(request.user, site), **arguments)
        with django_assert_max_num_queries(len(plain) + 1):
            call(QueryRecords(), reader(request.user, site), **{**arguments, "fields": ["title", "admin_url"]})

    def test_a_field_of_that_name_is_the_field(self) -> None:
        class Own(ModelExposure):
            fields = ["name", "admin_url"]

            def admin_url(self, author: Author) -> str:
                return "own"

        site = MCPSite()
        site.register(Author, Own)
        author = make_author()
        request = reader(make_superuser(), site)
        found = call(QueryRecords(), request, model="testapp.author", fields=["admin_url"])
        assert found["rows"] == [[author.pk, "own"]]
        found = call(GetRecord(), request, model="testapp.author", pk=str(author.pk), fields=["admin_url"])
        assert found["fields"]["admin_url"] == "own"


urlpatterns: list[Any] = []
