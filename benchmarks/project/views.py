"""Bare async views: token, permission and the rows, in one thread hop.

The hop goes to the loop's own threads, which keep their connections: in Django's thread-sensitive context each request
would open a new one.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from oauth2_provider.models import get_access_token_model

from . import rows
from .settings import ENDPOINT

UNAUTHORIZED, FORBIDDEN = 401, 403


def guarded(request: HttpRequest, read: Callable[[], dict[str, Any]]) -> HttpResponse:
    """Answer with what ``read`` gives if the bearer token is good for the endpoint and its user may view articles."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    checksum = hashlib.sha256(token.encode()).hexdigest()
    found = get_access_token_model().objects.select_related("user").filter(token_checksum=checksum).first()
    if scheme != "Bearer" or found is None or found.user is None or not found.is_valid(["mcp:read"]):
        return HttpResponse(status=UNAUTHORIZED)
    if not found.user.is_active or ENDPOINT not in found.resource:
        return HttpResponse(status=UNAUTHORIZED)
    if not found.user.has_perm("bench.view_article"):
        return HttpResponse(status=FORBIDDEN)
    return JsonResponse(read())


async def articles(request: HttpRequest) -> HttpResponse:
    """Answer with the newest articles of ``status``, ``limit`` of them."""
    status, limit = request.GET["status"], int(request.GET["limit"])
    return await sync_to_async(guarded, thread_sensitive=False)(request, lambda: rows.page(status, limit))


async def article(request: HttpRequest, pk: int) -> HttpResponse:
    """Answer with one article."""
    return await sync_to_async(guarded, thread_sensitive=False)(request, lambda: rows.record(pk))
