"""Service accounts: tokens for programs without a person, by the grant ``client_credentials`` (MCP extension
``io.modelcontextprotocol/oauth-client-credentials``).

An administrator makes each account. Nothing that registers itself is one: the grant knows accounts and no other client.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from django.http import HttpRequest
from oauth2_provider.models import get_access_token_model, get_application_model
from oauthlib.oauth2.rfc6749 import errors

from ..conf import settings
from ..context.request import CONFIRM_BY_TOKEN
from ..exceptions import Reason
from ..models import ServiceAccount
from ..signin import SERVICE_ACCOUNT
from .assertions import Assertion, InvalidAssertion
from .credentials import Credentials, check_assertion, invalid_client, keys_of, read_credentials
from .issuing import Issued, bound_to, issue, narrowed
from .refusals import note
from .resource import resource_url, same_resource
from .secrets import hashed_secret, same_secret

logger = logging.getLogger("mcp_django")

GRANT: Final = "client_credentials"

NO_ACCOUNT: Final = Reason(
    "there is no service account of this id", "Add one in the admin; other applications cannot use this grant."
)
CLOSED: Final = Reason(
    "the service account is not active, has ended, or its user is not active", "Look at the account in the admin."
)
WRONG_SECRET: Final = Reason(
    "the service account sends no secret or a wrong one", "In the admin, the account can get a new one."
)
WRONG_KEY: Final = "Is the key of the service account in the admin that of the program?"


def is_offered() -> bool:
    """Return whether the site has service accounts."""
    return bool(settings.SERVICE_ACCOUNTS)


def may_act(account: Any, user: Any) -> bool:
    """Return whether the account with this key may act now, as the user with this one."""
    return is_offered() and ServiceAccount.usable().filter(pk=account, user=user).exists()


def account_token(request: HttpRequest) -> Issued:
    """Return a token for the service account that asks (RFC 6749, section 4.4).

    Raises:
        OAuth2Error: there is none for it.
    """
    account = _authenticated(request, read_credentials(request))
    scopes = narrowed(request, account.scopes, account.scopes)
    resources = bound_to(request)
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


# Who asks


def _authenticated(request: HttpRequest, credentials: Credentials) -> ServiceAccount:
    accounts = ServiceAccount._default_manager.select_related("user")
    account = accounts.filter(client_id=credentials.client_id).first()
    # A database may take letters of another case for the same.
    if account is None or account.client_id != credentials.client_id:
        note(request.META, NO_ACCOUNT)
        raise errors.InvalidClientError(description="There is no service account of this id.")
    if credentials.assertion is not None:
        _check_assertion(request, account, credentials.assertion)
    elif not account.secret or not same_secret(credentials.secret, account.secret):
        note(request.META, WRONG_SECRET)
        raise errors.InvalidClientError(description="The client secret is missing or wrong.")
    if not account.user.is_active or not may_act(account.pk, account.user.pk):
        note(request.META, CLOSED)
        raise errors.InvalidClientError(description="The service account is closed.")
    return account


def _check_assertion(request: HttpRequest, account: ServiceAccount, assertion: Assertion) -> None:
    try:
        check_assertion(request, account.client_id, assertion, keys_of(account))
    except InvalidAssertion as refusal:
        note(request.META, refusal.reason(WRONG_KEY), refusal.wait)
        raise invalid_client(refusal) from None
