"""Models of accounts: users, their credentials and their rights; and the fields of such models that give rights.

A site exposes such a model only if a project registers it, and such a field only if its exposure names it.
"""

from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import FieldDoesNotExist
from django.db.models import BooleanField, DateField, EmailField, Model
from django.db.models.base import ModelBase

from .secrets import is_of_credentials, is_sensitive

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


def is_account(model: type[Model]) -> bool:
    """Return whether a model holds users, what they sign in with, or their rights."""
    return model._meta.label_lower == settings.AUTH_USER_MODEL.lower() or _holds_accounts(model)


def is_user(model: type[Model]) -> bool:
    """Return whether the rows of a model are users."""
    from django.contrib.auth.base_user import AbstractBaseUser

    is_current = model._meta.concrete_model is not None and (
        model._meta.concrete_model._meta.label_lower == settings.AUTH_USER_MODEL.lower()
    )
    return is_current or issubclass(model, (AbstractBaseUser, *_of_auth("PermissionsMixin")))


def gives_rights(name: str, model: type[Model]) -> bool:
    """Return whether a field of a user or group gives rights: ``is_superuser``, ``groups``, the password.

    Relations to groups and permissions count, whatever their names.
    """
    return _gives_rights(name, model, is_user(model))


def is_withheld(name: str, model: type[Model]) -> bool:
    """Return whether callers get a field only if an exposure names it: it holds a secret, or gives rights."""
    return is_sensitive(name, model) or gives_rights(name, model)


@lru_cache(maxsize=8192)
def _gives_rights(name: str, model: type[Model], is_of_user: bool) -> bool:
    if not is_of_user and not issubclass(model, _of_auth("Group")):
        return False
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return is_of_user and name in RIGHTS
    if field.is_relation and field.concrete and field.related_model is not None:
        return issubclass(field.related_model, _of_auth("Group", "Permission")) or name in RIGHTS
    return name in RIGHTS


@lru_cache(maxsize=2048)
def _holds_accounts(model: type[Model]) -> bool:
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
    if not any(is_user(other) for other in related):
        return False
    confirmed = any(name in CONFIRMED and isinstance(fields[name], (BooleanField, DateField)) for name in fields)
    has_address = any(isinstance(field, EmailField) for field in fields.values())
    return (confirmed and has_address) or ("provider" in fields and not IDENTIFIER.isdisjoint(fields))


def _is_of_package(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in SIGN_IN_PACKAGES)


def _of_auth(*names: str) -> tuple[type[Model], ...]:
    """Return classes of Django's users, which can be imported once the apps are loaded; none if it is not installed."""
    from django.apps import apps

    if not apps.is_installed("django.contrib.auth"):
        return ()
    from django.contrib.auth import models

    return tuple(getattr(models, name) for name in names)
