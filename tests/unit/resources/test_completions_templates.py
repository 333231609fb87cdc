"""The templates of models, completed part by part."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import site as default_site
from mcp_django.orm.uris import Address, ParsedURI
from mcp_django.protocol.uri_templates import UriTemplate
from mcp_django.resources.completions import ModelTemplate
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Section, Shelf

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
BOOKS = {"app_label": "testapp", "model_name": "book"}


@pytest.fixture
def root():
    return reader(make_superuser(), default_site)


def values(request, uri, name, value="", **context):
    template = ModelTemplate.read(uri)
    assert template is not None
    assert template.takes(name)
    return list(template.complete(request, name, value, context).values)


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        (Address.RECORD_TEMPLATE, {"app_label", "model_name", "pk"}),
        (Address.PAGE_TEMPLATE, {"app_label", "model_name", "cursor", "search", "ordering", "fields"}),
        (Address.SCHEMA_TEMPLATE, {"app_label", "model_name"}),
        (Address.FILE_TEMPLATE, {"app_label", "model_name", "pk", "field"}),
        ("django://testapp/book/{id}", {"app_label", "model_name", "pk", "id"}),
        ("django://testapp/book/7", {"app_label", "model_name", "pk"}),
        ("django://testapp/book?search=x", {"app_label", "model_name", "cursor", "search", "ordering", "fields"}),
        ("django://testapp/book/schema/{field}", {"app_label", "model_name", "pk", "field"}),
    ],
)
def test_each_template_has_its_arguments(uri, names):
    template = ModelTemplate.read(uri)
    assert set(template.names) == names
    assert not template.takes("request")
    assert not template.is_slow("pk")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "django://",
        "django://testapp",
        "django://a/b/c/d/e",
        "django://testapp/%zz",
        "django://testapp/book/7?search=x",
        "file:///etc/passwd",
        "shop://policy",
        "django://" + "x" * 9000,
    ],
)
def test_a_uri_of_something_else_is_no_template(uri):
    assert ModelTemplate.read(uri) is None


def test_labels_are_those_of_visible_models(root):
    assert values(root, Address.RECORD_TEMPLATE, "app_label") == ["testapp", "admin"]
    assert values(root, Address.RECORD_TEMPLATE, "app_label", "tes") == ["testapp"]
    assert values(root, Address.RECORD_TEMPLATE, "app_label", "auth") == []
    assert values(root, Address.RECORD_TEMPLATE, "model_name", "book", app_label="testapp") == [
        "book",
        "audiobook",
        "publishedbook",
    ]
    assert values(root, Address.RECORD_TEMPLATE, "model_name", "audio b") == ["audiobook"]
    assert values(root, Address.RECORD_TEMPLATE, "model_name", app_label="auth") == []


def test_125_models_that_the_caller_may_not_view_are_absent():
    request = reader(make_user("viewer", "testapp.view_author"), default_site)
    assert values(request, Address.SCHEMA_TEMPLATE, "model_name") == ["author", "logentry"]
    make_book("Winter")
    for model in ("book", "nosuch"):
        given = {"app_label": "testapp", "model_name": model}
        for name in ("pk", "field"):
            assert values(request, Address.FILE_TEMPLATE, name, **given) == []
        for name in ("search", "ordering", "fields", "cursor"):
            assert values(request, Address.PAGE_TEMPLATE, name, **given) == []


def test_a_key_depends_on_the_model(root):
    book = make_book("Winter")
    assert values(root, Address.RECORD_TEMPLATE, "pk", "wint", **BOOKS) == [str(book.pk)]
    assert values(root, Address.RECORD_TEMPLATE, "pk", "wint", app_label="testapp", model_name="tag") == []
    assert values(root, Address.RECORD_TEMPLATE, "pk", "wint") == []


def test_a_uri_gives_what_its_variables_are(root):
    book = make_book("Winter")
    for uri in ("django://testapp/book/{pk}", "django://testapp/book/{id}", "django://testapp/book/7"):
        assert values(root, uri, "pk", "wint") == [str(book.pk)]
    assert values(root, "django://testapp/book/{id}", "id", "wint") == [str(book.pk)]
    assert values(root, "django://testapp/{model_name}/{pk}", "pk", "wint", model_name="book") == [str(book.pk)]


def test_a_key_that_is_completed_leads_to_its_row_when_the_client_encodes_it(root):
    for code in ("A/1 ?", "50 %", "schema"):
        Shelf.objects.create(code=code)
    given = {"app_label": "testapp", "model_name": "shelf"}
    found = values(root, Address.RECORD_TEMPLATE, "pk", **given)
    # The third would be read as the description of the model.
    assert found == ["50 %", "A/1 ?"]
    assert values(root, Address.FILE_TEMPLATE, "pk", **given) == ["50 %", "A/1 ?", "schema"]
    for key in found:
        assert ParsedURI.read(UriTemplate(Address.RECORD_TEMPLATE).expand({**given, "pk": key})).pk == key


def test_file_fields_are_those_that_hold_files(root):
    assert values(root, Address.FILE_TEMPLATE, "field", **BOOKS, pk="1") == ["cover"]
    assert values(root, Address.FILE_TEMPLATE, "field", "title", **BOOKS) == []
    hidden = reader(make_superuser("second"), site_with(Book, fields=["title"]))
    assert values(hidden, Address.FILE_TEMPLATE, "field", **BOOKS) == []


def test_lists_of_fields_are_completed_at_their_end():
    request = reader(make_superuser(), site_with(Author, fields=["name", "email", "born"]))
    given = {"app_label": "testapp", "model_name": "author"}
    assert values(request, Address.PAGE_TEMPLATE, "fields", **given) == ["id", "name", "email", "born"]
    assert values(request, Address.PAGE_TEMPLATE, "fields", "name,e", **given) == ["name,email"]
    assert values(request, Address.PAGE_TEMPLATE, "fields", "name, ", **given) == [
        "name, id",
        "name, email",
        "name, born",
    ]
    assert values(request, Address.PAGE_TEMPLATE, "fields", "secret", **given) == []
    assert values(request, Address.PAGE_TEMPLATE, "ordering", "-born,-na", **given) == ["-born,-name"]
    assert values(request, Address.PAGE_TEMPLATE, "ordering", "-name,na", **given) == []


def test_an_order_is_only_completed_to_what_can_be_sorted_by(root):
    found = values(root, Address.PAGE_TEMPLATE, "ordering", **BOOKS)
    assert {"title", "author", "is_long"} <= set(found)
    assert not {"tags", "data", "cover"} & set(found)


def test_a_search_is_completed_to_labels_where_it_looks_for_them(root):
    make_author("Ursula")
    make_author("Somebody")
    assert values(root, Address.PAGE_TEMPLATE, "search", "urs", app_label="testapp", model_name="author") == ["Ursula"]
    Section.objects.create(name="Here")
    own = reader(make_superuser("second"), site_with(Section))
    assert values(own, Address.PAGE_TEMPLATE, "search", "her", app_label="testapp", model_name="section") == []


def test_a_cursor_is_not_completed(root):
    assert values(root, Address.PAGE_TEMPLATE, "cursor", **BOOKS) == []


def test_names_cost_no_query(root):
    values(root, Address.RECORD_TEMPLATE, "model_name")
    with CaptureQueriesContext(connection) as queries:
        values(root, Address.RECORD_TEMPLATE, "app_label")
        values(root, Address.RECORD_TEMPLATE, "model_name", **BOOKS)
        values(root, Address.PAGE_TEMPLATE, "fields", **BOOKS)
        values(root, Address.PAGE_TEMPLATE, "ordering", **BOOKS)
        values(root, Address.FILE_TEMPLATE, "field", **BOOKS)
    assert not queries.captured_queries
