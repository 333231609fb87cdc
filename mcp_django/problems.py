"""Problems and their remedies: why requests and sign-ins are refused, by name.

System checks report wrong settings and declarations in the same form.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in detail (why a request or sign-in is refused), without credentials, and its remedy: for the log.

    ``told`` is the text for the sender of the request, "" if the sender must not know. ``remedy`` is a fixed text for
    each cause; if it is the same for several causes, ``cause`` is a fixed text that distinguishes them.
    """

    what: str
    remedy: str
    told: str = ""
    cause: str = ""


def nearest(name: Any, known: Iterable[str], least: float = 0.6) -> str:
    """Return the remedy of the problem that a name is not known: " Did you mean ...?" with one that is, or ""."""
    found = closest(str(name), known, least)
    return f" Did you mean {found!r}?" if found is not None else ""


def closest(name: str, known: Iterable[str], least: float) -> str | None:
    from difflib import get_close_matches  # only where something is wrong

    by_lower = {item.lower(): item for item in known}
    found = get_close_matches(name.strip().lower(), by_lower, 1, least)
    return by_lower[found[0]] if found else None


IS_IT_RIGHT: Final = "Is BASE_URL right?"
# Reasons why a request is not signed in, other than the token itself.
NO_TOKEN: Final = Problem("the request has no token", "Clients sign in next, or need a token in their configuration.")
TWO_TOKENS: Final = Problem(
    "the request has two Authorization headers",
    "Perhaps the client and a proxy each add one.",
    "The Authorization header is given twice.",
)
OTHER_SCHEME: Final = Problem(
    "the Authorization header has a scheme that none of AUTHENTICATION_CLASSES accepts",
    "By default it is Bearer, a space and one token.",
    "The Authorization header has a scheme that this endpoint does not accept.",
)
NOT_ACTIVE: Final = Problem("the user is not active", "Activate the user if they should have access.")
AMBIGUOUS: Final = Problem(
    "below the script prefix, another endpoint has the same path", "Mount one of them elsewhere."
)
NOT_SAID: Final = Problem("an authentication class refuses the credentials", "See its own rules.")

# Clients look for metadata documents at several places, and one of them is enough.
NO_DOCUMENT: Final = "If clients find no other document either, is the URL in the client right?"

# Authorization server
SENT: Final = "The client's program sent it."
ENTER_AGAIN: Final = "Enter the client's secret again, or let the client register again."
# Remedies for OAuth errors whose cause is not known, by error code.
REMEDIES: Final = {
    "invalid_client": ENTER_AGAIN,
    "invalid_client_metadata": "An administrator can add the application in the admin instead.",
    "invalid_grant": "The code_verifier is not from this sign-in, or two processes of the client used one code.",
    "invalid_redirect_uri": "An administrator can add the application in the admin instead.",
    "invalid_scope": "The client asks for a scope that OAUTH2_PROVIDER['SCOPES'] lacks, or for more than was granted.",
    "invalid_target": IS_IT_RIGHT,
    "not_found": NO_DOCUMENT,
    "unauthorized_client": "In the admin, the application needs the grant type 'Authorization code'.",
    "unsupported_grant_type": "Clients get tokens only by authorization_code and refresh_token.",
    "unsupported_response_type": "Clients sign in only by response_type=code.",
}

AGAIN: Final = "The user has to disconnect the application in the client and connect it again."

UNKNOWN_CLIENT: Final = Problem("the client is not known here", f"It was deleted, or the database was reset. {AGAIN}")
WRONG_SECRET: Final = Problem("the client sends no secret or a wrong one", ENTER_AGAIN)
DOCUMENTS_OFF: Final = Problem(
    "the client describes itself by a document, but CLIENT_DOCUMENTS['hosts'] allows none",
    "Set CLIENT_DOCUMENTS['hosts'] to 'all' or to the client's host. Where clients can register (REGISTRATION), the "
    "user can also remove this site in the client and add it again.",
    "This server accepts no metadata documents of clients.",
)
# Service accounts and identity providers
NO_ACCOUNT: Final = Problem(
    "there is no service account with this id", "Add one in the admin; other applications cannot use this grant."
)
ACCOUNT_CLOSED: Final = Problem(
    "the service account is not active, has ended, or its user is not active", "Look at the account in the admin."
)
WRONG_ACCOUNT_SECRET: Final = Problem(
    "the service account sends no secret or a wrong one", "In the admin, the account can get a new one."
)
NOT_FOR_CLIENT: Final = Problem(
    "no identity provider is set up for the client",
    "Add it to the admin as a confidential application, and its id to clients of IDENTITY_PROVIDERS.",
)
# Clients by metadata documents
NO_SIGNATURE: Final = Problem(
    "the client's metadata document says that it signs, but it sends no signed assertion",
    "The client has to send one (client_assertion), or its makers have to change the document.",
)
NO_KEYS: Final = "Only clients with keys in a metadata document can sign. Others send their secret, or nothing."
WRONG_KEY: Final = "Does the client sign with a key in its metadata document, or at its jwks_uri?"
BLOCKED_HOST: Final = Problem(
    "the host of the client's metadata document is not (or no longer) allowed",
    "See CLIENT_DOCUMENTS, and hosts of applications in the admin.",
)
# Codes
UNKNOWN_CODE: Final = Problem(
    "the code is not known: it was used before, or made elsewhere",
    "A code works once. Do all workers share one database?",
)
OLD_CODE: Final = Problem(
    "the code has expired", "It lasts AUTHORIZATION_CODE_EXPIRE_SECONDS. Do the servers' clocks agree?"
)
OTHERS: Final = Problem(
    "the code or refresh token belongs to another client", f"The client mixes up registrations. {AGAIN}"
)
WRONG_VERIFIER: Final = Problem("the code_verifier is not well-formed", "It has 43 to 128 letters, digits, or -._~")
# Refresh tokens
UNKNOWN_REFRESH: Final = Problem(
    "the refresh token is not known here", "It was removed, or the database was reset. The user must sign in again."
)
GRANT_OVER: Final = Problem("the time for which the user allowed the client has ended", "The user must sign in again.")
SPENT: Final = Problem(
    "the refresh token was used before or was revoked; all tokens made from it are revoked now",
    "Does the client run twice with one token store? If not, the user removed its access. The user must sign in again.",
)
UNUSED: Final = Problem(
    "the refresh token was unused for too long",
    "Unused, it lasts REFRESH_TOKEN_EXPIRE_SECONDS. The user must sign in again.",
)
SIGNED_OUT: Final = Problem(
    "the user's password or sign-in has changed since",
    "A new password ends such grants. The user must sign in again.",
)
# Consent page
CHANGED_FORM: Final = Problem("the form is not the one that was shown", "The user has to start again in the client.")
# Parameter in the URL to which the login page sends the browser back.
SIGNED_IN: Final = "mcp_signed_in"
NO_SESSION: Final = Problem(
    "the browser comes back from the login page without a session",
    "SESSION_COOKIE_PATH and SESSION_COOKIE_DOMAIN have to include this page; SESSION_COOKIE_SECURE needs https.",
)
LOST_SESSION: Final = Problem(
    "the browser comes back from the login page with the cookie of a session that is not known here",
    "Workers have to share sessions (SESSION_ENGINE, not the memory of each) and use one SECRET_KEY, not a random one.",
)
# Registration
NO_REGISTRATION: Final = Problem(
    "clients cannot register themselves", "REGISTRATION is 'off': add the application in the admin."
)
TOKEN_TO_REGISTER: Final = Problem(
    "the registration has no valid token", "REGISTRATION is 'authenticated': mcp_token makes a token for it."
)
MANY_CLIENTS: Final = Problem(
    "too many clients register", "RATES['registrations'] and RATES['registrations_total'] set the limits."
)
NOT_RESTORED: Final = Problem(
    "too many requests were refused, and those of all clients count as one address, that of the proxy",
    "Let the server set REMOTE_ADDR to the client's address, from the header of a proxy that it trusts.",
)
NO_CACHE: Final = Problem(
    "the cache does not answer, and it counts requests of strangers",
    "Check CACHES['default'], and the server that it names.",
    "This server cannot count requests: its cache does not answer.",
)
MANY_REFUSALS: Final = Problem(
    "too many requests of this client or address were refused", "RATES['refusals'] sets the limit."
)
NOTHING_REGISTERED: Final = Problem(
    "no model, tool, resource or prompt of the project is registered",
    "Register something in the mcp.py of an installed app, or its models in the admin with AUTO_REGISTER on.",
)
NO_DATABASE: Final = Problem("the database does not answer", "The error logged before this says why.")

ORDINARY: Final = frozenset({NO_TOKEN.remedy, NO_DOCUMENT})
