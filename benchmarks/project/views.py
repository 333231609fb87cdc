"""Bare async views: token, permission and the rows, in one thread hop.

The hop goes to the loop's own threads, which keep their connections: in Django's thread-sensitive context each request
would open a new one.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from oauth2_provider.models import get_access_token_model

from . import forms, rows
from .settings import ENDPOINT

UNAUTHORIZED, FORBIDDEN = 401, 403


def guarded(request: HttpRequest, answer: Callable[[], dict[str, Any]], write: bool = False) -> HttpResponse:
    """Answer with what ``answer`` gives, for the user of the bearer token, if the token is good for it.

    It has to be good for the endpoint, and its user may view, or change, articles.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    checksum = hashlib.sha256(token.encode()).hexdigest()
    found = get_access_token_model().objects.select_related("user").filter(token_checksum=checksum).first()
    if scheme != "Bearer" or found is None or found.user is None:
        return HttpResponse(status=UNAUTHORIZED)
    if not found.is_valid(["mcp:write" if write else "mcp:read"]):
        return HttpResponse(status=UNAUTHORIZED)
    if not found.user.is_active or ENDPOINT not in found.resource:
        return HttpResponse(status=UNAUTHORIZED)
    if not found.user.has_perm("bench.change_article" if write else "bench.view_article"):
        return HttpResponse(status=FORBIDDEN)
    request.user = found.user
    return JsonResponse(answer())


in_thread = sync_to_async(guarded, thread_sensitive=False)


async def articles(request: HttpRequest) -> HttpResponse:
    """Answer with the newest articles of ``status``, ``limit`` of them."""
    status, limit = request.GET["status"], int(request.GET["limit"])
    return await in_thread(request, lambda: rows.page(status, limit))


@csrf_exempt
async def article(request: HttpRequest, pk: int) -> HttpResponse:
    """Answer with one article; POST changes fields of it first, as the admin's page would."""
    if request.method == "POST":
        values = json.loads(request.body)
        return await in_thread(request, lambda: forms.change_article(request, pk, values), write=True)
    return await in_thread(request, lambda: rows.record(pk))


async def totals(request: HttpRequest) -> HttpResponse:
    """Answer with the totals ``since`` a day."""
    since = request.GET["since"]
    return await in_thread(request, lambda: rows.totals(since))
