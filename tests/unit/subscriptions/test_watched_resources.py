import pytest
from django.contrib.auth.models import AnonymousUser

from mcp_django import MCPSite, ModelExposure
from mcp_django.exceptions import NotFound
from mcp_django.orm.access import access_of
from mcp_django.subscriptions.watched_resources import (
    Rows,
    Watch,
    any_visible,
    content_digest,
    find_watches,
    is_readable,
    list_digests,
    needs_digest,
)
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import site_with
from tests.subscribers import SCOPES, page_of, uri_of
from tests.testapp.models import Author, Book, Section, Shelf, Tag
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


def request(user=None, site=None, **options):
    options = {"scopes": SCOPES, **options}
    user = user or make_superuser()
    return request_of(user, site, **options) if site is not None else request_of(user, **options)


def honoured(asking, *uris):
    return [watch.uri for watch in find_watches(asking, uris)]


class NotMine(ModelExposure):
    """Every row is there, and one of them must not be looked at."""

    fields = ("name",)

    def has_view_permission(self, request, obj=None):
        return obj is None or obj.name != "secret"


# Which URIs


def test_what_the_caller_may_read_is_honoured_in_order_and_once():
    book, shelf, section = make_book(), Shelf.objects.create(code="A/1 ?"), Section.objects.create(name="s")
    book.cover = "covers/a.txt"
    book.save()
    uris = [
        "django://testapp/shelf/A%2F1%20%3F",
        uri_of(book),
        f"{uri_of(book)}/cover",
        page_of(Book),
        f"{page_of(Book)}?ordering=-title",
        f"{page_of(Book)}/schema",
        uri_of(section),
    ]
    assert shelf.pk == "A/1 ?"
    assert honoured(request(), *uris, *reversed(uris)) == uris


@pytest.mark.parametrize(
    "uri",
    [
        "django://testapp/book/99999",
        "django://testapp/book/{pk}/title",
        "django://testapp/book/{pk}/nothing",
        "django://testapp/book/0{pk}",
        "django://testapp/book/%31x",
        "django://testapp/Book/{pk}",
        "django://testapp/nothing/1",
        "django://testapp/nothing",
        "django://testapp/nothing/schema",
        "django://testapp/book?ordering=nothing",
        "django://testapp/book?cursor=bad",
        "django://testapp/book?nothing=1",
        "django://auth/user/1",
        "shop://nothing",
        "django:x",
    ],
)
def test_what_is_not_there_is_left_out(uri):
    book = make_book()
    assert honoured(request(), uri.format(pk=book.pk), uri_of(book)) == [uri_of(book)]


def test_what_the_caller_may_not_see_is_left_out_as_if_it_was_not_there():
    mine, other = make_book(), make_book(owner=make_user("other"))
    reader = request(make_user("reader", "testapp.view_book"))
    uris = [uri_of(other), uri_of(mine), page_of(Tag), f"{page_of(Tag)}/schema", page_of(Book)]
    assert honoured(reader, *uris) == [uri_of(mine), page_of(Book)]
    assert honoured(request(make_user("nobody")), *uris) == []
    assert honoured(request(AnonymousUser()), *uris) == []


def test_a_row_that_only_the_permission_hides_is_left_out():
    site = MCPSite()
    site.register(Author, NotMine)
    secret, plain = make_author("secret"), make_author("plain")
    assert honoured(request(site=site), uri_of(secret), uri_of(plain)) == [uri_of(plain)]


def test_functions_and_templates_are_honoured_by_permission():
    site = MCPSite()
    site.add_resource("shop://open/{name}", lambda request, name: name, name="open")
    site.add_resource("shop://closed", lambda request: "x", name="closed", permissions=["testapp.view_tag"])
    uris = ["shop://open/anything", "shop://closed"]
    assert honoured(request(make_user("reader"), site), *uris) == uris[:1]
    assert honoured(request(site=site), *uris) == uris


def test_many_rows_of_a_model_take_one_query(django_assert_num_queries):
    asking, books = request(), [make_book() for _ in range(20)]
    honoured(asking, uri_of(books[0]))
    with django_assert_num_queries(1):
        assert len(honoured(asking, *map(uri_of, books))) == 20


# Rows


def test_rows_that_are_the_same_for_all_are_read_once(django_assert_num_queries):
    tags = [str(Tag.objects.create(name=f"{number}").pk) for number in range(3)]
    users = [make_superuser(), make_user("reader", "testapp.view_tag")]
    asking = [request(user) for user in users]
    exposure = asking[0].mcp.site.exposures[Tag]
    for item in asking:
        assert exposure.has_view_permission(item)
    rows = Rows({"testapp.tag": tags})
    with django_assert_num_queries(1):
        for item in asking:
            assert set(rows.visible(access_of(item)[exposure], tags[:2])) == set(tags[:2])
            assert rows.gone(access_of(item)[exposure], tags) == set()


def test_rows_that_are_narrowed_are_read_for_each_caller():
    other = make_book(owner=make_user("other"))
    exposure = request().mcp.site.exposures[Book]
    rows, key = Rows({}), str(other.pk)
    reader = request(make_user("reader", "testapp.view_book"))
    assert set(rows.visible(access_of(request(make_superuser("chief")))[exposure], [key])) == {key}
    assert rows.visible(access_of(reader)[exposure], [key]) == {}
    # It is there, though not for this caller.
    assert rows.gone(access_of(reader)[exposure], [key]) == set()
    assert rows.gone(access_of(reader)[exposure], [key, "999", "no number"]) == {"999", "no number"}


def test_any_row_is_seen_by_the_first_ones():
    site = MCPSite()
    site.register(Author, NotMine)
    asking, exposure = request(site=site), site.exposures[Author]
    assert not any_visible(access_of(asking)[exposure])
    make_author("secret")
    assert not any_visible(access_of(asking)[exposure])
    make_author("plain")
    assert any_visible(access_of(asking)[exposure])


# Contents


def test_a_page_is_another_one_when_its_rows_or_their_order_are():
    first, second = make_book("a"), make_book("b")
    asking, watch = request(), Watch(page_of(Book), "testapp.book")
    digests = [content_digest(asking, watch)]
    for title in ("c", "d"):
        first.title = title
        first.save()
        digests.append(content_digest(asking, watch))
    assert digests[0] != digests[1] == digests[2]
    second.delete()
    assert content_digest(asking, watch) != digests[2]


def test_a_schema_is_another_one_when_it_shows_something_else():
    watch = Watch(f"{page_of(Book)}/schema")
    few, many = site_with(Book, fields=["title"]), site_with(Book, fields=["title", "price"])
    user = make_superuser()
    asking = [request(user, site) for site in (few, few, many)]
    digests = [content_digest(item, watch) for item in asking]
    assert digests[0] == digests[1] != digests[2]


def test_contents_that_are_not_there_have_no_digest():
    with pytest.raises(NotFound):
        content_digest(request(), Watch("django://testapp/nothing", "testapp.nothing"))
    with pytest.raises(NotFound):
        content_digest(request(make_user("nobody")), Watch(page_of(Book), "testapp.book"))
    with pytest.raises(NotFound):
        content_digest(request(make_superuser("chief")), Watch(f"{page_of(Book)}?cursor=x", "testapp.book"))


def test_only_schemas_and_pages_of_narrowed_rows_are_told_by_their_contents():
    asking = request()
    assert needs_digest(asking, Watch("django://testapp/tag/schema"))
    assert needs_digest(asking, Watch(page_of(Book), "testapp.book"))
    assert not needs_digest(asking, Watch(page_of(Tag), "testapp.tag"))
    assert not needs_digest(asking, Watch("django://testapp/book/1", "testapp.book", "1"))
    assert not needs_digest(asking, Watch("shop://x"))


def test_what_is_not_made_of_rows_can_be_read_or_not():
    site = MCPSite()
    site.register(Tag, ModelExposure)
    site.add_resource("shop://x", lambda request: "x", name="x", permissions=["testapp.view_tag"])
    reader, nobody = request(make_user("reader", "testapp.view_tag"), site), request(make_user("nobody"), site)
    for uri in ("shop://x", "django://testapp/tag/schema"):
        assert is_readable(reader, Watch(uri))
        assert not is_readable(nobody, Watch(uri))
    assert not is_readable(reader, Watch("shop://y"))


# Lists


def test_lists_are_others_when_the_caller_finds_other_things_in_them():
    site = MCPSite()
    site.register(Tag, ModelExposure)
    closed = {"permissions": ["testapp.view_tag"]}
    site.add_tool(lambda request: "x", name="closed", read_only=True, **closed)
    site.add_prompt(lambda request: "x", name="closed", **closed)
    reader, other = make_user("reader", "testapp.view_tag"), make_user("other", "testapp.view_tag")
    nobody, cleaner = make_user("nobody"), make_user("cleaner", "testapp.delete_tag")
    digests = [list_digests(request(user, site)) for user in (reader, other, nobody, cleaner)]
    assert digests[0] == digests[1]
    assert all(digests[0][kind] != digests[2][kind] for kind in ("tools", "prompts", "resources"))
    assert digests[2] == digests[3]
