"""Labels of rows, from a column where ``__str__`` is proven to be just that."""

from functools import wraps
from typing import Any

import pytest
from django.utils.translation import get_language

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.labels import label_of, labels_of, plain_label, returned_attribute, with_labels_of
from tests.factories import make_author
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

SITE = MCPSite()


@pytest.mark.parametrize(
    ("model", "label"),
    [
        (Author, "name"),
        (Book, "title"),
        (AudioBook, "title"),
        (Tag, "name"),
        (Section, "name"),
        (Profile, None),
        (Shelf, None),
        (Loan, None),
        (Placement, None),
    ],
)
def test_a_label_is_a_column_only_where_str_is_proven_to_be_it(model: Any, label: str | None) -> None:
    assert plain_label(ModelExposure(model, SITE)) == label


def shouting(method: Any) -> Any:
    @wraps(method)
    def shout(self: Any) -> str:
        return str(method(self)).upper()

    return shout


class Plain:
    name = "Ada"

    def __str__(self) -> str:
        """The name."""
        return self.name


class Spoken(Plain):
    def __str__(self) -> str:
        return self.name if get_language() == "en" else "Frau " + self.name


class Stripped(Plain):
    def __str__(self) -> str:
        return self.name.strip()


class Written(Plain):
    def __str__(self) -> str:
        return f"{self.name}"


class Chosen(Plain):
    def __str__(self) -> str:
        return self.name or "nobody"


class Wrapped(Plain):
    __str__ = shouting(Plain.__str__)


class Inner(Plain):
    def __str__(self) -> str:
        return super().__str__()


@pytest.mark.parametrize("model", [Spoken, Stripped, Written, Chosen, Wrapped, Inner])
def test_whatever_else_str_does_its_label_takes_the_row(model: Any) -> None:
    assert returned_attribute(Plain) == "name"
    assert returned_attribute(model) is None


def test_a_declared_label_field_is_the_label() -> None:
    exposure = type("Labelled", (ModelExposure,), {"label_field": "isbn"})(Book, SITE)
    assert plain_label(exposure) == "isbn"
    assert label_of(exposure, Book(isbn="1", title="t")) == "1"


def test_row_211_a_label_that_fails_is_none(caplog: pytest.LogCaptureFixture) -> None:
    assert label_of(ModelExposure(Loan, SITE), Loan(borrower="x", due="no date")) is None
    assert "testapp.loan" in caplog.text


@pytest.mark.django_db
def test_the_relations_that_a_label_was_seen_to_follow_are_read_with_the_rows(django_assert_num_queries: Any) -> None:
    exposure = ModelExposure(Profile, SITE)
    for name in ("Ada", "Bo", "Cy", "Di"):
        Profile.objects.create(author=make_author(name))
    rows = Profile.objects.order_by("author__name")
    # The rows, what the first of them points to, and what all others do.
    with django_assert_num_queries(3):
        labels = labels_of(exposure, list(with_labels_of(exposure, rows)))
    with django_assert_num_queries(1):
        assert labels_of(exposure, list(with_labels_of(exposure, rows))) == labels
    assert labels == [str(row) for row in rows]
