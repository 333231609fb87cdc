"""The language of a call: that of the client where it says one, and nobody else's afterwards.

Labels, help texts and error messages follow it, as they follow a person's browser in the admin; stored values do not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final, TypeVar

from django.conf import settings as django_settings
from django.utils import timezone, translation

from .context import MCPRequest

__all__ = ["in_own_context", "language_of", "own_locale"]

T = TypeVar("T")

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


def in_own_context(request: MCPRequest, work: Callable[[], T]) -> T:
    """Return what the work gives, in the language of the call.

    What it leaves behind in context variables, which hold the active language and time zone, ends with it.
    """

    def run() -> T:
        if language := language_of(request):
            translation.activate(language)
        return work()

    return copy_context().run(run)


@contextmanager
def own_locale(request: MCPRequest) -> Iterator[None]:
    """Do the same for a coroutine, of which language and time zone are restored."""
    language, zone = translation.get_language(), timezone.get_current_timezone()
    if wanted := language_of(request):
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
