"""Tokens for programs that ask without a user at the browser: the grants beside codes and refresh tokens.

*Service accounts* use the grant ``client_credentials`` (MCP extension
``io.modelcontextprotocol/oauth-client-credentials``): an administrator makes each account, and the grant knows accounts
and no other client. *Enterprise-managed authorization* (``io.modelcontextprotocol/enterprise-managed-authorization``)
gives tokens for users whom an identity provider vouches for: the client brings an identity assertion (ID-JAG), which
the provider signed for this server and for this client. Only clients that an administrator added, and that the
provider's entry names, can use it. So what clients can get that registered themselves does not depend on anything here.

A user is found by issuer and subject. That link is made by an administrator; or where the provider's entry says so,
once, by an e-mail address that the provider has verified, or with a new user. An address is less than a link: it can be
given to somebody else, so it never leads to staff unless the entry says that too.
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import Group
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import IntegrityError, router, transaction
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2 import OAuth2Error
from oauthlib.oauth2.rfc6749 import errors

from .. import problems
from ..conf import settings
from ..context.request import CONFIRM_BY_TOKEN
from ..models import LinkedIdentity, ServiceAccount, TokenFacts
from ..problems import Problem
from ..scopes import expand, join
from ..signin import LINKED_IDENTITY, SERVICE_ACCOUNT
from .assertions import (
    ALGORITHMS,
    Assertion,
    InvalidAssertion,
    KeySource,
    check_assertion,
    fetched_keys,
    keys_of,
    read_assertion,
    read_credentials,
    use_once,
    verify,
)
from .decorators import note
from .fetching import fetcher_for
from .resource import issuer, resource_url, same_resource
from .tokens import hashed_secret, same_secret, save_token, stands
from .validator import MCPValidator, check_resources

logger = logging.getLogger("mcp_django")

PROFILE: Final = "urn:ietf:params:oauth:grant-profile:id-jag"
TYP: Final = "oauth-id-jag+jwt"
# Seconds that an identity assertion may be good for; it is used within moments.
MAX_IDENTITY_LIFE: Final = 3600
# Users with one address that are looked at.
MAX_FOUND: Final = 10
# What mends a refusal.
WRONG_ACCOUNT_KEY: Final = "Is the key of the service account in the admin that of the program?"
WRONG_PROVIDER_KEY: Final = (
    "Is jwks_uri in IDENTITY_PROVIDERS where the provider publishes the keys that it signs with?"
)
NO_CLIENT_KEYS: Final = "In IDENTITY_PROVIDERS, client_keys has the URL of the keys that the client signs with."
NOT_SET_UP: Final = "Name issuer and client id in IDENTITY_PROVIDERS as the provider writes them."
OTHER_CLIENT: Final = "In the identity provider, the client has another id than here: enter that of the application."
NO_ENDPOINT: Final = "In the identity provider, name this server's endpoint as resource, and scopes as one text."
LINK: Final = "A superuser links the user in the admin, under linked identities."


def issue(
    user: AbstractBaseUser,
    client: Any,
    scopes: Iterable[str],
    resources: Iterable[str],
    facts: Mapping[str, Any],
    *,
    until: datetime | None = None,
) -> dict[str, Any]:
    """Save a token that ends ``until`` then at the latest; return the answer that has it (RFC 6749, section 5.1).

    There is no refresh token: who got this one can prove again who they are (RFC 6749, section 4.4.3).
    """
    now = timezone.now()
    lasts = now + timedelta(seconds=oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS)
    expires = lasts if until is None else min(lasts, until)
    token, raw = save_token(user, client, scopes=scopes, resources=resources, expires=expires, facts=facts)
    seconds = int((expires - now).total_seconds())
    return {"access_token": raw, "token_type": "Bearer", "expires_in": seconds, "scope": join(token.scope.split())}


def narrowed(request: HttpRequest, granted: Iterable[str]) -> frozenset[str]:
    """Return what a request gets of the scopes that its client may have: those it asks for, or all of them.

    Clients ask for what the endpoint names, so what they may not have is left out, and the answer says what is left
    (RFC 6749, section 3.3).
    """
    scopes = list(granted)
    reach = expand(scopes).intersection(oauth2_settings.SCOPES)
    found = reach.intersection(request.POST.get("scope", "").split() or scopes)
    if not found:
        raise errors.InvalidScopeError(description="None of these scopes is granted.")
    return found


def _refused(request: HttpRequest, reason: Problem, description: str) -> OAuth2Error:
    note(request.META, reason)
    return errors.InvalidClientError(description=description)


def _check_signature(
    request: HttpRequest, client_id: str, assertion: Assertion, keys: KeySource | None, remedy: str
) -> None:
    """Check the assertion by which a client says who it is; ``remedy`` is for the log."""
    try:
        if keys is None:
            raise InvalidAssertion("There are no keys of this client here.", remedy)
        check_assertion(request, client_id, assertion, keys)
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(remedy), refusal.wait)
        raise errors.InvalidClientError(description=str(refusal)) from None


# Service accounts


def account_token(request: HttpRequest) -> dict[str, Any]:
    """Return a token for the service account that asks (RFC 6749, section 4.4)."""
    credentials = read_credentials(request)
    accounts = ServiceAccount._default_manager.select_related("user")
    account = accounts.filter(client_id=credentials.client_id).first()
    # A database may take letters of another case for the same.
    if account is None or account.client_id != credentials.client_id:
        raise _refused(request, problems.NO_ACCOUNT, "There is no service account of this id.")
    if credentials.assertion is not None:
        _check_signature(request, account.client_id, credentials.assertion, keys_of(account), WRONG_ACCOUNT_KEY)
    elif not account.secret or not same_secret(credentials.secret, account.secret):
        raise _refused(request, problems.WRONG_ACCOUNT_SECRET, "The client secret is missing or wrong.")
    if not account.user.is_active or not stands({SERVICE_ACCOUNT: account.pk}, account.user.pk):
        raise _refused(request, problems.ACCOUNT_CLOSED, "The service account is closed.")
    scopes = narrowed(request, account.scopes)
    resources = check_resources(request.POST.getlist("resource"), request)
    own = [resource_url(request, path) for path in account.endpoints]
    if own and not all(any(same_resource(url, resource) for url in own) for resource in resources):
        raise errors.CustomOAuth2Error(
            error="invalid_target", description="The service account is not for this endpoint."
        )
    facts = {SERVICE_ACCOUNT: account.pk, "name": account.name, CONFIRM_BY_TOKEN: True}
    issued = issue(account.user, application_of(account), scopes, resources, facts, until=account.expires)
    logger.info("Service account %r (%s) has a token as %s", account.name, account.client_id, account.user.pk)
    return issued


def new_secret(account: ServiceAccount) -> str:
    """Give the account, which is not saved by this, another secret, and return it."""
    secret = get_application_model()().client_secret
    account.secret = hashed_secret(secret)
    return str(secret)


def application_of(account: ServiceAccount) -> Any:
    """Return the toolkit's application that tokens of the account belong to.

    No other flow issues tokens to it. With its secret the account can revoke them.
    """
    model = get_application_model()
    kept = {
        "name": account.name,
        "client_type": model.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": model.GRANT_CLIENT_CREDENTIALS,
        "client_secret": account.secret or hashed_secret(model().client_secret),
        "hash_client_secret": False,
    }
    found, is_new = model._default_manager.get_or_create(client_id=account.client_id, defaults=kept)
    if not is_new and (found.name, found.client_secret) != (account.name, account.secret) and account.secret:
        found.name, found.client_secret, found.hash_client_secret = account.name, account.secret, False
        found.save()
    return found


def end_tokens(client_ids: Iterable[str]) -> None:
    """Delete all tokens of the accounts with these ids, with which their streams end."""
    get_access_token_model()._default_manager.filter(application__client_id__in=list(client_ids)).delete()


# Identity providers


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
    """The assertion leads to no user who may act; ``reason`` is for the log."""

    def __init__(self, seen: str, remedy: str = LINK) -> None:
        super().__init__(seen)
        self.reason = Problem(seen, remedy)


def identity_token(request: HttpRequest) -> dict[str, Any]:
    """Return a token for the user of an identity assertion (RFC 7523, section 2.1; ID-JAG)."""
    client = _provided_client(request)
    try:
        assertion = read_assertion(request.POST.get("assertion", ""))
        # The provider whose keys decide, by what the assertion says of its issuer.
        known = (found for found in _providers_of(client.client_id) if found.issuer == assertion.claims.get("iss"))
        provider = next(known, None)
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
        # Never more than the assertion has, and by default no more than any client is given.
        scopes = narrowed(request, oauth2_settings.DEFAULT_SCOPES if claim is None else claim.split())
        resources = _resources(request, assertion)
        use_once(assertion)
        identity = linked_identity(provider, assertion)
        if not identity.user.is_active:
            raise NotLinked(f"the user ({identity.user.pk}) is not active", problems.NOT_ACTIVE.remedy)
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(WRONG_PROVIDER_KEY), refusal.wait)
        raise errors.InvalidGrantError(description=str(refusal)) from None
    except NotLinked as refusal:
        note(request.META, refusal.reason)
        # Who has an account here, and of which kind, is not the client's to know.
        raise errors.InvalidGrantError(description="The user of the assertion has no access here.") from None
    give_groups(identity.user, provider, assertion.claims.get("groups"))
    return issue(identity.user, client, scopes, resources, {LINKED_IDENTITY: identity.pk})


def _provided_client(request: HttpRequest) -> Any:
    """Return the client, which has proved who it is and is set up for identity assertions."""
    model, credentials = get_application_model(), read_credentials(request)
    client = model._default_manager.filter(client_id=credentials.client_id).first()
    if client is None or client.client_id != credentials.client_id or not client.is_usable(request):
        raise _refused(request, problems.UNKNOWN_CLIENT, "There is no client of this id.")
    providers = _providers_of(client.client_id)
    if credentials.assertion is not None:
        # By the keys that its provider's entry names.
        urls = [found.client_keys[client.client_id] for found in providers if client.client_id in found.client_keys]
        keys = _keys_at(urls[0]) if urls and urls[0] else None
        _check_signature(request, client.client_id, credentials.assertion, keys, NO_CLIENT_KEYS)
    is_proved = credentials.assertion is not None or (
        bool(credentials.secret) and MCPValidator()._check_secret(credentials.secret, client.client_secret)
    )
    if client.client_type != model.CLIENT_CONFIDENTIAL or not is_proved:
        raise _refused(request, problems.WRONG_SECRET, "The client secret is missing or wrong.")
    if client.registration_source != model.RegistrationSource.MANUAL or not providers:
        note(request.META, problems.NOT_FOR_CLIENT)
        raise errors.UnauthorizedClientError(description="The client is not set up for identity assertions.")
    return client


def _providers_of(client_id: str) -> list[Provider]:
    found = (Provider(**entry) for entry in settings.IDENTITY_PROVIDERS)
    return [provider for provider in found if client_id in provider.clients]


def _keys_at(url: str) -> KeySource:
    return partial(fetched_keys, url, fetcher_for(url, is_operators=True))


def _resources(request: HttpRequest, assertion: Assertion) -> list[str]:
    """Return the endpoints of the assertion, or those of them that the client names."""
    claim = assertion.claims.get("resource")
    named = [claim] if isinstance(claim, str) else claim
    if not isinstance(named, list) or not named or not all(isinstance(url, str) and url for url in named):
        raise InvalidAssertion("The assertion needs the endpoint that it is for (resource).", NO_ENDPOINT)
    granted = check_resources(named, request)
    asked = request.POST.getlist("resource")
    found = check_resources(asked, request) if asked else granted
    if not all(any(same_resource(url, other) for other in granted) for url in found):
        raise errors.CustomOAuth2Error(error="invalid_target", description="The assertion is for another endpoint.")
    return found


# The user whom a provider speaks of


def linked_identity(provider: Provider, assertion: Assertion) -> LinkedIdentity:
    """Return the link of the user whom a verified assertion speaks of; it may be made now."""
    subject = assertion.text("sub")
    found = _find_link(provider.issuer, subject)
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
    found = _find_link(provider.issuer, subject)
    if found is None:
        raise refusal
    return found


def _find_link(issuer: str, subject: str) -> LinkedIdentity | None:
    rows = LinkedIdentity._default_manager.select_related("user").filter(issuer=issuer, subject=subject)
    # A database may take letters of another case for the same.
    return next((row for row in rows if (row.issuer, row.subject) == (issuer, subject)), None)


def _verified_email(assertion: Assertion) -> str:
    return assertion.text("email") if assertion.claims.get("email_verified") is True else ""


def _email_field() -> str:
    """Return the name of the field with the address, "" where users have none."""
    model: Any = get_user_model()
    try:
        return str(model._meta.get_field(model.get_email_field_name()).name)
    except (AttributeError, FieldDoesNotExist):
        return ""


def _user_by_email(provider: Provider, assertion: Assertion) -> Any:
    """Return the user with the address that the provider has verified, None where nobody has it."""
    email, name = _verified_email(assertion), _email_field()
    if not email or not name or not email.isprintable():
        return None
    rows = get_user_model()._default_manager.filter(**{f"{name}__iexact": email})[:MAX_FOUND]
    found: list[Any] = [user for user in rows if _same_address(getattr(user, name), email)]
    if not found:
        return None
    if provider.link == "subject":
        raise NotLinked("a user has the address of the assertion, and link is 'subject'")
    if len(found) > 1:
        raise NotLinked("several users have the address of the assertion")
    [user] = found
    is_staff = getattr(user, "is_staff", False) or getattr(user, "is_superuser", False)
    if is_staff and provider.link != "email_staff":
        raise NotLinked(f"the user with the address of the assertion ({user.pk}) is staff")
    if not user.is_active:
        raise NotLinked(f"the user with the address of the assertion ({user.pk}) is not active")
    return user


def _same_address(one: str, other: str) -> bool:
    """Return whether two addresses are the same: beside ASCII, letters of two cases can be those of two people."""
    return one == other or (one.isascii() and other.isascii() and one.lower() == other.lower())


def _new_user(provider: Provider, assertion: Assertion) -> Any:
    if not provider.create:
        raise NotLinked("no user is linked to the subject of the assertion, and create is False")
    model: Any = get_user_model()
    name, email, subject = model.USERNAME_FIELD, _verified_email(assertion), assertion.text("sub")
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


def end_tokens_of(identities: Collection[Any]) -> None:
    """Delete the tokens that users have by these links, with which their streams end."""
    kept = TokenFacts._default_manager.filter(**{f"facts__{LINKED_IDENTITY}__in": list(identities)})
    checksums = list(kept.values_list("pk", flat=True))
    get_access_token_model()._default_manager.filter(token_checksum__in=checksums).delete()


# The token endpoint

ACCOUNT_GRANT: Final = "client_credentials"
IDENTITY_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# The setting that says for whom a grant is, and what gives a token.
GRANTS: Final[dict[str, tuple[str, Callable[[HttpRequest], dict[str, Any]]]]] = {
    ACCOUNT_GRANT: ("SERVICE_ACCOUNTS", account_token),
    IDENTITY_GRANT: ("IDENTITY_PROVIDERS", identity_token),
}


def is_offered(grant: str | None) -> bool:
    """Return whether the site has somebody for whom the grant is."""
    return grant in GRANTS and bool(getattr(settings, GRANTS[grant][0]))


def respond(request: HttpRequest) -> JsonResponse:
    """Answer a request for a token by one of these grants, which is offered."""
    headers = {"Cache-Control": "no-store"}
    try:
        return JsonResponse(GRANTS[request.POST["grant_type"]][1](request), headers=headers)
    except OAuth2Error as error:
        if isinstance(error, errors.InvalidClientError) and "HTTP_AUTHORIZATION" in request.META:
            # RFC 6749, section 5.2
            headers["WWW-Authenticate"] = 'Basic realm="token", charset="UTF-8"'
        told = {"error": error.error} | ({"error_description": error.description} if error.description else {})
        return JsonResponse(told, status=error.status_code, headers=headers)


def extend(document: dict[str, Any]) -> None:
    """Add what is offered to the metadata of the authorization server."""
    document["grant_types_supported"] += [name for name in GRANTS if is_offered(name)]
    has_signers = any(entry.get("client_keys") for entry in settings.IDENTITY_PROVIDERS)
    if is_offered(ACCOUNT_GRANT) or has_signers:
        methods = [*document["token_endpoint_auth_methods_supported"], "client_secret_basic", "private_key_jwt"]
        document["token_endpoint_auth_methods_supported"] = list(dict.fromkeys(methods))
        document["token_endpoint_auth_signing_alg_values_supported"] = list(ALGORITHMS)
    if is_offered(IDENTITY_GRANT):
        document["authorization_grant_profiles_supported"] = [PROFILE]
