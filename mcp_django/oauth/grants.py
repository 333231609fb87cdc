"""The grants of the token endpoint beside codes and refresh tokens: for who proves by themselves what they may have.

They share nothing with the flow of a user at the browser, so that it stays what it is: what clients can get that
registered themselves does not depend on anything here.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.http import HttpRequest, JsonResponse
from oauthlib.oauth2 import OAuth2Error
from oauthlib.oauth2.rfc6749 import errors

from ..signin import LINKED_IDENTITY, SERVICE_ACCOUNT
from . import accounts, identities, linking
from .assertions import ALGORITHMS
from .issuing import Issued

GRANTS: Final[dict[str, tuple[Callable[[], bool], Callable[[HttpRequest], Issued]]]] = {
    accounts.GRANT: (accounts.is_offered, accounts.account_token),
    identities.GRANT: (identities.is_offered, identities.identity_token),
}


def is_offered(grant: str | None) -> bool:
    """Return whether the site has somebody for whom the grant is."""
    return grant in GRANTS and GRANTS[grant][0]()


def stands(facts: Mapping[str, Any], user: Any) -> bool:
    """Return whether what a token was issued for still holds; ``user`` is the key of its user."""
    account, identity = facts.get(SERVICE_ACCOUNT), facts.get(LINKED_IDENTITY)
    if account is not None and not accounts.may_act(account, user):
        return False
    return identity is None or linking.is_linked(identity, user)


def respond(request: HttpRequest) -> JsonResponse:
    """Answer a request for a token by one of these grants, which is offered."""
    try:
        return _answer(dict(GRANTS[request.POST["grant_type"]][1](request)), 200)
    except OAuth2Error as error:
        told = {"error": error.error} | ({"error_description": error.description} if error.description else {})
        response = _answer(told, error.status_code)
        if isinstance(error, errors.InvalidClientError) and "HTTP_AUTHORIZATION" in request.META:
            # RFC 6749, section 5.2
            response["WWW-Authenticate"] = 'Basic realm="token", charset="UTF-8"'
        return response


def extend(document: dict[str, Any]) -> None:
    """Add what is offered to the metadata of the authorization server."""
    document["grant_types_supported"] += [name for name in GRANTS if is_offered(name)]
    if accounts.GRANT in document["grant_types_supported"] or identities.has_signing_clients():
        methods = [*document["token_endpoint_auth_methods_supported"], "client_secret_basic", "private_key_jwt"]
        document["token_endpoint_auth_methods_supported"] = list(dict.fromkeys(methods))
        document["token_endpoint_auth_signing_alg_values_supported"] = list(ALGORITHMS)
    if identities.GRANT in document["grant_types_supported"]:
        document["authorization_grant_profiles_supported"] = [identities.PROFILE]


def _answer(body: dict[str, Any], status: int) -> JsonResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})
