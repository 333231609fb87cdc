from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import make_superuser, make_user


@pytest.fixture
def admin(db: None) -> Client:
    """A browser in which a superuser is signed in, whose forms need their CSRF tokens."""
    browser = Client()
    browser.force_login(make_superuser("root"))
    return browser


@pytest.fixture
def browser_of(db: None) -> Callable[..., Client]:
    """Make a member of staff with some permissions, and give their browser."""

    def make(name: str, *permissions: str) -> Client:
        browser = Client()
        browser.force_login(make_user(name, *permissions))
        return browser

    return make


def url(name: str) -> Any:
    """The path of a page of the console."""
    return reverse(f"admin:mcp_django_console_{name}")
