"""The caller's language, in which labels, help texts and error messages are; stored values are not translated."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.conf import settings as django_settings
from django.http import HttpRequest
from django.utils import timezone, translation

# Characters beyond which an Accept-Language header is ignored.
MAX_HEADER: Final = 500


class CallerLanguage:
    """The language of a request's caller, as on an admin page, by ``Accept-Language``.

    ``code`` is one of ``settings.LANGUAGES``, None for the active one. A language that the project's middleware chose
    stays, and so does the active one without a request.
    """

    __slots__ = ("code",)

    def __init__(self, request: HttpRequest | None) -> None:
        self.code: str | None = None
        asked = None if request is None else request.META.get("HTTP_ACCEPT_LANGUAGE")
        if request is None or not asked or len(asked) > MAX_HEADER or not django_settings.USE_I18N:
            return
        if translation.get_language() == django_settings.LANGUAGE_CODE:
            self.code = translation.get_language_from_request(request)

    def activate(self) -> None:
        """Activate the language, as an admin page does for a browser, in a context that ends with the call."""
        if self.code:
            translation.activate(self.code)

    @contextmanager
    def for_coroutine(self) -> Iterator[None]:
        """Activate the language for a coroutine, and restore language and time zone afterwards."""
        language = translation.get_language()
        zone = timezone.get_current_timezone()
        self.activate()
        try:
            yield
        finally:
            if translation.get_language() != language:
                _restore(language)
            if timezone.get_current_timezone() is not zone:
                timezone.activate(zone)

    @contextmanager
    def for_page(self) -> Iterator[None]:
        """Activate the language in which an admin page would appear: the browser's, if the pages are translated into
        it."""
        with translation.override(self.code or translation.get_language()), translation.override(self.shown()):
            yield

    @staticmethod
    def shown() -> str:
        """Return the language that translated pages have now: the active one, or the catalogue's fallback."""
        # Ask the catalogue for its language, because Django falls back from one catalogue to another.
        catalogue = translation.pgettext("the code of the language of these texts", "en")
        active = translation.get_language() or catalogue
        if active.partition("-")[0] == catalogue or active == catalogue:
            return active
        return catalogue


def _restore(language: str | None) -> None:
    if language is None:
        translation.deactivate_all()
    elif language == django_settings.LANGUAGE_CODE:
        translation.deactivate()
    else:
        translation.activate(language)
