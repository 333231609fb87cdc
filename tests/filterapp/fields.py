"""Fields that store something else than what they hold."""

import base64
import os
from typing import Any

from django.db import models


def sealed(text: str, nonce: bytes = b"") -> str:
    """Return what stands in the column: it has nothing to do with the text, and is another with each nonce."""
    return (nonce.hex() or "0" * 16) + base64.b64encode(text[::-1].encode()).decode()


def opened(text: str) -> str:
    return base64.b64decode(text[16:]).decode()[::-1]


class Opened:
    """Is read back, and is a text in the database."""

    def get_internal_type(self) -> str:
        return "TextField"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else self.to_python(opened(value))  # type: ignore[attr-defined]


class SavedField(Opened, models.TextField):
    """Encrypts when it is saved, as some packages do; a comparison is with the plain text."""

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return None if value is None else sealed(str(value), os.urandom(8))


class RandomField(Opened, models.CharField):
    """Encrypts a value that is compared, too, each time otherwise."""

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else sealed(str(value), os.urandom(8))


class SteadyField(Opened, models.CharField):
    """Encrypts the same value in the same way."""

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else sealed(str(value))


class SteadyIntegerField(Opened, models.IntegerField):
    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else sealed(str(value))

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return value if prepared else self.get_prep_value(value)
