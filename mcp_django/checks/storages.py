"""System checks of the storages for files that nobody may get by a web server: uploads and exports."""

import os
from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage, InMemoryStorage, storages

from .check_rules import Check, check, problem

CHECKS: Final[list[Check]] = []
# Checks of `check --deploy`.
DEPLOYMENT_CHECKS: Final[list[Check]] = []
# The ids of their faults, by the names of private storages.
PRIVATE: Final = {"mcp_uploads": "E029", "mcp_exports": "E177"}
REMEDY: Final = "Give it a location of its own, which no web server serves."


@check(CHECKS)
def check_private_storages() -> Iterator[CheckMessage]:
    for alias, number in PRIVATE.items():
        storage: Any = storages[alias] if alias in storages.backends else None
        if not isinstance(storage, FileSystemStorage):
            continue
        # The files lie in a folder that is called like their storage.
        places = [os.path.realpath(os.path.join(storage.location, folder)) for folder in ("", alias)]
        for what, root in _served():
            if any(_is_within(place, os.path.realpath(root)) for place in places):
                text = f'STORAGES["{alias}"] lies within {what}, whose files may be served to anyone.'
                yield problem(number, text, REMEDY)
                break


@check(DEPLOYMENT_CHECKS)
def check_shared_storages() -> Iterator[CheckMessage]:
    for alias in PRIVATE:
        if alias in storages.backends and isinstance(storages[alias], InMemoryStorage):
            text = f'STORAGES["{alias}"] is in the memory of each process: other workers do not find its files.'
            yield problem("W178", text, "Name a storage that all workers share.")


def _served() -> Iterator[tuple[str, str]]:
    """Yield each folder that a web server may serve, after what it is."""
    default: Any = storages["default"]
    # Without MEDIA_ROOT, its location is the working directory, which nobody serves.
    if isinstance(default, FileSystemStorage) and default.base_location:
        yield "the default storage", str(default.location)
    for name in ("MEDIA_ROOT", "STATIC_ROOT"):
        if root := getattr(django_settings, name, None):
            yield name, str(root)
    for entry in getattr(django_settings, "STATICFILES_DIRS", ()):
        # An entry may have a prefix.
        yield "STATICFILES_DIRS", str(entry[1] if isinstance(entry, (list, tuple)) else entry)


def _is_within(place: str, root: str) -> bool:
    try:
        return os.path.commonpath([root, place]) == root
    except ValueError:
        # They are on different drives.
        return False
