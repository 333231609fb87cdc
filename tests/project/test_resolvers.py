"""Resolvers are kept between tests, but never those of URLs that have changed."""

import sys
from types import ModuleType
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import clear_url_caches, get_resolver, path, reverse

NAME = "urls_of_a_test"


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A URLconf, and the module that it is."""
    made: Any = ModuleType(NAME)
    made.urlpatterns = [path("first", view, name="page")]
    monkeypatch.setitem(sys.modules, NAME, made)
    return made


def test_a_resolver_outlives_a_change_of_the_urlconf(settings: Any) -> None:
    before = get_resolver()
    settings.ROOT_URLCONF = "tests.two_sites"
    assert get_resolver() is not before
    settings.ROOT_URLCONF = "tests.urls"
    assert get_resolver() is before


@pytest.mark.parametrize("change", ["append", "replace", "module"])
def test_changed_urls_have_a_new_one_as_soon_as_django_forgets_the_old_one(
    module: Any, monkeypatch: pytest.MonkeyPatch, settings: Any, change: str
) -> None:
    settings.ROOT_URLCONF = NAME
    assert reverse("page") == "/first"
    if change == "append":
        module.urlpatterns.append(path("second", view, name="page"))
    elif change == "replace":
        module.urlpatterns = [path("second", view, name="page")]
    else:
        other: Any = ModuleType(NAME)
        other.urlpatterns = [path("second", view, name="page")]
        monkeypatch.setitem(sys.modules, NAME, other)
    clear_url_caches()
    assert reverse("page") == "/second"


def test_a_list_of_urls_is_no_module(settings: Any) -> None:
    settings.ROOT_URLCONF = (path("first", view, name="page"),)
    before = get_resolver()
    clear_url_caches()
    assert get_resolver() is not before
