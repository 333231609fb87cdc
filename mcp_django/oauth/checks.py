"""System checks of the authorization server: each setting of the toolkit that would be unsafe, and what is missing.

A finding is an error (``E1xx``) where it matters, and the same number as a warning (``W1xx``) while ``DEBUG`` is on.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, resolve

from ..conf import DEFAULTS, settings

__all__ = ["CHECKS"]

AUTHENTICATION: Final = "mcp_django.oauth.bearer.BearerAuthentication"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
HOUR: Final = 3600
PER_PROCESS_CACHES: Final = ("LocMemCache", "DummyCache")


def uses_oauth() -> bool:
    """Tell whether the endpoint takes this server's tokens."""
    configured = getattr(django_settings, "MCP_DJANGO", {}).get("AUTHENTICATION_CLASSES", [AUTHENTICATION])
    return any(item == AUTHENTICATION or getattr(item, "__name__", "") == "BearerAuthentication" for item in configured)


def finding(number: int, message: str, hint: str) -> CheckMessage:
    """Return an error, or a warning while developing."""
    if django_settings.DEBUG:
        return Warning(message, hint=hint, id=f"mcp_django.W{number}")
    return Error(message, hint=hint, id=f"mcp_django.E{number}")


def check_base_url(**kwargs: Any) -> list[CheckMessage]:
    """Check the origin that clients use and tokens are bound to."""
    base = settings.BASE_URL
    if not base:
        if django_settings.DEBUG:
            return []
        hint = 'Set MCP_DJANGO["BASE_URL"] to scheme, host and port as clients write them.'
        return [finding(101, "BASE_URL is not set: the endpoint does not know its own URL.", hint)]
    found = []
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query or "@" in base:
        hint = "An example is https://shop.example."
        found.append(finding(102, f"BASE_URL {base!r} is not scheme, host and port alone.", hint))
    if parts.scheme == "http" and parts.hostname not in LOOPBACK and not django_settings.DEBUG:
        hint = "Serve the site by TLS: tokens and codes travel in these requests."
        found.append(Warning(f"BASE_URL {base!r} is not https.", hint=hint, id="mcp_django.W103"))
    return found


# Number, setting of the toolkit, what makes it unsafe, what then happens, the value to set.
Rule = tuple[int, str, Callable[[Any], bool], str, str]


def _off(value: Any) -> bool:
    return not value


def _on(value: Any) -> bool:
    return bool(value)


def _longer_than(seconds: int) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, int) or value > seconds


RULES: Final[tuple[Rule, ...]] = (
    (110, "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT", _off, "tokens can be had by the implicit grant", "True"),
    (111, "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT", _off, "tokens can be had by the password grant", "True"),
    (112, "COMPLIANT_BCP_RFC9700_PKCE_METHOD", _off, "codes are not protected by S256", "True"),
    (113, "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT", _off, "tokens are accepted in URLs", "True"),
    (114, "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS", _off, "clients cannot tell which server answered them", "True"),
    (115, "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE", _off, "tokens are stored as they are", "True"),
    (116, "PKCE_REQUIRED", lambda value: value is not True, "codes can be used by whoever intercepts them", "True"),
    (117, "ROTATE_REFRESH_TOKEN", _off, "a stolen refresh token works for ever", "True"),
    (118, "REFRESH_TOKEN_REUSE_PROTECTION", _off, "the theft of a refresh token is not noticed", "True"),
    (119, "REFRESH_TOKEN_EXPIRE_SECONDS", _off, "an unused refresh token works for ever", "2592000"),
    (120, "ALLOW_URI_WILDCARDS", _on, "codes can be sent to any host of a domain", "False"),
    (121, "DEFAULT_SCOPES", lambda value: "__all__" in value, "who asks for no scope gets all of them", '["mcp:read"]'),
    (122, "REQUEST_APPROVAL_PROMPT", lambda value: value != "force", "users are not always asked", '"force"'),
    (123, "ACCESS_TOKEN_EXPIRE_SECONDS", _longer_than(24 * HOUR), "a stolen access token works too long", "3600"),
    (124, "AUTHORIZATION_CODE_EXPIRE_SECONDS", _longer_than(600), "a stolen code works too long", "60"),
    (125, "DCR_ENABLED", _on, "the toolkit's own registration runs beside the throttled one", "False"),
    (126, "OIDC_ENABLED", _on, "ID tokens are issued, which the toolkit takes for access tokens", "False"),
)


def check_toolkit_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check each setting of django-oauth-toolkit that would be unsafe."""
    if not uses_oauth() or not apps.is_installed("oauth2_provider"):
        return []
    from oauth2_provider.settings import oauth2_settings

    return [
        finding(
            number,
            f"{name} of OAUTH2_PROVIDER is unsafe: {consequence}.",
            f"Set it to {value}, or build OAUTH2_PROVIDER with mcp_django.oauth.provider_settings().",
        )
        for number, name, unsafe, consequence, value in RULES
        if unsafe(getattr(oauth2_settings, name))
    ]


def check_toolkit(**kwargs: Any) -> list[CheckMessage]:
    """Check that the toolkit is there and works by this app's rules."""
    if not uses_oauth():
        return []
    if not apps.is_installed("oauth2_provider"):
        return [finding(104, "oauth2_provider is not installed.", 'Add "oauth2_provider" to INSTALLED_APPS.')]
    from oauth2_provider.settings import oauth2_settings

    from .scopes import READ
    from .validator import MCPValidator

    hint = "Build OAUTH2_PROVIDER with mcp_django.oauth.provider_settings()."
    found = []
    if not issubclass(oauth2_settings.OAUTH2_VALIDATOR_CLASS, MCPValidator):
        text = "OAUTH2_VALIDATOR_CLASS is not MCPValidator: tokens for unknown resources and inactive users are issued."
        found.append(finding(105, text, "Use mcp_django.oauth.validator.MCPValidator or a subclass of it."))
    if READ not in oauth2_settings.SCOPES:
        found.append(finding(106, f"SCOPES of OAUTH2_PROVIDER lacks {READ!r}: clients cannot sign in.", hint))
    issuer = oauth2_settings.OIDC_ISS_ENDPOINT
    if issuer and settings.BASE_URL and issuer != settings.BASE_URL.rstrip("/"):
        text = f"OIDC_ISS_ENDPOINT {issuer!r} is not BASE_URL {settings.BASE_URL!r}: clients compare the two."
        found.append(finding(107, text, "Give provider_settings() the same base_url, without a trailing slash."))
    if oauth2_settings.CIMD_ENABLED:
        fetcher = f"{oauth2_settings.CIMD_METADATA_FETCHER.__module__}"
        if fetcher.startswith("oauth2_provider."):
            text = "CIMD_ENABLED with the toolkit's own fetcher: a slow document holds a worker without limit."
            found.append(finding(108, text, "Set it to False."))
    if not oauth2_settings.ALLOW_LOCALHOST_LOOPBACK:
        text = "ALLOW_LOCALHOST_LOOPBACK is off: command-line clients, which use any port of localhost, cannot sign in."
        found.append(Warning(text, hint=hint, id="mcp_django.W109"))
    return found


def check_registration(**kwargs: Any) -> list[CheckMessage]:
    """Check that registration has a known mode and limits that hold for all processes."""
    if not uses_oauth():
        return []
    if settings.REGISTRATION not in ("open", "authenticated", "off"):
        hint = 'It is "open", "authenticated" or "off".'
        return [Error(f"REGISTRATION is {settings.REGISTRATION!r}.", hint=hint, id="mcp_django.E130")]
    if settings.REGISTRATION == "off":
        return []
    from ..rates import parse_rate

    found: list[CheckMessage] = []
    for name in ("REGISTRATION_RATE", "REGISTRATION_TOTAL_RATE"):
        rate = getattr(settings, name)
        if rate is None:
            hint = f"The default is {DEFAULTS[name]!r}."
            found.append(finding(131, f"{name} is None: anyone can fill the table of clients.", hint))
            continue
        try:
            parse_rate(rate)
        except ValueError as error:
            found.append(Error(f"{name}: {error}.", hint="Periods are s, m, h and d.", id="mcp_django.E132"))
    backend = django_settings.CACHES.get("default", {}).get("BACKEND", "")
    if backend.endswith(PER_PROCESS_CACHES) and not django_settings.DEBUG:
        text = "The limits of registration count in a cache that each process has to itself."
        found.append(Warning(text, hint="Configure a shared cache, such as Redis.", id="mcp_django.W133"))
    return found


def check_urls(**kwargs: Any) -> list[CheckMessage]:
    """Check that clients find the documents, and users the page to sign in on."""
    if not uses_oauth():
        return []
    found: list[CheckMessage] = []
    if not _resolves("/.well-known/oauth-protected-resource"):
        text = "The metadata of the endpoint is not at the root of the URLconf: clients cannot sign in."
        hint = 'Add path("", include("mcp_django.oauth.urls")) to the root URLconf.'
        found.append(Warning(text, hint=hint, id="mcp_django.W140"))
    try:
        login = resolve_url(django_settings.LOGIN_URL)
    except NoReverseMatch:
        login = ""
    if not login.startswith(("http:", "https:")) and not _resolves(login):
        text = f"LOGIN_URL {str(django_settings.LOGIN_URL)!r} leads nowhere: users cannot sign in to allow a client."
        hint = 'An example for a site with an admin is LOGIN_URL = "admin:login".'
        found.append(Warning(text, hint=hint, id="mcp_django.W141"))
    if _view_name("/o/introspect/", "/oauth/introspect/") == "IntrospectTokenView":
        text = "The toolkit's introspection is mounted: any registered client can read the tokens that it holds."
        found.append(Warning(text, hint="Leave oauth2_provider.urls out of the URLconf.", id="mcp_django.W142"))
    return found


def _resolves(path: str) -> bool:
    try:
        resolve(path)
    except (Resolver404, ImproperlyConfigured, AttributeError):
        return False
    return True


def _view_name(*paths: str) -> str:
    for path in paths:
        if _resolves(path):
            return getattr(getattr(resolve(path).func, "view_class", None), "__name__", "")
    return ""


CHECKS: Final = (check_base_url, check_toolkit, check_toolkit_settings, check_registration, check_urls)
