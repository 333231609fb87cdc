"""The card of an endpoint, at the endpoint's URL and ``/server-card``: a plain view of Django, on either road."""

import re
from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import URLPattern, re_path
from django.views.decorators.http import conditional_page

from ...conf import settings
from ...oauth.cors import cors
from ...oauth.metadata import CARD, MAX_AGE
from ...server.card import card

_OWN: Final = re.compile(r"/?server-card/?\Z")


def card_urls() -> list[URLPattern]:
    """Return the pattern of the card, relative to where an endpoint is mounted."""
    return [re_path(r"^(?:/)?server-card/?$", server_card, name="card")]


@login_not_required
@cors("GET", "HEAD")
@conditional_page
def server_card(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
    """Answer with the card, where ``SERVER_CARD`` lets anyone read it."""
    if not settings.SERVER_CARD:
        return JsonResponse({"error": "not_found"}, status=404, headers={"Cache-Control": "no-store"})
    if request.method not in ("GET", "HEAD"):
        return JsonResponse({"error": "method_not_allowed"}, status=405, headers={"Allow": "GET, HEAD, OPTIONS"})
    found = card(request, _OWN.sub("", request.path_info))
    return JsonResponse(found, content_type=CARD, headers={"Cache-Control": f"public, max-age={MAX_AGE}"})
