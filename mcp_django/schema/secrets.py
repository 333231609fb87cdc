"""Secrets: fields that hold a credential by their name, and texts that look like one; both are shown to nobody.

Also models of accounts: users, what they sign in with, and the fields that give them rights. A site exposes such a
model only if a project registers it. An exposure that names a field itself still shows it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import FieldDoesNotExist
from django.core.signals import setting_changed
from django.db.models import (
    BooleanField,
    CharField,
    DateField,
    DurationField,
    EmailField,
    Model,
    SlugField,
    TextField,
    URLField,
)
from django.db.models.base import ModelBase
from django.dispatch import receiver

MAX_NAME: Final = 200
# Takes the place of a secret in JSON.
HIDDEN: Final = "<hidden>"
_SENSITIVE: Final = re.compile(
    r"(?:^|_)(?:pass(?:word|wd|phrase|code)s?[0-9]*|pwd[0-9]*|secrets?|tokens?|jwts?|[ht]?otp|mfa|pin|cvv|cvc|ssn|salt"
    r"|hash|p256dh|(?:seed|recovery|mnemonic)_?(?:phrase|words?)s?|mnemonic|connection_?(?:string|ur[il])s?|dsn"
    r"|credentials?|session_?data|hashed_?(?:key|code)|(?:key|code)_?digest"
    r"|(?:api|private|secret|access|session|encryption|signing|auth|ssh|recovery|backup|cert(?:ificate)?|client"
    r"|webhook|hmac|master|activation|verification|confirm(?:ation)?|reset|login|ping|feed|ical|invit(?:e|ation)"
    r"|unsubscribe|magic|one_?time|shar(?:e|ing)|ingest|stream|unlock)_?(?:key|code)s?)(?:_?hash)?(?:$|_)"
    r"|(?:^|_)pass$|^auth$"
)
# Names with these endings say something about a secret, such as its type or whether it was checked.
_ABOUT: Final = re.compile(r"_(?:check(?:s|ed)?|type|status|count|enabled|required)$")
_HARMLESS: Final = (BooleanField, DateField, DurationField)
# Splits words before a capital, and an abbreviation from the word after it: ``apiKey``, ``HOTPDevice``.
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Names of models whose rows are credentials, and names of fields that hold a secret only in such models.
_HOLDER: Final = re.compile(r"(?:^|_)(?:authenticator|confirmation|verification|invitation|passkey|webauthn)s?(?:$|_)")
_BARE: Final = frozenset({"code", "data", "digest", "key", "seed", "value"})
# Names of models with a key or code that was sent to somebody for one use, and of fields that say it was used.
_SENT: Final = re.compile(r"(?:^|_)(?:confirm|activation|sign_?up|opt_?in|unsubscribe|verify|invite)s?(?:$|_)")
_DONE: Final = re.compile(r"(?:^|_)(?:confirmed|verified|activated|validated)(?:$|_)")
# Characters that a text field must be able to hold to count as a random secret.
LONG: Final = 16


@lru_cache(maxsize=8192)
def is_sensitive(name: str, model: type[Model] | None = None) -> bool:
    """Return whether a field's name says that it holds a secret (``password``, ``api_key``, ``card_token``).

    With its model, the field's type counts too: booleans, dates and fields with choices are not secrets, and a relation
    is one if the key that it stores is. ``key`` and similar names are secrets if the model's name says so
    (``Authenticator``, ``HOTPDevice``), ``key`` also beside another credential of the model or beside an e-mail address
    that it confirms, and any ``key`` that is random: a long text with a default for each row.
    """
    field = _field(model, name) if model is not None else None
    if field is not None and field.is_relation:
        if field.related_model is None:
            return False
        target = field.target_field if field.concrete and not field.many_to_many else field.related_model._meta.pk
        return target is not field and is_sensitive(target.name, target.model)
    if isinstance(field, _HARMLESS) or getattr(field, "choices", None):
        return False
    words = _CAMEL.sub("_", name).lower()
    if _SENSITIVE.search(words) is not None and _ABOUT.search(words) is None:
        return True
    if model is None or not (words in _BARE or words.endswith("_key")):
        return False
    drawn = words.endswith("key") and is_long(field) and is_drawn(field)
    return drawn or (words in _BARE and _holds_credentials(model, words))


def is_long(field: Any) -> bool:
    """Return whether a field could be a secret by its length: it can hold long texts, and is not the primary key."""
    ordinary = isinstance(field, (SlugField, EmailField, URLField)) or not isinstance(field, (CharField, TextField))
    return not ordinary and not field.primary_key and (field.max_length or LONG) >= LONG


def is_drawn(field: Any) -> bool:
    """Return whether a field could be a secret by its default, which is generated for each row."""
    return callable(field.default) and not isinstance(field.default, type)


def _field(model: type[Model], name: str) -> Any:
    try:
        return model._meta.get_field(name)
    except FieldDoesNotExist:
        return None


def is_of_credentials(model: type[Model]) -> bool:
    """Return whether a model's name says that its rows are secrets, such as ``Authenticator`` or ``APIToken``."""
    words = _words(model)
    return bool(_HOLDER.search(words) or _SENSITIVE.search(words))


def _words(model: type[Model]) -> str:
    return _CAMEL.sub("_", model._meta.object_name or "").lower()


def _holds_credentials(model: type[Model], name: str) -> bool:
    if is_of_credentials(model):
        return True
    words = _words(model)
    if name in ("code", "key") and _SENT.search(words) and is_long(_field(model, name)):
        return True
    fields = model._meta.concrete_fields
    texts = (field.name for field in fields if isinstance(field, (CharField, TextField)))
    if name != "key":
        return False
    if any(map(is_sensitive, texts)):
        return True
    # The model has an e-mail address, and whether it is confirmed.
    done = any(isinstance(field, _HARMLESS) and _DONE.search(field.name) for field in fields)
    return done and any(isinstance(field, EmailField) for field in fields)


# Accounts

# Packages whose models hold what people and programs sign in with, and so do models that are derived from theirs.
SIGN_IN_PACKAGES: Final = (
    *("allauth", "django.contrib.auth", "django.contrib.sessions", "django_otp", "knox", "mfa", "oauth2_provider"),
    *("passkeys", "rest_framework.authtoken", "rest_framework_api_key", "rest_framework_simplejwt", "social_django"),
    *("two_factor", "webauthn"),
)
# Names of fields of users that give rights, whatever their types.
RIGHTS: Final = frozenset(
    {"groups", "is_admin", "is_staff", "is_superuser", "password", "permissions", "user_permissions"}
)
# Names of fields that say whether an address was confirmed, and that identify an account elsewhere.
CONFIRMED: Final = frozenset({"activated", "confirmed", "is_confirmed", "is_verified", "validated", "verified"})
IDENTIFIER: Final = frozenset({"external_id", "identifier", "openid", "sub", "subject", "uid"})


@lru_cache(maxsize=2048)
def is_account(model: type[Model]) -> bool:
    """Return whether a model holds users, what they sign in with, or their rights."""
    opts = model._meta
    # A table that links two models belongs to the one that declares the relation.
    owner: Any = opts.auto_created
    if isinstance(owner, ModelBase):
        return is_account(owner)
    if any(_is_of_package(base.__module__) for base in model.__mro__) or is_user(model):
        return True
    fields = {field.name: field for field in opts.concrete_fields}
    related = [field.related_model for field in fields.values() if field.is_relation and field.related_model]
    if any(issubclass(other, _of_auth("Permission")) for other in related):
        return True
    if is_of_credentials(model) and any(is_sensitive(name, model) for name in fields):
        return True
    if not any(map(is_user, related)):
        return False
    confirmed = any(name in CONFIRMED and isinstance(fields[name], (BooleanField, DateField)) for name in fields)
    has_address = any(isinstance(field, EmailField) for field in fields.values())
    return (confirmed and has_address) or ("provider" in fields and not IDENTIFIER.isdisjoint(fields))


def needs_registration(model: type[Model]) -> bool:
    """Return whether a site exposes a model only if a project registers it: it holds accounts, or its primary key is a
    secret."""
    return is_account(model) or any(is_sensitive(field.name, field.model) for field in model._meta.pk_fields)


@lru_cache(maxsize=2048)
def is_user(model: type[Model]) -> bool:
    """Return whether the rows of a model are users."""
    from django.contrib.auth.base_user import AbstractBaseUser

    if issubclass(model, (AbstractBaseUser, *_of_auth("PermissionsMixin"))):
        return True
    labels = {other._meta.label_lower for other in (model, *model._meta.all_parents)}
    return settings.AUTH_USER_MODEL.lower() in labels


@lru_cache(maxsize=8192)
def gives_rights(name: str, model: type[Model]) -> bool:
    """Return whether a field of a user or group gives rights: ``is_superuser``, ``groups``, the password.

    Relations to groups and permissions count, whatever their names.
    """
    if not is_user(model) and not issubclass(model, _of_auth("Group")):
        return False
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return name in RIGHTS
    is_forward = field.is_relation and not field.auto_created
    if is_forward and field.related_model is not None:
        return issubclass(field.related_model, _of_auth("Group", "Permission")) or name in RIGHTS
    return name in RIGHTS


@lru_cache(maxsize=8192)
def is_withheld(name: str, model: type[Model]) -> bool:
    """Return whether callers get a field only if an exposure names it: it holds a secret, or gives rights."""
    return is_sensitive(name, model) or gives_rights(name, model)


@receiver(setting_changed)
def _user_model_changed(*, setting: str, **kwargs: Any) -> None:
    if setting == "AUTH_USER_MODEL":
        for function in (is_account, is_user, gives_rights, is_withheld):
            function.cache_clear()


def _is_of_package(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in SIGN_IN_PACKAGES)


def _of_auth(*names: str) -> tuple[type[Model], ...]:
    """Return classes of Django's users, which can be imported once the apps are loaded; none if it is not installed."""
    from django.apps import apps

    if not apps.is_installed("django.contrib.auth"):
        return ()
    from django.contrib.auth import models

    return tuple(getattr(models, name) for name in names)


# Values in JSON


def members(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a JSON object, with ``HIDDEN`` in place of secrets, which their names give away."""
    for key, item in value.items():
        name = str(key)
        plain = item is None or item == "" or isinstance(item, (bool, int, float))
        yield name, item if plain or not is_sensitive(name[:MAX_NAME]) else HIDDEN


def holds_hidden(value: Any) -> bool:
    """Return whether a JSON value contains ``HIDDEN``, which stands for a secret and must not overwrite it."""
    if isinstance(value, dict):
        return any(map(holds_hidden, value.values()))
    if isinstance(value, list):
        return any(map(holds_hidden, value))
    return value == HIDDEN


# Texts

# A member of a JSON object, or of the ``repr()`` of a dict, anywhere in a text.
_MEMBER: Final = re.compile(r"""(["'])([A-Za-z_][\w.-]{0,80})\1\s{0,8}:\s{0,8}(["'\[{])""")
_QUOTED: Final = {quote: re.compile(rf"(?:[^\\{quote}]|\\.)*+{quote}", re.DOTALL) for quote in "\"'"}
_BRACKETS: Final = re.compile(r"""[\[\]{}]|"(?:[^\\"]|\\.)*+"?|'(?:[^\\']|\\.)*+'?""", re.DOTALL)
_USER: Final = re.compile(r"""(?<=://)([^\s/?#@:"'<>]*+:)[^\s/?#@"'<>]++(?=@)""")
# The same where the rest of the text was cut off.
_USER_CUT: Final = re.compile(r"""(?<=://)([^\s/?#@:"'<>]*+:)[^\s/?#@"'<>]++(?=@|\Z)""")
# Characters behind a cut that are read, so that a secret across the cut is known as one.
BEYOND: Final = 1_000
# Code points that UTF-8 cannot hold, and characters that a person does not see but a model reads: zero-width and tag
# characters, and those that change the direction of text. Joiners and direction marks are needed between letters of
# some scripts and in emoji, so only others count.
_UNSEEN: Final = re.compile(
    "[\ud800-\udfff\u180e\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<![^\x00-\x7f\u200b-\u200f])[\u200c-\u200f]"
)
# Words that may be generated secrets, and the nouns that announce them.
_GENERATED: Final = re.compile(r"[\w.~+/=-]{12,}")
_ANNOUNCED: Final = re.compile(
    r"\b(?:keys?|tokens?|secrets?|pass(?:word|phrase|code)s?|credentials?|codes?|pins?)\b", re.IGNORECASE
)


def may_hold_secrets(text: str) -> bool:
    """Return whether a text could contain secrets at all, so that it has to be searched."""
    return "{" in text or ("://" in text and "@" in text)


def without_secrets(text: str, *, is_cut: bool = False, is_shown_once: bool = False) -> str:
    """Hide the secrets in a text: put ``HIDDEN`` for secrets in JSON, and for passwords in URLs.

    ``is_cut`` says that the text goes on: what could be the beginning of a password at its end is hidden too.
    ``is_shown_once`` says that it may announce a new secret that nobody sees again, such as a generated password.
    """
    if is_shown_once:
        rest = without_secrets(text, is_cut=is_cut)
        if _ANNOUNCED.search(rest):
            return _GENERATED.sub(_hidden_if_drawn, rest)
        return rest
    may_be_cut = is_cut and "://" in text
    if not may_be_cut and not may_hold_secrets(text):
        return text
    parts: list[str] = []
    position = 0
    for found in _MEMBER.finditer(text):
        name = found[2]
        opening = found[3]
        if found.start() < position or not is_sensitive(name[:MAX_NAME]):
            continue
        end = _end_of_value(text, opening, found.end())
        # An empty text is not a secret.
        if opening in "[{" or end > found.end() + 1:
            parts += [text[position : found.start(3)], f'"{HIDDEN}"']
            position = end
    user = _USER_CUT if is_cut else _USER
    return user.sub(rf"\1{HIDDEN}", "".join([*parts, text[position:]]))


def _end_of_value(text: str, opening: str, start: int) -> int:
    """Return where a secret in a text ends; one that is cut off ends with the text."""
    if opening in _QUOTED:
        end = _QUOTED[opening].match(text, start)
        return end.end() if end is not None else len(text)
    depth = 1
    for found in _BRACKETS.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(text)


def clean_text(text: str, limit: int | None = None, hint: str = "") -> str:
    """Hide the secrets in a text and cut it to ``limit`` characters, with a note of how much is missing.

    Code points that UTF-8 cannot hold are replaced, and characters that nobody sees become escapes.
    """
    left = len(text) - limit if limit is not None else 0
    if limit is None or left <= 0:
        text = without_secrets(text)
    else:
        # Hide first, then cut: of a secret across the cut nobody could tell that it is one.
        read = text[: limit + BEYOND]
        shown = without_secrets(read, is_cut=len(read) < len(text))[:limit]
        note = f"; {hint}" if hint else ""
        text = f"{shown}…(+{left} chars{note})"
    if text.isascii() or not _UNSEEN.search(text):
        return text
    return _UNSEEN.sub(_escape, text)


def escaped(text: str) -> str:
    """Return a text with escapes in the place of characters that a person does not see, such as ``\\u202e``."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: "re.Match[str]") -> str:
    if "\ud800" <= found[0] <= "\udfff":
        return "\ufffd"
    return found[0].encode("ascii", "backslashreplace").decode()


def _hidden_if_drawn(found: re.Match[str]) -> str:
    word = found[0]
    if any(map(str.isdigit, word)) and any(map(str.isalpha, word)):
        return HIDDEN
    return word
