"""The releases of Django that this version of the app was tested with: those of the classifiers in pyproject.toml."""

from typing import Final

import django

TESTED_DJANGO: Final = ((5, 2), (6, 0), (6, 1))


def is_newer_than_tested() -> bool:
    """Return whether the installed Django is of a later minor release than the newest one that was tested."""
    return django.VERSION[:2] > TESTED_DJANGO[-1]
