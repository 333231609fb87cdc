"""Identity providers: tokens for users whom an enterprise's provider vouches for, by an identity assertion (ID-JAG).

This is the MCP extension ``io.modelcontextprotocol/enterprise-managed-authorization``: the client brings an assertion,
which the provider signed for this server and for this client (grant ``jwt-bearer``, RFC 7523). Only clients that an
administrator added, and that the provider's entry names, can use it.

Issuer and subject identify a user by a link. An administrator makes the link; or if the provider's entry allows it, the
first assertion does, by an e-mail address that the provider has verified or with a new user. An address is weaker than
a link, because it can pass to somebody else, so it never leads to staff unless the entry allows that too.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import IntegrityError, router
from django.http import HttpRequest
from oauth2_provider.models import get_access_token_model, get_application_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2.rfc6749 import errors

from ..conf import settings
from ..context.databases import again_after_deadlocks, writing
from ..models import LinkedIdentity, TokenFacts
from ..problems import Problem
from ..signin import FactName
from .assertions_and_keys import (
    Assertion,
    InvalidAssertion,
    KeySource,
    fetched_keys,
    read_assertion,
    read_credentials,
    use_once,
    verify,
)
from .bearer import NOT_ACTIVE
from .cors_and_refusals import note
from .document_fetcher import fetcher_for
from .resource_urls import issuer, same_resource
from .stored_tokens import find_client, issue
from .validator import (
    UNKNOWN_CLIENT,
    WRONG_SECRET,
    MCPValidator,
    check_resources,
    check_scopes,
    check_signature,
    invalid_client,
)

logger = logging.getLogger("mcp_django")

TYP: Final = "oauth-id-jag+jwt"
# Maximum lifetime of an identity assertion, in seconds; clients use it within moments.
MAX_IDENTITY_LIFE: Final = 3600
# Maximum number of users compared for one e-mail address.
MAX_FOUND: Final = 10
# Remedies for administrators
WRONG_PROVIDER_KEY: Final = (
    "Is jwks_uri in IDENTITY_PROVIDERS where the provider publishes the keys that it signs with?"
)
NO_CLIENT_KEYS: Final = "In IDENTITY_PROVIDERS, client_keys has the URL of the keys that the client signs with."
NOT_SET_UP: Final = "Name issuer and client id in IDENTITY_PROVIDERS as the provider writes them."
OTHER_CLIENT: Final = "In the identity provider, the client has another id than here: enter that of the application."
NO_ENDPOINT: Final = "In the identity provider, name this server's endpoint as resource, and scopes as one text."
LINK: Final = "A superuser links the user in the admin, under linked identities."
NOT_FOR_CLIENT: Final = Problem(
    "no identity provider is set up for the client",
    "Add it to the admin as a confidential application, and its id to clients of IDENTITY_PROVIDERS.",
)


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


class NotLinked(Exception):
    """Raised when an assertion leads to no linked, active user; ``reason`` is for the log."""

    def __init__(self, seen: str, remedy: str = LINK) -> None:
        super().__init__(seen)
        self.reason = Problem(seen, remedy)


def identity_token(request: HttpRequest) -> dict[str, Any]:
    """Answer a token request with an assertion: issue a token for the user in it (RFC 7523, section 2.1; ID-JAG)."""
    client = _provided_client(request)
    try:
        assertion = read_assertion(request.POST.get("assertion", ""))
        # The issuer that the assertion claims selects the provider, whose keys then verify the claim.
        providers = (found for found in _providers_of(client.client_id) if found.issuer == assertion.claims.get("iss"))
        provider = next(providers, None)
        if provider is None:
            raise InvalidAssertion("The issuer (iss) of the assertion is not set up for this client.", NOT_SET_UP)
        needed = ("sub", "jti", "client_id")
        verify(
            assertion, _keys_at(provider.jwks_uri), provider.issuer, [issuer(request)], MAX_IDENTITY_LIFE, TYP, needed
        )
        if assertion.text("client_id") != client.client_id:
            raise InvalidAssertion("The assertion is for another client (client_id).", OTHER_CLIENT)
        claim = assertion.claims.get("scope")
        if claim is not None and not isinstance(claim, str):
            raise InvalidAssertion("The scope of the assertion is not a text.", NO_ENDPOINT)
        # Never more scopes than the assertion has. If it has none, the default ones of all clients.
        scopes = check_scopes(request, oauth2_settings.DEFAULT_SCOPES if claim is None else claim.split())
        resources = _resources(request, assertion)
        use_once(assertion)
        identity = linked_identity(provider, assertion)
        if not identity.user.is_active:
            raise NotLinked(f"the user ({identity.user.pk}) is not active", NOT_ACTIVE.remedy)
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(WRONG_PROVIDER_KEY), refusal.wait)
        raise errors.InvalidGrantError(description=str(refusal)) from None
    except NotLinked as refusal:
        note(request.META, refusal.reason)
        # Do not tell the client who has an account here, nor of which kind.
        raise errors.InvalidGrantError(description="The user of the assertion has no access here.") from None
    give_groups(identity.user, provider, assertion.claims.get("groups"))
    return issue(identity.user, client, scopes, resources, {FactName.LINKED_IDENTITY: identity.pk})


def _provided_client(request: HttpRequest) -> Any:
    """Authenticate the client, and return it; an entry of ``IDENTITY_PROVIDERS`` has to name it."""
    model = get_application_model()
    credentials = read_credentials(request)
    client = find_client(credentials.client_id)
    if client is None or not client.is_usable(request):
        raise invalid_client(request, UNKNOWN_CLIENT, "There is no client with this id.")
    providers = _providers_of(client.client_id)
    if credentials.assertion is not None:
        # The provider's entry has the URL of the client's keys.
        urls = [
            provider.client_keys[client.client_id] for provider in providers if client.client_id in provider.client_keys
        ]
        keys = _keys_at(urls[0]) if urls and urls[0] else None
        check_signature(request, client.client_id, credentials.assertion, keys, NO_CLIENT_KEYS)
    is_proved = credentials.assertion is not None or (
        bool(credentials.secret) and MCPValidator()._check_secret(credentials.secret, client.client_secret)
    )
    if client.client_type != model.CLIENT_CONFIDENTIAL or not is_proved:
        raise invalid_client(request, WRONG_SECRET, "The client secret is missing or wrong.")
    if client.registration_source != model.RegistrationSource.MANUAL or not providers:
        note(request.META, NOT_FOR_CLIENT)
        raise errors.UnauthorizedClientError(description="The client is not set up for identity assertions.")
    return client


def _providers_of(client_id: str) -> list[Provider]:
    providers = (Provider(**entry) for entry in settings.IDENTITY_PROVIDERS)
    return [provider for provider in providers if client_id in provider.clients]


def _keys_at(url: str) -> KeySource:
    return partial(fetched_keys, url, fetcher_for(url, is_operators=True))


def _resources(request: HttpRequest, assertion: Assertion) -> list[str]:
    """Return the endpoints that the assertion names, or those of them that the client asks for."""
    claim = assertion.claims.get("resource")
    urls = [claim] if isinstance(claim, str) else claim
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) and url for url in urls):
        raise InvalidAssertion("The assertion needs the endpoint that it is for (resource).", NO_ENDPOINT)
    granted = check_resources(urls, request)
    parameters = request.POST.getlist("resource")
    resources = check_resources(parameters, request) if parameters else granted
    if not all(any(same_resource(url, other) for other in granted) for url in resources):
        raise errors.CustomOAuth2Error(error="invalid_target", description="The assertion is for another endpoint.")
    return resources


# Linked users


def linked_identity(provider: Provider, assertion: Assertion) -> LinkedIdentity:
    """Return the link from the assertion's subject to a user; it is made by e-mail or with a new user, if allowed."""
    subject = assertion.text("sub")
    link = _find_link(provider.issuer, subject)
    if link is not None:
        return link
    refusal = NotLinked("the user with the address of the assertion is linked to another subject")
    using = router.db_for_write(LinkedIdentity)

    def link_now() -> LinkedIdentity:
        with writing(using):
            user = _user_by_email(provider, assertion) or _new_user(provider, assertion)
            return LinkedIdentity._default_manager.create(issuer=provider.issuer, subject=subject, user=user)

    try:
        return again_after_deadlocks(using, link_now)
    except IntegrityError:
        pass
    except NotLinked as error:
        refusal = error
    # Another request may have created the link first.
    link = _find_link(provider.issuer, subject)
    if link is None:
        raise refusal
    return link


def _find_link(issuer: str, subject: str) -> LinkedIdentity | None:
    rows = LinkedIdentity._default_manager.select_related("user").filter(issuer=issuer, subject=subject)
    # The database may ignore case, and spaces at the end.
    for row in rows:
        if (row.issuer, row.subject) == (issuer, subject):
            return row
        raise NotLinked("a linked subject differs only in case or in spaces, and the database takes it for the same")
    return None


def _verified_email(assertion: Assertion) -> str:
    if assertion.claims.get("email_verified") is True:
        return assertion.text("email")
    return ""


def _email_field() -> str:
    """Return the name of the user model's e-mail field, "" for none."""
    model: Any = get_user_model()
    try:
        return str(model._meta.get_field(model.get_email_field_name()).name)
    except (AttributeError, FieldDoesNotExist):
        return ""


def _user_by_email(provider: Provider, assertion: Assertion) -> Any:
    """Return the user whose e-mail address the provider has verified, if its entry allows linking them."""
    email = _verified_email(assertion)
    name = _email_field()
    if not email or not name or not email.isprintable():
        return None
    rows = get_user_model()._default_manager.filter(**{f"{name}__iexact": email})[:MAX_FOUND]
    users: list[Any] = [user for user in rows if _same_address(getattr(user, name), email)]
    if not users:
        return None
    if provider.link == "subject":
        raise NotLinked("a user has the address of the assertion, and link is 'subject'")
    if len(users) > 1:
        raise NotLinked("several users have the address of the assertion")
    [user] = users
    is_staff = getattr(user, "is_staff", False) or getattr(user, "is_superuser", False)
    if is_staff and provider.link != "email_staff":
        raise NotLinked(f"the user with the address of the assertion ({user.pk}) is staff")
    if not user.is_active:
        raise NotLinked(f"the user with the address of the assertion ({user.pk}) is not active")
    return user


def _same_address(one: str, other: str) -> bool:
    """Return whether two e-mail addresses are equal, without regard to the case of ASCII letters."""
    return one == other or (one.isascii() and other.isascii() and one.lower() == other.lower())


def _new_user(provider: Provider, assertion: Assertion) -> Any:
    if not provider.create:
        raise NotLinked("no user is linked to the subject of the assertion, and create is False")
    model: Any = get_user_model()
    name = model.USERNAME_FIELD
    email = _verified_email(assertion)
    subject = assertion.text("sub")
    limit = model._meta.get_field(name).max_length or len(email)
    is_free = 0 < len(email) <= limit and not model._default_manager.filter(**{f"{name}__iexact": email}).exists()
    made = hashlib.sha256(f"{provider.issuer}\n{subject}".encode()).hexdigest()[:20]
    values = {_email_field(): email} if email and _email_field() else {}
    user = model(**{name: email if is_free else f"id-{made}", **values})
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        raise NotLinked(f"a user cannot be created: {error.messages[0]}") from None
    user.save()
    logger.info("User %s was created for %r of %s", user.pk, subject, provider.issuer)
    return user


def give_groups(user: Any, provider: Provider, claim: Any) -> None:
    """Set the user's groups, of those in the provider's entry, by the assertion's ``groups`` claim.

    Groups that the entry does not name are left alone. Without the claim, the user loses all that it names.
    """
    if not provider.groups or not hasattr(user, "groups"):
        return
    names = [name for name in claim if isinstance(name, str)] if isinstance(claim, list) else []
    wanted = {group for name, group in provider.groups.items() if name in names}
    named = user.groups.filter(name__in=provider.groups.values()).values_list("name", flat=True)
    # The database may ignore case.
    has = set(named).intersection(provider.groups.values())
    groups = {group.name: group for group in Group.objects.filter(name__in=wanted | has)}
    if missing := wanted.difference(groups):
        logger.warning("IDENTITY_PROVIDERS names groups that do not exist: %s", ", ".join(sorted(missing)))
    if wanted & groups.keys() != has:
        user.groups.remove(*(groups[name] for name in has - wanted))
        user.groups.add(*(groups[name] for name in (wanted & groups.keys()) - has))


def end_tokens_of(identities: Collection[Any]) -> None:
    """Revoke the tokens that were issued through these links; their streams end too."""
    facts = TokenFacts._default_manager.filter(**{f"facts__{FactName.LINKED_IDENTITY}__in": list(identities)})
    checksums = list(facts.values_list("pk", flat=True))
    get_access_token_model()._default_manager.filter(token_checksum__in=checksums).delete()
