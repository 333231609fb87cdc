"""The language of a call: that of the client where it says one, and nobody else's afterwards.

Labels, help texts and error messages follow it, as they follow a person's browser in the admin; stored values do not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.conf import settings as django_settings
from django.utils import timezone, translation

from .context import MCPRequest

__all__ = ["language_of", "own_locale"]

# Longer ones are no client's wish.
MAX_HEADER: Final = 500


def language_of(request: MCPRequest) -> str | None:
    """Return the language that the call should have, None for the one that it has.

    ``Accept-Language`` decides, among ``settings.LANGUAGES``. A language that the project's middleware chose stays.
    """
    asked = request.META.get("HTTP_ACCEPT_LANGUAGE")
    if not asked or len(asked) > MAX_HEADER or not django_settings.USE_I18N:
        return None
    if translation.get_language() != django_settings.LANGUAGE_CODE:
        return None
    return translation.get_language_from_request(request)


@contextmanager
def own_locale(request: MCPRequest) -> Iterator[None]:
    """Run a call in its language; what it leaves active, language or time zone, ends with it."""
    language, zone = translation.get_language(), timezone.get_current_timezone()
    wanted = language_of(request)
    if wanted is not None:
        translation.activate(wanted)
    try:
        yield
    finally:
        if translation.get_language() != language:
            _restore(language)
        if timezone.get_current_timezone() is not zone:
            timezone.activate(zone)


def _restore(language: str | None) -> None:
    if language is None:
        translation.deactivate_all()
    elif language == django_settings.LANGUAGE_CODE:
        translation.deactivate()
    else:
        translation.activate(language)
