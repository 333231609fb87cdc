"""Enterprise-managed authorization: tokens for users whom an identity provider vouches for, without a consent page (MCP
extension ``io.modelcontextprotocol/enterprise-managed-authorization``).

The client brings an identity assertion (ID-JAG), which the provider signed for this server and for this client. Only
clients that an administrator added, and that the provider's entry names, can use it: one that registered itself never.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest
from jwcrypto.jwk import JWK
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2.rfc6749 import errors

from ..conf import settings
from ..exceptions import Reason
from ..signin import LINKED_IDENTITY
from .assertions import Assertion, InvalidAssertion, KeySource, Rules, read_assertion, use_once, verify
from .credentials import Credentials, check_assertion, invalid_client, read_credentials
from .issuing import Issued, issue, narrowed
from .keys import fetched_keys
from .linking import NotLinked, Provider, give_groups, linked_identity
from .outgoing import fetcher_for
from .refusals import UNKNOWN_CLIENT, WRONG_SECRET, note
from .resource import issuer, same_resource
from .validator import MCPValidator, check_resources

logger = logging.getLogger("mcp_django")

GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
PROFILE: Final = "urn:ietf:params:oauth:grant-profile:id-jag"
TYP: Final = "oauth-id-jag+jwt"
# Seconds that an assertion may be good for; it is used within moments.
MAX_LIFE: Final = 3600

NOT_FOR_CLIENT: Final = Reason(
    "no identity provider is set up for the client",
    "Add it to the admin as a confidential application, and its id to clients of IDENTITY_PROVIDERS.",
)
WRONG_KEY: Final = "Is jwks_uri in IDENTITY_PROVIDERS where the provider publishes the keys that it signs with?"
NO_CLIENT_KEYS: Final = "In IDENTITY_PROVIDERS, client_keys has the URL of the keys that the client signs with."
NOT_SET_UP: Final = "Name issuer and client id in IDENTITY_PROVIDERS as the provider writes them."
OTHER_CLIENT: Final = "In the identity provider, the client has another id than here: enter that of the application."
NO_ENDPOINT: Final = "In the identity provider, name this server's endpoint as resource, and scopes as one text."


def has_signing_clients() -> bool:
    """Return whether a client can sign who it is, in place of a secret."""
    return any(entry.get("client_keys") for entry in settings.IDENTITY_PROVIDERS)


def is_offered() -> bool:
    """Return whether the site has identity providers."""
    return bool(settings.IDENTITY_PROVIDERS)


def identity_token(request: HttpRequest) -> Issued:
    """Return a token for the user of an identity assertion (RFC 7523, section 2.1; ID-JAG).

    Raises:
        OAuth2Error: there is none for it.
    """
    client = _authenticated(request, read_credentials(request))
    try:
        assertion = read_assertion(request.POST.get("assertion", ""))
        provider = _provider(client.client_id, assertion)
        rules = Rules(provider.issuer, [issuer(request)], MAX_LIFE, typ=TYP, required=("sub", "jti", "client_id"))
        verify(assertion, _keys_at(provider.jwks_uri), rules)
        if assertion.text("client_id") != client.client_id:
            raise InvalidAssertion("The assertion is for another client (client_id).", OTHER_CLIENT)
        scopes, resources = _scopes(request, assertion), _resources(request, assertion)
        use_once(assertion)
        identity = linked_identity(provider, assertion)
        if not identity.user.is_active:
            raise NotLinked(f"the user ({identity.user.pk}) is not active", "Activate the user, or leave it so.")
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(WRONG_KEY), refusal.wait)
        raise errors.InvalidGrantError(description=str(refusal)) from None
    except NotLinked as refusal:
        note(request.META, refusal.reason)
        # Who has an account here, and of which kind, is not the client's to know.
        raise errors.InvalidGrantError(description="The user of the assertion has no access here.") from None
    give_groups(identity.user, provider, assertion.claims.get("groups"))
    facts = {LINKED_IDENTITY: identity.pk}
    return issue(identity.user, client, scopes, resources, facts)


def _authenticated(request: HttpRequest, credentials: Credentials) -> Any:
    """Return the client, which has proved who it is."""
    model = get_application_model()
    client = model._default_manager.filter(client_id=credentials.client_id).first()
    if client is None or client.client_id != credentials.client_id or not client.is_usable(request):
        note(request.META, UNKNOWN_CLIENT)
        raise errors.InvalidClientError(description="There is no client of this id.")
    if credentials.assertion is not None:
        _check_signed(request, client.client_id, credentials.assertion)
    is_proved = credentials.assertion is not None or (
        bool(credentials.secret) and MCPValidator()._check_secret(credentials.secret, client.client_secret)
    )
    if client.client_type != model.CLIENT_CONFIDENTIAL or not is_proved:
        note(request.META, WRONG_SECRET)
        raise errors.InvalidClientError(description="The client secret is missing or wrong.")
    if client.registration_source != model.RegistrationSource.MANUAL or not _providers_of(client.client_id):
        note(request.META, NOT_FOR_CLIENT)
        raise errors.UnauthorizedClientError(description="The client is not set up for identity assertions.")
    return client


def _check_signed(request: HttpRequest, client_id: str, assertion: Assertion) -> None:
    """Look whether the client has signed who it is, by the keys that its provider's entry names."""
    url = next(
        (found.client_keys[client_id] for found in _providers_of(client_id) if client_id in found.client_keys), ""
    )
    try:
        if not url:
            raise InvalidAssertion("There are no keys of this client here.", NO_CLIENT_KEYS)
        check_assertion(request, client_id, assertion, _keys_at(url))
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(NO_CLIENT_KEYS), refusal.wait)
        raise invalid_client(refusal) from None


def _providers_of(client_id: str) -> list[Provider]:
    found = (Provider(**entry) for entry in settings.IDENTITY_PROVIDERS)
    return [provider for provider in found if client_id in provider.clients]


def _provider(client_id: str, assertion: Assertion) -> Provider:
    """Return the provider whose keys decide, by what the assertion says of its issuer."""
    found = [provider for provider in _providers_of(client_id) if provider.issuer == assertion.claims.get("iss")]
    if not found:
        raise InvalidAssertion("The issuer (iss) of the assertion is not set up for this client.", NOT_SET_UP)
    return found[0]


def _keys_at(url: str) -> KeySource:
    def keys(again: bool) -> Iterable[JWK]:
        return fetched_keys(url, again, fetcher_for(url, is_operators=True))

    return keys


def _scopes(request: HttpRequest, assertion: Assertion) -> frozenset[str]:
    """Return what is granted: never more than the assertion has, and by default no more than any client is given."""
    claim = assertion.claims.get("scope")
    if claim is not None and not isinstance(claim, str):
        raise InvalidAssertion("The scope of the assertion is not a text.", NO_ENDPOINT)
    granted = claim.split() if claim is not None else list(oauth2_settings.DEFAULT_SCOPES)
    return narrowed(request, granted, granted)


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
