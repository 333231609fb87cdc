"""Middleware that a project has for the time zone and the language of its users."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation


def in_tokyo(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Serve each request in German and in the time of Tokyo."""

    def middleware(request: HttpRequest) -> HttpResponse:
        with timezone.override("Asia/Tokyo"), translation.override("de"):
            return get_response(request)

    return middleware
