"""Sign-in facts: a second factor or a choice at sign-in that is stored with tokens, and the mark of the password.

A token has no session. What hooks would look up there, such as a second factor, is stored with the token when its user
agrees. Each call checks it again, and puts it where hooks look for it.
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
from .context.call_restrictions import Narrowing


class FactName:
    """Names of the facts that the app itself keeps with a token, beside those of ``SIGN_IN_FACTS``."""

    # The mark of the password.
    CREDENTIAL: Final = "credential"
    # The key of the service account that has the token.
    SERVICE_ACCOUNT: Final = "service_account"
    # The key of the link to an identity provider by which the token's user was found.
    LINKED_IDENTITY: Final = "linked_identity"
    # The labels of the options chosen at the consent page, by the names of the choices.
    CHOSEN: Final = "chosen"


class SignInFact:
    """Base class of a sign-in fact. Name a subclass in ``MCP_DJANGO["SIGN_IN_FACTS"]``.

    ``name`` is the key under which the fact is kept with the token.
    """

    name = ""

    def keep(self, request: HttpRequest) -> Any:
        """Return the value to store, as JSON, from the request of the consent page; None for nothing.

        ``request`` has the session and the user of the browser.
        """
        raise NotImplementedError

    def restore(self, request: HttpRequest, value: Any) -> None:
        """Set the stored value on ``request`` or its ``user``, where hooks look for it.

        ``value`` is what :meth:`keep` returned, maybe weeks ago, and None where nothing was kept: for tokens of
        ``mcp_token``, for stdio and for other authentication. Check that it still holds.
        """
        raise NotImplementedError

    def assume(self, request: HttpRequest) -> None:
        """Set the value as after the strongest sign-in, to test whether an admin would then let the user in.

        The request is only used to ask an admin site for its permission.
        """


class SignInChoice(SignInFact):
    """Base class of a sign-in fact that users choose at the consent page, such as a tenant.

    ``label`` says what is chosen. The value that the user chooses among :meth:`choices` is stored with the token.
    """

    label: Any = ""

    def choices(self, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        """Return the options for the user: values, and words for them; none to ask nothing.

        ``request`` is that of the consent page. The first option is preselected.
        """
        raise NotImplementedError

    def keep(self, request: HttpRequest) -> None:
        """Return None: the choice is not in the session."""


class OTPDevice(SignInFact):
    """Sign-in fact of django-otp: the device that verified the user (``user.otp_device``).

    Without django-otp it does nothing.
    """

    name = "otp_device"

    def keep(self, request: HttpRequest) -> str | None:
        """Return the persistent id of the device that verified the user."""
        device = getattr(request.user, "otp_device", None)
        return None if device is None else str(device.persistent_id)

    def restore(self, request: HttpRequest, value: Any) -> None:
        """Set the device of the sign-in on the user, if it still exists, is confirmed and is the user's."""
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
        """Set a device on the user, as if one had verified the user."""
        user: Any = request.user
        user.otp_device = self
        user.is_verified = lambda: True


@dataclass(frozen=True, slots=True)
class Question:
    """A choice to show at the consent page: the fact's ``name``, its label, and words by value."""

    name: str
    label: Any
    options: Mapping[str, Any]


class Questions(list[Question]):
    """The choices to ask the user of the consent page for."""

    def answered(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the choices that the user made in a form, as facts to store; None if a value was no option."""
        facts: dict[str, Any] = {}
        words: dict[str, str] = {}
        for question in self:
            value = given.get(f"fact_{question.name}", "")
            if value not in question.options:
                return None
            facts[question.name] = value
            words[question.name] = str(question.options[value])
        return facts | ({FactName.CHOSEN: words} if words else {})


class SignIn:
    """The sign-in of the user of a ``request``: that of a browser with a session, or that of a call with a token."""

    __slots__ = ("request",)

    def __init__(self, request: Any) -> None:
        self.request = request

    def facts(self) -> dict[str, Any]:
        """Return all facts to store, by name; the request is that of the consent page."""
        facts = {fact.name: fact().keep(self.request) for fact in settings.SIGN_IN_FACTS}
        known = {name: value for name, value in facts.items() if value is not None}
        return known | credential_of(self.request.user)

    def questions(self) -> Questions:
        """Return the choices to ask the user for; the request is that of the consent page."""
        choices = [fact() for fact in settings.SIGN_IN_FACTS if issubclass(fact, SignInChoice)]
        questions = Questions()
        for fact in choices:
            options = {str(key): text for key, text in fact.choices(self.request)}
            if options:
                questions.append(Question(fact.name, fact.label, options))
        return questions

    def restore(self) -> None:
        """Restore the facts of a call's token on its request; a restricted call gets a restricted user."""
        request = self.request
        if Narrowing.FACT in request.mcp.facts:
            Narrowing.apply(request)
        for fact in settings.SIGN_IN_FACTS:
            fact().restore(request, request.mcp.facts.get(fact.name))

    def act_as(self, user: Any, scopes: frozenset[str]) -> None:
        """Let a request without a token act as ``user`` with ``scopes``, and restore its facts."""
        self.request.user = user
        self.request.auth = None
        self.request.mcp.scopes = scopes
        self.restore()

    def would_admit(self, admin_site: AdminSite) -> bool:
        """Return whether an admin site lets the user in after the strongest sign-in, True if it cannot be asked."""
        assumed = copy(self.request)
        assumed.user = copy(self.request.user)
        try:
            for fact in settings.SIGN_IN_FACTS:
                fact().assume(assumed)
            return bool(admin_site.has_permission(assumed))
        except Exception:
            return True


def chosen_words(facts: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return what was chosen for a token, as labels and words."""
    words = facts.get(FactName.CHOSEN)
    choices = [fact for fact in settings.SIGN_IN_FACTS if issubclass(fact, SignInChoice)]
    return [(fact.label, words[fact.name]) for fact in choices if isinstance(words, dict) and fact.name in words]


# The password


def credential_of(user: Any) -> dict[str, str]:
    """Return the mark of the user's password, to store with facts; empty for users without a password."""
    hashed = getattr(user, "get_session_auth_hash", None)
    return {} if hashed is None else {FactName.CREDENTIAL: _mark(hashed())}


def is_current(user: Any, facts: Mapping[str, Any]) -> bool:
    """Return whether the user's password is still the one of the sign-in, as Django asks of a session.

    Facts that were stored without a mark count as current.
    """
    mark = facts.get(FactName.CREDENTIAL)
    if mark is None:
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
    """Return whether this user model makes its session hash as Django does, so that the mark needs no instance."""
    # No model can be imported before the apps are loaded.
    from django.contrib.auth.base_user import AbstractBaseUser

    hooks = ("get_session_auth_hash", "_get_session_auth_hash")
    return all(getattr(model, hook, None) is getattr(AbstractBaseUser, hook, model) for hook in hooks)


@lru_cache(maxsize=1024)
def _stock_mark(password: str) -> str:
    """Return the mark of a stored password, computed at the first call with the password."""
    from django.contrib.auth.base_user import AbstractBaseUser

    holder: Any = SimpleNamespace(password=password)
    return _mark(AbstractBaseUser._get_session_auth_hash(holder))  # type: ignore[attr-defined]


def _forget(**kwargs: Any) -> None:
    _stock_mark.cache_clear()
    _has_otp.cache_clear()


# A setting such as SECRET_KEY changes the marks.
setting_changed.connect(_forget)


def _mark(hashed: str) -> str:
    """Return the mark that follows from a session hash: it distinguishes passwords, but opens no session."""
    return hashlib.sha256(b"mcp_django.signin " + hashed.encode()).hexdigest()[:32]
