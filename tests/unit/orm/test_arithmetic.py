"""The grammar of arithmetic: what it reads, how it is bracketed again in names, and which kinds go together."""

from typing import Any

import pytest

from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.arithmetic import is_expression, length, value_of
from mcp_django.orm.fields import kind_of
from tests.factories import make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def request_() -> MCPRequest:
    return reader(make_superuser(), site_with(Author, Book, Loan))


def read(request: MCPRequest, text: str, model: Any = Book) -> tuple[str, str]:
    found = value_of(access_of(request)[request.mcp.site.exposures[model]], text, lambda column: True)
    return found.name, kind_of(found.column.field).word


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        ("pages", "pages", "integer"),
        ("author.name", "author__name", "text"),
        ("pages + pages*2", "pages+pages*2", "integer"),
        ("(pages + 1) * price", "(pages+1)*price", "decimal"),
        ("price-(price-1)*2", "price-(price-1)*2", "decimal"),
        ("pages/2", "pages/2", "number"),
        ("rating * price", "rating*price", "number"),
        ("-pages", "0-pages", "integer"),
        ("created - published", "created-published", "duration"),
        ("published + 2 weeks", "published+2 weeks", "date"),
        ("created-30min", "created-30min", "datetime"),
        ("5d + published", "5d+published", "date"),
        ("reading_time / 2", "reading_time/2", "duration"),
        ("reading_time - 1h", "reading_time-1h", "duration"),
        ("1.25*pages", "1.25*pages", "decimal"),
    ],
)
def test_what_is_read(request_: MCPRequest, text: str, name: str, word: str) -> None:
    assert read(request_, text) == (name, word)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "()",
        "pages pages",
        "pages +",
        "* pages",
        "(pages",
        "pages)",
        "pages ^ 2",
        "pages+'1'",
        "1e5",
        "count(pages)",
    ],
)
def test_what_is_no_expression_is_refused(request_: MCPRequest, text: str) -> None:
    with pytest.raises(ToolError):
        read(request_, text)


@pytest.mark.parametrize(
    "text",
    [
        "title+title",
        "published+published",
        "published*2",
        "reading_time*reading_time",
        "2-published",
        "author+1",
        "pages+1d",
    ],
)
def test_kinds_that_do_not_go_together_are_named(request_: MCPRequest, text: str) -> None:
    with pytest.raises(ToolError, match="cannot be computed"):
        read(request_, text)


def test_a_name_is_no_expression() -> None:
    assert not is_expression(" author.name ")
    assert is_expression("a-b")


@pytest.mark.parametrize("text", ["5", "d", "5 months", "-5d", 5, None, "5d2h", "P999999999999D"])
def test_a_length_of_time_has_a_number_and_a_unit(text: Any) -> None:
    with pytest.raises(ToolError, match="not a duration"):
        length(text)
