"""Files by URL: sent once, by whoever may write, and given to whoever may read at that time."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.asgi import ASGIRequest as DjangoRequest
from django.http import FileResponse
from django.test import Client, RequestFactory, override_settings
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django import site
from mcp_django.asgi import get_asgi_application
from mcp_django.testing import MCPClient
from mcp_django.uploads import FOLDER
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Book

pytestmark = pytest.mark.django_db

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture(autouse=True)
def uploads(settings: Any) -> Iterator[Any]:
    """A private storage for what is sent, and a public one that the records have."""
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": MEMORY}
    yield storages["mcp_uploads"]


def path_of(url: str) -> str:
    assert url.startswith("http://testserver/mcp/")
    return url.removeprefix("http://testserver")


def put(url: str, data: bytes = PNG, **extra: Any) -> Any:
    # Whoever sends it has no token and no cookie.
    return Client(enforce_csrf_checks=True).put(path_of(url), data, content_type="application/octet-stream", **extra)


def kept(storage: Any) -> list[str]:
    return storage.listdir(FOLDER)[1] if storage.exists(FOLDER) else []


def writer(name: str = "writer") -> User:
    return make_user(name, *(f"testapp.{verb}_{model}" for verb in ("view", "add", "change") for model in ("book",)))


def test_what_was_sent_becomes_the_file_of_a_record(uploads: Any, django_capture_on_commit_callbacks: Any) -> None:
    client, author = MCPClient(make_superuser()), make_author()
    made = client.call("create_upload").structured
    assert (made["method"], made["expires_in"], made["max_bytes"]) == ("PUT", 600, 5 * 1024 * 1024)
    answer = put(made["url"])
    assert (answer.status_code, answer.content) == (201, b"Received 264 bytes.\n")
    values = {"title": "T", "isbn": "1", "price": "1", "author": author.pk}
    cover = {"name": "../covers/front.png", "upload": made["upload"]}
    with django_capture_on_commit_callbacks(execute=True):
        done = client.call("create_record", model="testapp.book", values={**values, "cover": cover})
    assert not done.is_error, done.text
    book = Book.objects.get(title="T")
    assert book.cover.name.startswith("covers/front")
    assert book.cover.read() == PNG
    assert kept(uploads) == []
    again = client.call("update_record", model="testapp.book", pk=book.pk, values={"cover": cover})
    assert "There is no such upload" in again.text
