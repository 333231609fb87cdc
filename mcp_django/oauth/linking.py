"""Which user of the site an identity provider speaks of, and the groups that it gives them.

A user is found by issuer and subject. That link is made by an administrator; or where the provider's entry says so,
once, by an e-mail address that the provider has verified, or with a new user. An address is less than a link: it can be
given to somebody else, so it never leads to staff unless the entry says that too.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import IntegrityError, router, transaction
from oauth2_provider.models import get_access_token_model

from ..conf import settings
from ..exceptions import Reason
from ..models import LinkedIdentity, TokenFacts
from ..signin import LINKED_IDENTITY
from .assertions import Assertion

logger = logging.getLogger("mcp_django")

# Users with one address that are looked at.
MAX_FOUND: Final = 10
LINK: Final = "A superuser links the user in the admin, under linked identities."


class NotLinked(Exception):
    """The assertion leads to no user who may act; ``reason`` is for the log."""

    def __init__(self, seen: str, remedy: str = LINK) -> None:
        super().__init__(seen)
        self.reason = Reason(seen, remedy)


@dataclass(frozen=True, slots=True)
class Provider:
    """One entry of ``IDENTITY_PROVIDERS``."""

    issuer: str
    jwks_uri: str
    clients: Collection[str]
    client_keys: Mapping[str, str] = field(default_factory=dict)
    link: str = "subject"
    create: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)


def is_linked(identity: Any, user: Any) -> bool:
    """Return whether the link with this key is there, with the user with this one, and its provider set up."""
    found = LinkedIdentity._default_manager.filter(pk=identity, user=user).values_list("issuer", flat=True).first()
    return any(entry["issuer"] == found for entry in settings.IDENTITY_PROVIDERS)


def end_tokens_of(identities: Collection[Any]) -> None:
    """Delete the tokens that users have by these links, with which their streams end."""
    kept = TokenFacts._default_manager.filter(**{f"facts__{LINKED_IDENTITY}__in": list(identities)})
    checksums = list(kept.values_list("pk", flat=True))
    get_access_token_model()._default_manager.filter(token_checksum__in=checksums).delete()


def linked_identity(provider: Provider, assertion: Assertion) -> LinkedIdentity:
    """Return the link of the user whom a verified assertion speaks of; it may be made now.

    Raises:
        NotLinked: there is no such user.
    """
    subject = assertion.text("sub")
    found = _find(provider.issuer, subject)
    if found is not None:
        return found
    refusal = NotLinked("the user with the address of the assertion is linked to another subject")
    try:
        with transaction.atomic(using=router.db_for_write(LinkedIdentity)):
            # Written before anything is read: SQLite cannot always turn a reader into a writer.
            LinkedIdentity._default_manager.filter(issuer=provider.issuer, subject=subject).update(subject=subject)
            user = _user_by_email(provider, assertion) or _new_user(provider, assertion)
            return LinkedIdentity._default_manager.create(issuer=provider.issuer, subject=subject, user=user)
    except IntegrityError:
        pass
    except NotLinked as error:
        refusal = error
    # Another request may have been first.
    found = _find(provider.issuer, subject)
    if found is None:
        raise refusal
    return found


def _find(issuer: str, subject: str) -> LinkedIdentity | None:
    rows = LinkedIdentity._default_manager.select_related("user").filter(issuer=issuer, subject=subject)
    # A database may take letters of another case for the same.
    return next((row for row in rows if (row.issuer, row.subject) == (issuer, subject)), None)


# By address


def _user_by_email(provider: Provider, assertion: Assertion) -> Any:
    """Return the user with the address that the provider has verified, None where nobody has it."""
    email = _verified_email(assertion)
    found = _users_with(email) if email else []
    if not found:
        return None
    if provider.link == "subject":
        raise NotLinked("a user has the address of the assertion, and link is 'subject'")
    if len(found) > 1:
        raise NotLinked("several users have the address of the assertion")
    [user] = found
    if _is_staff(user) and provider.link != "email_staff":
        raise NotLinked(f"the user with the address of the assertion ({user.pk}) is staff")
    if not user.is_active:
        raise NotLinked(f"the user with the address of the assertion ({user.pk}) is not active")
    return user


def _verified_email(assertion: Assertion) -> str:
    return assertion.text("email") if assertion.claims.get("email_verified") is True else ""


def _users_with(email: str) -> list[Any]:
    name = _email_field()
    if not name or not email.isprintable():
        return []
    rows = get_user_model()._default_manager.filter(**{f"{name}__iexact": email})[:MAX_FOUND]
    return [user for user in rows if _same_address(getattr(user, name), email)]


def _email_field() -> str:
    """Return the name of the field with the address, "" where users have none."""
    model: Any = get_user_model()
    try:
        return str(model._meta.get_field(model.get_email_field_name()).name)
    except (AttributeError, FieldDoesNotExist):
        return ""


def _same_address(one: str, other: str) -> bool:
    """Return whether two addresses are the same: beside ASCII, letters of two cases can be those of two people."""
    return one == other or (one.isascii() and other.isascii() and one.lower() == other.lower())


def _is_staff(user: Any) -> bool:
    return bool(getattr(user, "is_staff", False) or getattr(user, "is_superuser", False))


# New users


def _new_user(provider: Provider, assertion: Assertion) -> Any:
    if not provider.create:
        raise NotLinked("no user is linked to the subject of the assertion, and create is False")
    model: Any = get_user_model()
    email = _verified_email(assertion)
    values = {_email_field(): email} if email and _email_field() else {}
    user = model(**{model.USERNAME_FIELD: _username(provider, assertion, email), **values})
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        raise NotLinked(f"a user cannot be created: {error.messages[0]}") from None
    user.save()
    logger.info("User %s was created for %r of %s", user.pk, assertion.text("sub"), provider.issuer)
    return user


def _username(provider: Provider, assertion: Assertion, email: str) -> str:
    """Return a name that nobody has: the address, or one made of issuer and subject."""
    model: Any = get_user_model()
    name = model.USERNAME_FIELD
    made = hashlib.sha256(f"{provider.issuer}\n{assertion.text('sub')}".encode()).hexdigest()[:20]
    limit = model._meta.get_field(name).max_length or len(email)
    is_free = 0 < len(email) <= limit and not model._default_manager.filter(**{f"{name}__iexact": email}).exists()
    return email if is_free else f"id-{made}"


# Groups


def give_groups(user: Any, provider: Provider, claim: Any) -> None:
    """Let the user have those of the provider's groups that the claim names, and no other of them.

    Groups that the entry does not name are left alone. A provider that says nothing of groups gives none.
    """
    if not provider.groups or not hasattr(user, "groups"):
        return
    named = [name for name in claim if isinstance(name, str)] if isinstance(claim, list) else []
    wanted = {group for name, group in provider.groups.items() if name in named}
    has = set(user.groups.filter(name__in=provider.groups.values()).values_list("name", flat=True))
    known = {group.name: group for group in Group.objects.filter(name__in=wanted | has)}
    if missing := wanted.difference(known):
        logger.warning("IDENTITY_PROVIDERS names groups that do not exist: %s", ", ".join(sorted(missing)))
    if wanted & known.keys() != has:
        user.groups.remove(*(known[name] for name in has - wanted))
        user.groups.add(*(known[name] for name in (wanted & known.keys()) - has))
