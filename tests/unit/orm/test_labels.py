"""Labels of rows, from a column where ``__str__`` is proven to be just that."""

from typing import Any

import pytest

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.relations import label_of, labels_of, plain_label, with_labels_of
from tests.factories import make_author
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

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
