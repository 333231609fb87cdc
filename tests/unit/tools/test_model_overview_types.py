"""The types of columns in few words."""

from typing import Any

import pytest

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.columns import Column
from mcp_django.tools.model_overview import choice_words, type_words
from tests.factories import make_superuser, make_user
from tests.library import reader
from tests.testapp.models import Author, Book, Tag


def words_of(user: Any, *names: str) -> list[list[str]]:
    site = MCPSite()
    for model in (Author, Tag):
        site.register(model, ModelExposure)
    site.register(Book, ModelExposure, fields=names)
    exposure = site.exposures[Book]
    return [list(type_words(reader(user, site), column)) for column in Column.all(exposure, names)]


@pytest.mark.django_db
def test_a_text_needs_no_word_a_relation_is_its_target_and_choices_are_their_values() -> None:
    found = words_of(make_superuser(), "title", "price", "author", "tags", "status", "published")
    text, price, author, tags, status, published = found
    assert (text, price, published) == ([], ["decimal"], ["date"])
    assert (author, tags) == (["testapp.author"], ["list", "testapp.tag"])
    assert status == ["draft|published|withdrawn"]


@pytest.mark.django_db
def test_row_125_a_relation_to_a_model_that_the_caller_may_not_view_is_a_key() -> None:
    assert words_of(make_user("u", "testapp.view_book"), "author", "tags") == [["key"], ["list", "key"]]


def test_labels_of_choices_stand_where_the_values_do_not_speak() -> None:
    assert choice_words([("paid", "Was paid"), ("1", "One"), ("nl", "NL"), ("x", "Cross")]) == "paid|1=One|nl|x=Cross"


def test_many_choices_are_cut() -> None:
    assert choice_words([(f"name{number}", "") for number in range(13)]).endswith("|name11|…")
    assert "…" not in choice_words([(f"name{number}", "") for number in range(12)])
