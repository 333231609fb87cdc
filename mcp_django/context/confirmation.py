"""Confirmation tokens: a call that must be confirmed is repeated with the token of its preview.

A token holds a nonce and a time; what it stands for (user, client, site, tool, arguments, the exact objects) is only in
the key of its signature, so it tells nothing and fits nothing else. It is signed with ``SECRET_KEY``, verified with
``SECRET_KEY_FALLBACKS`` too, expires after ``CONFIRMATION_MAX_AGE`` seconds, and is used up in Django's default cache:
it is single-use across workers when they share that cache, and within each worker when they do not.

A state (``requestState``; 2026-07-28, basic/patterns/mrtr) goes the same way between the rounds of a call that asks:
sealed, bound to the user, the client, the site and the call, good for ``QUESTION_TIMEOUT`` seconds. Where one may be
used only once is for :class:`~mcp_django.context.questions.Answers` to know.
"""

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from django.core.signing import BadSignature, SignatureExpired, TimestampSigner, b62_decode
from django.db.models import Model

from ..conf import settings
from ..exceptions import ToolError
from ..protocol.errors import InvalidParams
from .questions import CLOCK_SKEW, STATE_ERROR, use_up
from .request import MCPRequest
from .sealing import seal, unseal

__all__ = ["REFUSED", "identify", "issue", "open_state", "redeem", "seal_state"]

logger = logging.getLogger("mcp_django.context.confirmation")

# One text for every cause: which of them it was is for the log.
REFUSED: Final = (
    "This confirm_token is not valid: it was used, has expired, or belongs to another call. "
    "Nothing was changed. Repeat the call without confirm_token to get a new preview and token."
)
MAX_TOKEN_CHARS: Final = 200
MAX_STATE_CHARS: Final = 64 * 1024
# Members of a call's parameters that differ from round to round.
UNBOUND: Final = frozenset({"_meta", "inputResponses", "requestState"})


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
    if not use_up("confirmed", nonce, settings.CONFIRMATION_MAX_AGE):
        logger.info("Confirmation of %s refused: used", tool)
        raise ToolError(REFUSED)


def _verified(signer: TimestampSigner, token: Any) -> str:
    if not isinstance(token, str) or len(token) > MAX_TOKEN_CHARS or not token.isascii():
        raise BadSignature("not a token")
    nonce = signer.unsign(token, max_age=settings.CONFIRMATION_MAX_AGE)
    if _is_from_the_future(token):
        raise SignatureExpired("signed in the future")
    return nonce


def _is_from_the_future(signed: str) -> bool:
    return b62_decode(signed.split(":")[1]) > time.time() + CLOCK_SKEW


def _signer(request: MCPRequest, tool: str, arguments: Mapping[str, Any], objects: Iterable[Any]) -> TimestampSigner:
    digest = _digest([*_caller(request), tool, arguments, sorted(map(_named, objects))])
    return TimestampSigner(salt=f"mcp_django.context.confirmation.{digest}")


def _caller(request: MCPRequest) -> list[Any]:
    mcp, user = request.mcp, request.user
    owner = [user._meta.label, str(user.pk)] if isinstance(user, Model) else ["anonymous"]
    return [owner, mcp.client_id, mcp.site.name, mcp.resource]


def identify(objects: Iterable[Any]) -> str:
    """Return what tells these objects, in any order, from any others: see :func:`issue`."""
    return _digest(sorted(map(_named, objects)))


def _named(item: Any) -> str:
    return _canonical([item._meta.label, str(item.pk)]) if isinstance(item, Model) else _canonical(item)


def _digest(bound: list[Any]) -> str:
    return hashlib.sha256(_canonical(bound).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


# States


def seal_state(request: MCPRequest, method: str, params: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Return the state, which is JSON, sealed for the next round of this call; no two are alike."""
    return seal(_state_salt(request, method, params), orjson.dumps(state), unique=True)


def open_state(request: MCPRequest, method: str, params: Mapping[str, Any], text: Any) -> dict[str, Any]:
    """Return the state that :func:`seal_state` sealed for this caller and this call.

    Raises:
        InvalidParams: it is anything else, or too old; one text for all of these.
    """
    data = unseal(_state_salt(request, method, params), text, settings.QUESTION_TIMEOUT, MAX_STATE_CHARS)
    if data is None or _is_from_the_future(text):
        logger.info("State of %s refused: %s", method, "not of this call or too old" if data is None else "future")
        raise InvalidParams(STATE_ERROR)
    state: dict[str, Any] = orjson.loads(data)
    return state


def _state_salt(request: MCPRequest, method: str, params: Mapping[str, Any]) -> str:
    bound = {name: value for name, value in params.items() if name not in UNBOUND}
    return f"mcp_django.context.confirmation.state.{_digest([*_caller(request), method, bound])}"
