"""A person who confirms calls on the page that a caller was given, with a browser and without a token."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.test import Client

from mcp_django import site
from mcp_django.testing import ToolCall


def signed_in(user: Any, **options: Any) -> Client:
    """Return the browser of a user who has signed in to the site."""
    browser = Client(**options)
    browser.force_login(user)
    return browser


def page_of(waiting: ToolCall) -> str:
    """Return the path of the page to which a call leads that waits for its user."""
    assert waiting.is_error is False, waiting.text
    assert waiting.structured["state"] == "waiting"
    assert "token" not in waiting.text
    return path_of(waiting.structured["url"])


def path_of(url: str) -> str:
    return re.sub(r"^https?://[^/]+", "", url)


def say(browser: Client, page: str, answer: str = "yes") -> str:
    """Press a button of the page, and return what it then shows."""
    response = browser.post(page, {answer: "1"}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


@contextmanager
def tool_of(function: Any, **options: Any) -> Iterator[None]:
    """Make a function a tool of the site, for as long as the block lasts."""
    site.add_tool(function, **options)
    try:
        yield
    finally:
        site.remove_tool(options.get("name") or function.__name__)
