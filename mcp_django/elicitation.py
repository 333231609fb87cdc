"""Confirmation tokens: a call that must be confirmed is repeated with the token of its preview.

A token holds a nonce and a time; what it stands for (user, client, site, tool, arguments, the exact objects) is only in
the key of its signature, so it tells nothing and fits nothing else. It is signed with ``SECRET_KEY``, verified with
``SECRET_KEY_FALLBACKS`` too, expires after ``CONFIRMATION_MAX_AGE`` seconds, and is used up in Django's default cache:
it is single-use across workers when they share that cache, and within each worker when they do not.
"""

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.core.cache import cache
from django.core.signing import BadSignature, SignatureExpired, TimestampSigner, b62_decode
from django.db.models import Model

from .conf import settings
from .context import MCPRequest
from .exceptions import ToolError

__all__ = ["issue", "redeem"]

logger = logging.getLogger("mcp_django.elicitation")

# One text for every cause: which of them it was is for the log.
REFUSED: Final = (
    "This confirm_token is not valid: it was used, has expired, or belongs to another call. "
    "Nothing was changed. Repeat the call without confirm_token to get a new preview and token."
)
# Seconds that the clocks of workers may differ.
CLOCK_SKEW: Final = 60
MAX_TOKEN_CHARS: Final = 200


def issue(request: MCPRequest, tool: str, arguments: Mapping[str, Any], objects: Iterable[Any]) -> str:
    """Return a token that confirms this call once.

    ``arguments`` are those that the confirmed call must repeat, without the token. ``objects`` are what the call
    touches, in any order: model instances, or values that tell them apart.
    """
    return _signer(request, tool, arguments, objects).sign(secrets.token_urlsafe(16))


def redeem(request: MCPRequest, token: Any, tool: str, arguments: Mapping[str, Any], objects: Iterable[Any]) -> None:
    """Use up a token of :func:`issue` for the same user, client, site, tool, arguments and objects.

    Raises:
        ToolError: the token does not fit, is too old, or was used; one text for all of these.
    """
    try:
        nonce = _verified(_signer(request, tool, arguments, objects), token)
    except BadSignature as error:
        logger.info("Confirmation of %s refused: %s", tool, type(error).__name__)
        raise ToolError(REFUSED) from None
    if not cache.add(f"mcp_django:confirmed:{nonce}", True, settings.CONFIRMATION_MAX_AGE + CLOCK_SKEW):
        logger.info("Confirmation of %s refused: used", tool)
        raise ToolError(REFUSED)


def _verified(signer: TimestampSigner, token: Any) -> str:
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not token.isascii():
        raise BadSignature("not a token")
    nonce = signer.unsign(token, max_age=settings.CONFIRMATION_MAX_AGE)
    if b62_decode(token.split(":")[1]) > time.time() + CLOCK_SKEW:
        raise SignatureExpired("signed in the future")
    return nonce


def _signer(request: MCPRequest, tool: str, arguments: Mapping[str, Any], objects: Iterable[Any]) -> TimestampSigner:
    mcp, user = request.mcp, request.user
    owner = [user._meta.label, str(user.pk)] if isinstance(user, Model) else ["anonymous"]
    bound = [owner, mcp.client_id, mcp.site.name, mcp.resource, tool, arguments, sorted(map(_named, objects))]
    digest = hashlib.sha256(_canonical(bound).encode()).hexdigest()
    return TimestampSigner(salt=f"mcp_django.elicitation.{digest}")


def _named(item: Any) -> str:
    return _canonical([item._meta.label, str(item.pk)]) if isinstance(item, Model) else _canonical(item)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
