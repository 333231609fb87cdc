"""Filters that the project wrote: what they offer."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from django.db.models import QuerySet

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.named_filters import NamedFilter, Offer
from tests.factories import make_superuser
from tests.filterapp.models import Film
from tests.library import reader

pytestmark = pytest.mark.postgresql


class Fixed(NamedFilter):
    def __init__(self, *offered: Offer, fails: bool = False) -> None:
        self.offered = offered
        self.fails = fails

    def names(self) -> Sequence[str]:
        return [offer.name for offer in self.offered]

    def offers(self) -> Sequence[Offer]:
        if self.fails:
            raise RuntimeError("secret")
        return self.offered

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        return queryset


@pytest.mark.parametrize(
    ("text", "value"), [("80s", "80s"), ("THE EIGHTIES", "80s"), ("90S", "90s"), ("80", None), ("", None), ("x", "x")]
)
def test_a_choice_is_named_by_its_value_or_its_label(text: str, value: str | None) -> None:
    offer = Offer("decade", "decade", (("80s", "the eighties"), ("90s", "x"), ("x", "z"), ("y", "x")))
    assert offer.value_of(text) == value


def test_without_choices_any_text_may_be_tried() -> None:
    assert Offer("name", "name").value_of("anything") == "anything"


@pytest.mark.django_db
def test_row_190_a_filter_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Own(ModelExposure):
        fields = ("title",)

        def get_named_filters(self, request: MCPRequest) -> Sequence[NamedFilter]:
            return [Fixed(Offer("a", "A")), Fixed(Offer("b", "B"), fails=True), Fixed(Offer("a", "other"))]

    site = MCPSite()
    site.register(Film, Own)
    with caplog.at_level(logging.WARNING, "mcp_django"):
        assert NamedFilter.offers_of(access_of(reader(make_superuser(), site))[site.exposures[Film]]) == [
            Offer("a", "A")
        ]
    assert "filterapp.film failed: b" in caplog.text
