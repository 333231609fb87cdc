"""The language of a call: that of the client where it says one, and nobody else's afterwards.

Labels, help texts and error messages follow it, as they follow a person's browser in the admin; stored values do not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final, TypeVar

from django.conf import settings as django_settings
from django.http import HttpRequest
from django.utils import timezone, translation

T = TypeVar("T")

# Longer ones are no client's wish.
MAX_HEADER: Final = 500


def language_of(request: HttpRequest) -> str | None:
    """Return the language that the answer should have, None for the one that is active.

    ``Accept-Language`` decides, among ``settings.LANGUAGES``. A language that the project's middleware chose stays.
    """
    asked = request.META.get("HTTP_ACCEPT_LANGUAGE")
    if not asked or len(asked) > MAX_HEADER or not django_settings.USE_I18N:
        return None
    if translation.get_language() != django_settings.LANGUAGE_CODE:
        return None
    return translation.get_language_from_request(request)


def in_own_context(request: HttpRequest, work: Callable[[], T]) -> T:
    """Return what the work gives, in the language of the call.

    What it leaves behind in context variables, which hold the active language and time zone, ends with it.
    """

    def run() -> T:
        if language := language_of(request):
            translation.activate(language)
        return work()

    return copy_context().run(run)


@contextmanager
def own_locale(request: HttpRequest) -> Iterator[None]:
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


# Pages


@contextmanager
def page_language(request: HttpRequest | None) -> Iterator[None]:
    """Answer a person in the language of their browser, as far as the pages are translated, and wholly in one language.

    Without a request it is the one that is active.
    """
    wanted = None if request is None else language_of(request)
    with translation.override(wanted or translation.get_language()), translation.override(shown_language()):
        yield


def shown_language() -> str:
    """Return the language that the texts of pages have now: the active one, or that of the catalogue in its stead."""
    # The catalogue says it itself, as Django falls back from one to another.
    catalogue = translation.pgettext("the code of the language of these texts", "en")
    active = translation.get_language() or catalogue
    return active if active.partition("-")[0] == catalogue or active == catalogue else catalogue
