"""Rows that many tests start from."""

import itertools
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import OperationalError

from tests.testapp.models import Author, Book

_numbers = itertools.count(1)


def make_user(name: str, *permissions: str, staff: bool = True) -> User:
    """Make an active user with permissions such as `testapp.view_book`."""
    user = User.objects.create_user(name, password=name, is_staff=staff)
    for permission in permissions:
        app_label, codename = permission.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app_label, codename=codename))
    return user


def connection_lost() -> OperationalError:
    """Make the error that Django raises where PostgreSQL, or a pooler in front of it, does not answer."""
    cause = Exception("connection refused")
    cause.sqlstate = None  # type: ignore[attr-defined]
    error = OperationalError("connection refused")
    error.__cause__ = cause
    return error


def make_superuser(name: str = "root") -> User:
    return User.objects.create_superuser(name, password=name)


def make_author(name: str = "Ursula", **values: Any) -> Author:
    return Author.objects.create(name=name, **values)


def new_book(title: str | None = None, **values: Any) -> Book:
    """Return a book that is not saved yet; who leaves out its author makes one."""
    number = next(_numbers)
    values.setdefault("author", None)
    author = values.pop("author") or make_author(f"Author {number}")
    values.setdefault("isbn", f"{number:013}")
    values.setdefault("price", "9.90")
    return Book(title=title or f"Book {number}", author=author, **values)


def make_book(title: str | None = None, **values: Any) -> Book:
    book = new_book(title, **values)
    book.save(force_insert=True)
    return book
