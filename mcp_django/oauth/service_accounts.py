"""Service accounts: tokens for programs by the grant ``client_credentials`` (RFC 6749, section 4.4).

This is the MCP extension ``io.modelcontextprotocol/oauth-client-credentials``. An administrator creates each account,
and the grant accepts no other clients, so it gives nothing to clients that registered themselves.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest
from oauth2_provider.models import get_access_token_model, get_application_model
from oauthlib.oauth2.rfc6749 import errors

from ..context.request import MCPContext
from ..models import ServiceAccount
from ..problems import Problem
from ..signin import FactName
from .assertions_and_keys import keys_of, read_credentials
from .resource_urls import resource_url, same_resource
from .stored_tokens import hashed_secret, issue, same_secret, stands
from .validator import check_resources, check_scopes, check_signature, invalid_client

logger = logging.getLogger("mcp_django")

WRONG_KEY: Final = "Is the key of the service account in the admin that of the program?"
NO_ACCOUNT: Final = Problem(
    "there is no service account with this id", "Add one in the admin; other applications cannot use this grant."
)
ACCOUNT_CLOSED: Final = Problem(
    "the service account is not active, has ended, or its user is not active", "Look at the account in the admin."
)
WRONG_ACCOUNT_SECRET: Final = Problem(
    "the service account sends no secret or a wrong one", "In the admin, the account can get a new one."
)


def account_token(request: HttpRequest) -> dict[str, Any]:
    """Answer a token request of a service account, which sends its secret or an assertion (RFC 6749, section 4.4)."""
    credentials = read_credentials(request)
    account = ServiceAccount._default_manager.select_related("user").filter(client_id=credentials.client_id).first()
    # The database may ignore case.
    if account is None or account.client_id != credentials.client_id:
        raise invalid_client(request, NO_ACCOUNT, "There is no service account with this id.")
    if credentials.assertion is not None:
        check_signature(request, account.client_id, credentials.assertion, keys_of(account), WRONG_KEY)
    elif not account.secret or not same_secret(credentials.secret, account.secret):
        raise invalid_client(request, WRONG_ACCOUNT_SECRET, "The client secret is missing or wrong.")
    if not account.user.is_active or not stands({FactName.SERVICE_ACCOUNT: account.pk}, account.user.pk):
        raise invalid_client(request, ACCOUNT_CLOSED, "The service account is closed.")
    scopes = check_scopes(request, account.scopes)
    resources = check_resources(request.POST.getlist("resource"), request)
    own = [resource_url(request, path) for path in account.endpoints]
    if own and not all(any(same_resource(url, resource) for url in own) for resource in resources):
        raise errors.CustomOAuth2Error(
            error="invalid_target", description="The service account is not for this endpoint."
        )
    facts = {FactName.SERVICE_ACCOUNT: account.pk, "name": account.name, MCPContext.CONFIRM_BY_TOKEN: True}
    issued = issue(account.user, application_of(account), scopes, resources, facts, until=account.expires)
    logger.info("Service account %r (%s) has a token as %s", account.name, account.client_id, account.user.pk)
    return issued


def new_secret(account: ServiceAccount) -> str:
    """Set a new secret on the account, without saving it, and return the secret."""
    secret = get_application_model()().client_secret
    account.secret = hashed_secret(secret)
    return str(secret)


def application_of(account: ServiceAccount) -> Any:
    """Return the toolkit's application of an account, to which its tokens belong; it is created if needed.

    No other flow issues tokens to the application. The account can revoke its tokens with the application's secret.
    """
    model = get_application_model()
    values = {
        "name": account.name,
        "client_type": model.CLIENT_CONFIDENTIAL,
        "authorization_grant_type": model.GRANT_CLIENT_CREDENTIALS,
        "client_secret": account.secret or hashed_secret(model().client_secret),
        "hash_client_secret": False,
    }
    application, is_new = model._default_manager.get_or_create(client_id=account.client_id, defaults=values)
    if (
        not is_new
        and (application.name, application.client_secret) != (account.name, account.secret)
        and account.secret
    ):
        application.name = account.name
        application.client_secret = account.secret
        application.hash_client_secret = False
        application.save()
    return application


def end_tokens(client_ids: Iterable[str]) -> None:
    """Revoke all tokens of the accounts with these client ids; their streams end too."""
    get_access_token_model()._default_manager.filter(application__client_id__in=list(client_ids)).delete()
