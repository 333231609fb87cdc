"""Facts about the sign-in at the consent page that are kept with the tokens, and the password that was used.

A token has no session. What hooks would look up there, such as a second factor, is kept with the token when its user
agrees, and put where hooks look for it with each call, checked anew.
"""

import hashlib
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any, Final

from django.apps import apps
from django.contrib.admin import AdminSite
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare
from django.utils.module_loading import import_string

from .conf import settings
from .context.narrowing import NARROWED_TO, narrow

# Where the mark of the password is kept among the facts, and the keys of the service account that has the token and of
# the link to an identity provider by which its user was found.
CREDENTIAL: Final = "credential"
SERVICE_ACCOUNT: Final = "service_account"
LINKED_IDENTITY: Final = "linked_identity"
# Under which the words of what was chosen at the consent page are kept, by the names of the facts.
CHOSEN: Final = "chosen"


class SignInFact:
    """One fact about a sign-in. Name a subclass in ``MCP_DJANGO["SIGN_IN_FACTS"]``.

    ``name`` is the key under which the fact is kept with the token.
    """

    name = ""

    def keep(self, request: HttpRequest) -> Any:
        """Return the fact, as JSON, of the request by which a user agrees; None when there is none.

        ``request`` has the session and the user of the browser.
        """
        raise NotImplementedError

    def restore(self, request: HttpRequest, value: Any) -> None:
        """Put the fact where hooks look for it: on ``request``, or on its ``user``.

        ``value`` is what :meth:`keep` returned, maybe weeks ago, and None where nothing was kept: for tokens of
        ``mcp_token``, for stdio and for other authentication. Check that it still holds.
        """
        raise NotImplementedError

    def assume(self, request: HttpRequest) -> None:
        """Put the fact there as if the user had signed in with all that can be asked for.

        An admin is asked with such a request, which nobody else sees, to tell whether this is why a user is not let in.
        """


class SignInChoice(SignInFact):
    """A fact that users choose at the consent page, such as the tenant that an application is for.

    ``label`` says what is chosen. What is kept with the token is the value that was chosen among :meth:`choices`.
    """

    label: Any = ""

    def choices(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        """Return values and their words, for the user of the request; where there are none, nothing is asked.

        ``request`` is that of the consent page. The first one is what is chosen unless the user chooses another.
        """
        raise NotImplementedError

    def keep(self, request: HttpRequest) -> None:
        """Return nothing: the session has nothing to do with it."""


class OTPDevice(SignInFact):
    """The device of django-otp that verified the user: ``user.otp_device`` and ``user.is_verified()``.

    Without django-otp it does nothing.
    """

    name = "otp_device"

    def keep(self, request: HttpRequest) -> str | None:
        """Return the persistent id of the device that has verified the user of this session."""
        device = getattr(request.user, "otp_device", None)
        return None if device is None else str(device.persistent_id)

    def restore(self, request: HttpRequest, value: Any) -> None:
        """Let the user be verified while the device is there, is confirmed and is the user's own."""
        user: Any = request.user
        if not _has_otp():
            return
        device = None
        if isinstance(value, str):
            device = import_string("django_otp.models.Device").from_persistent_id(value)
            if device is not None and (device.user_id != user.pk or not device.confirmed):
                device = None
        user.otp_device = device
        user.is_verified = lambda: user.otp_device is not None

    def assume(self, request: HttpRequest) -> None:
        """Let the user be verified."""
        user: Any = request.user
        user.otp_device, user.is_verified = self, lambda: True


def keep(request: HttpRequest) -> dict[str, Any]:
    """Return all that is kept of the request by which a user agrees."""
    kept = {fact.name: fact().keep(request) for fact in settings.SIGN_IN_FACTS}
    return {name: value for name, value in kept.items() if value is not None} | credential_of(request.user)


@dataclass(frozen=True, slots=True)
class Question:
    """A choice to be made at the consent page: ``name`` is that of the fact, ``options`` are words by value."""

    name: str
    label: Any
    options: Mapping[str, Any]


def questions_for(request: HttpRequest) -> list[Question]:
    """Return what the user of the consent page has to choose."""
    asked = [fact() for fact in settings.SIGN_IN_FACTS if issubclass(fact, SignInChoice)]
    found = [Question(fact.name, fact.label, {str(key): text for key, text in fact.choices(request)}) for fact in asked]
    return [question for question in found if question.options]


def chosen_words(facts: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return what was chosen for a token at the consent page: labels and the words that were shown."""
    words, asked = facts.get(CHOSEN), [fact for fact in settings.SIGN_IN_FACTS if issubclass(fact, SignInChoice)]
    return [(fact.label, words[fact.name]) for fact in asked if isinstance(words, dict) and fact.name in words]


def restore(request: Any) -> None:
    """Put what is kept with the token of a call where hooks look for it; ``request`` has its user and ``mcp.facts``.

    A call that was narrowed gets a user with fewer permissions.
    """
    if NARROWED_TO in request.mcp.facts:
        narrow(request)
    for fact in settings.SIGN_IN_FACTS:
        fact().restore(request, request.mcp.facts.get(fact.name))


def act_as(request: Any, user: Any, scopes: frozenset[str]) -> None:
    """Let a request without a token act as ``user`` with ``scopes``, and with the facts that it has."""
    request.user, request.auth = user, None
    request.mcp.scopes = scopes
    restore(request)


def would_admit(request: HttpRequest, admin_site: AdminSite) -> bool:
    """Return whether an admin that does not let the user in would, had they signed in with all that can be asked for.

    One that cannot be asked may.
    """
    assumed = copy(request)
    assumed.user = copy(request.user)
    try:
        for fact in settings.SIGN_IN_FACTS:
            fact().assume(assumed)
        return bool(admin_site.has_permission(assumed))
    except Exception:
        return True


# The password


def credential_of(user: Any) -> dict[str, str]:
    """Return the mark of the user's password, as part of the facts; empty for users without one."""
    hashed = getattr(user, "get_session_auth_hash", None)
    return {} if hashed is None else {CREDENTIAL: _mark(hashed())}


def is_current(user: Any, facts: Mapping[str, Any]) -> bool:
    """Return whether the user has the password of the time when the facts were kept, as Django asks of a session.

    What was kept without the mark of a password is taken as current, and with ``REVOKE_ON_PASSWORD_CHANGE`` off all is.
    """
    mark = facts.get(CREDENTIAL)
    if mark is None or not settings.REVOKE_ON_PASSWORD_CHANGE:
        return True
    model: Any = type(user)
    if _is_stock(model) and _stock_mark(user.password) == mark:
        return True
    hashed = getattr(user, "get_session_auth_hash", None)
    if hashed is None or constant_time_compare(mark, _mark(hashed())):
        return True
    fallbacks = getattr(user, "get_session_auth_fallback_hash", tuple)
    return any(constant_time_compare(mark, _mark(former)) for former in fallbacks())


@cache
def _has_otp() -> bool:
    return apps.is_installed("django_otp")


@lru_cache(maxsize=256)
def _is_stock(model: Any) -> bool:
    """Return whether Django's own hash of the password alone tells whether a session is current."""
    # No model can be imported before the apps are loaded.
    from django.contrib.auth.base_user import AbstractBaseUser

    hooks = ("get_session_auth_hash", "_get_session_auth_hash")
    return all(getattr(model, hook, None) is getattr(AbstractBaseUser, hook, model) for hook in hooks)


@lru_cache(maxsize=1024)
def _stock_mark(password: str) -> str:
    """Return the mark of a stored password, which is worked out for the first call with it alone."""
    from django.contrib.auth.base_user import AbstractBaseUser

    holder: Any = SimpleNamespace(password=password)
    return _mark(AbstractBaseUser._get_session_auth_hash(holder))  # type: ignore[attr-defined]


def _forget(**kwargs: Any) -> None:
    _stock_mark.cache_clear()
    _has_otp.cache_clear()


# The key of the site, say.
setting_changed.connect(_forget)


def _mark(hashed: str) -> str:
    """Return what tells one password from another, of which no session can be made."""
    return hashlib.sha256(b"mcp_django.signin " + hashed.encode()).hexdigest()[:32]
