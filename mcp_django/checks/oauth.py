"""System checks of OAuth: unsafe settings of django-oauth-toolkit, missing URLs, rates, sign-in facts.

Most messages are errors, or warnings while ``DEBUG`` is on. Most checks only run if the endpoint accepts its tokens.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from operator import not_
from typing import Any, Final
from urllib.parse import urlsplit

from django import urls
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.http.request import validate_host
from django.shortcuts import resolve_url

from ..conf import settings
from ..conf.defaults import DEFAULTS
from ..context.request import MCPContext, MCPRequest
from ..emulation.admin_exposure import AdminExposure
from ..oauth.resource_urls import LOOPBACK, uses_oauth
from ..problems import nearest
from ..routing import known_urlconfs
from ..scopes import Scope
from ..signin import FactName, OTPDevice, SignIn, SignInFact
from .check_rules import Check, check, problem
from .declarations import mounted

METADATA: Final = "mcp_django.oauth.well_known_metadata"
FACTS_HINT: Final = 'The default is ["mcp_django.signin.OTPDevice"].'
OTP_MIDDLEWARE: Final = "django_otp.middleware.OTPMiddleware"
HOUR: Final = 3600
PER_PROCESS_CACHES: Final = ("LocMemCache", "DummyCache")


def is_open_http(origin: str) -> bool:
    """Return whether an origin is http on the network, not on this machine."""
    parts = urlsplit(origin)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK


def has_toolkit() -> bool:
    return uses_oauth() and apps.is_installed("oauth2_provider")


# Names of login pages that projects usually have.
LOGIN_PAGES: Final = ("account_login", "login", "admin:login")
CHECKS: Final[list[Check]] = []
DEPLOYMENT_CHECKS: Final[list[Check]] = []


@check(CHECKS)
def check_base_url() -> Iterator[CheckMessage]:
    base = settings.BASE_URL
    if not base:
        if not django_settings.DEBUG:
            hint = 'Set MCP_DJANGO["BASE_URL"] to the scheme, host and port that clients use.'
            yield problem("101", "BASE_URL is not set: the endpoint does not know its own URL.", hint)
        return
    parts = urlsplit(base)
    is_origin = parts.scheme in ("http", "https") and parts.netloc and not parts.path.strip("/")
    if not is_origin or parts.query or "@" in base:
        text = f"BASE_URL {base!r} is not just scheme, host and port."
        yield problem("102", text, "An example is https://shop.example.")
    if is_open_http(base) and not django_settings.DEBUG:
        hint = "Serve the site over TLS: these requests carry tokens and codes."
        yield problem("W103", f"BASE_URL {base!r} is not https.", hint)
    if not is_origin or parts.query or "@" in base:
        return
    host = parts.hostname or ""
    # Without ALLOWED_HOSTS, Django allows these in DEBUG.
    allowed = django_settings.ALLOWED_HOSTS or ([".localhost", *LOOPBACK] if django_settings.DEBUG else [])
    if not validate_host(host, allowed) and not (":" in host and validate_host(f"[{host}]", allowed)):
        text = f"The host of BASE_URL, {host!r}, is not in ALLOWED_HOSTS: Django answers its requests with 400."
        hint = f"Add {host!r} to ALLOWED_HOSTS, unless a proxy sends another Host header."
        yield problem("W127", text, hint)


@check(CHECKS, uses_oauth)
def check_proxy() -> Iterator[CheckMessage]:
    is_https = str(settings.BASE_URL or "").startswith("https://")
    is_developers = django_settings.DEBUG and not django_settings.SECURE_SSL_REDIRECT
    if is_https and not is_developers and not django_settings.SECURE_PROXY_SSL_HEADER:
        text = "BASE_URL is https and SECURE_PROXY_SSL_HEADER is not set: behind a proxy requests look like http, and "
        text += "the consent page refuses its own form (CSRF)."
        if django_settings.SECURE_SSL_REDIRECT:
            text += " SECURE_SSL_REDIRECT then redirects every request to itself forever."
        hint = 'If a proxy ends TLS, set it, such as to ("HTTP_X_FORWARDED_PROTO", "https"). If the server itself '
        hint += "does, or takes it from the proxy (uvicorn --proxy-headers), silence this check."
        yield problem("W128", text, hint)


# Number of the check, setting of the toolkit, test for unsafe values, their consequence, the value to set.
Unsafe = tuple[int, str, Callable[[Any], bool], str, str]


def _longer_than(most: int) -> Callable[[Any], bool]:
    def is_longer(value: Any) -> bool:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        return not value or not isinstance(value, (int, timedelta)) or seconds > most

    return is_longer


def _writes(scopes: Iterable[str]) -> bool:
    return not {"__all__", Scope.WRITE, Scope.ADMIN}.isdisjoint(scopes)


TOOLKIT_RULES: Final[tuple[Unsafe, ...]] = (
    (110, "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT", not_, "the implicit grant gives out tokens", "True"),
    (111, "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT", not_, "the password grant gives out tokens", "True"),
    (112, "COMPLIANT_BCP_RFC9700_PKCE_METHOD", not_, "codes are not protected by S256", "True"),
    (113, "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT", not_, "tokens are accepted in URLs", "True"),
    (114, "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS", not_, "clients cannot tell which server answered them", "True"),
    (115, "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE", not_, "tokens are stored in plain text", "True"),
    (116, "PKCE_REQUIRED", lambda value: value is not True, "codes can be used by whoever intercepts them", "True"),
    (117, "ROTATE_REFRESH_TOKEN", not_, "a stolen refresh token works forever", "True"),
    (118, "REFRESH_TOKEN_REUSE_PROTECTION", not_, "nobody notices a stolen refresh token", "True"),
    (
        119,
        "REFRESH_TOKEN_EXPIRE_SECONDS",
        _longer_than(365 * 24 * HOUR),
        "an unused refresh token lasts too long",
        "2592000",
    ),
    (120, "ALLOW_URI_WILDCARDS", bool, "codes can be sent to any host of a domain", "False"),
    (121, "DEFAULT_SCOPES", _writes, "without a scope, clients get more than read", '["mcp:read"]'),
    (122, "REQUEST_APPROVAL_PROMPT", lambda value: value != "force", "users are not always asked", '"force"'),
    (123, "ACCESS_TOKEN_EXPIRE_SECONDS", _longer_than(24 * HOUR), "a stolen access token lasts too long", "3600"),
    (124, "AUTHORIZATION_CODE_EXPIRE_SECONDS", _longer_than(600), "a stolen code lasts too long", "60"),
    (125, "DCR_ENABLED", bool, "the toolkit's own registration runs beside the throttled one", "False"),
    (126, "OIDC_ENABLED", bool, "ID tokens are issued, and the toolkit accepts them as access tokens", "False"),
)


@check(CHECKS, uses_oauth)
def check_toolkit() -> Iterator[CheckMessage]:
    if not apps.is_installed("oauth2_provider"):
        yield problem("104", "oauth2_provider is not installed.", 'Add "oauth2_provider" to INSTALLED_APPS.')
        return
    from oauth2_provider.settings import oauth2_settings as toolkit

    from ..oauth.client_registration import NEVER
    from ..oauth.validator import MCPValidator

    hint = "Build OAUTH2_PROVIDER with mcp_django.oauth.provider_settings()."
    if unsafe := sorted(NEVER.intersection(map(str.lower, toolkit.ALLOWED_REDIRECT_URI_SCHEMES))):
        text = f"ALLOWED_REDIRECT_URI_SCHEMES of OAUTH2_PROVIDER has {', '.join(unsafe)}: "
        remedy = "Leave it out: registration refuses it, and the admin's form for applications does not."
        yield problem("148", f"{text}a code, or a script, runs there.", remedy)
    if not hasattr(django_settings, "OAUTH2_PROVIDER"):
        text = "OAUTH2_PROVIDER is not set: the defaults of django-oauth-toolkit are not safe for MCP."
        yield problem("129", text, "Set OAUTH2_PROVIDER = mcp_django.oauth.provider_settings(base_url=BASE_URL).")
        return
    if not issubclass(toolkit.OAUTH2_VALIDATOR_CLASS, MCPValidator):
        text = "OAUTH2_VALIDATOR_CLASS is not MCPValidator: tokens for unknown resources and inactive users are issued."
        yield problem("105", text, "Use mcp_django.oauth.validator.MCPValidator or a subclass of it.")
    if Scope.READ not in toolkit.SCOPES:
        yield problem("106", f"SCOPES of OAUTH2_PROVIDER lacks {Scope.READ!r}: clients cannot sign in.", hint)
    issuer = toolkit.OIDC_ISS_ENDPOINT
    if issuer and settings.BASE_URL and issuer != settings.BASE_URL.rstrip("/"):
        text = f"OIDC_ISS_ENDPOINT {issuer!r} is not BASE_URL {settings.BASE_URL!r}: clients compare the two."
        yield problem("107", text, "Give provider_settings() the same base_url, without a trailing slash.")
    if toolkit.CIMD_ENABLED and toolkit.CIMD_METADATA_FETCHER.__module__.startswith("oauth2_provider."):
        text = "CIMD_ENABLED with the toolkit's own fetcher: a slow document can block a worker forever."
        yield problem("108", text, "Set it to False: CLIENT_DOCUMENTS of MCP_DJANGO has a fetcher of its own.")
    if not toolkit.ALLOW_LOCALHOST_LOOPBACK:
        text = "ALLOW_LOCALHOST_LOOPBACK is off: command-line clients use any localhost port and cannot sign in."
        yield problem("W109", text, hint)
    for number, name, is_unsafe, consequence, value in TOOLKIT_RULES:
        if is_unsafe(getattr(toolkit, name)):
            text = f"{name} of OAUTH2_PROVIDER is unsafe: {consequence}."
            yield problem(str(number), text, f"Set it to {value}, or b{hint[1:]}")


@check(CHECKS, has_toolkit)
def check_scopes() -> Iterator[CheckMessage]:
    from oauth2_provider.settings import oauth2_settings as toolkit

    available = list(toolkit.SCOPES)
    for site in mounted():
        declared: list[tuple[str, Any]] = [
            *(("tool", tool) for tool in site.function_tools()),
            *(("prompt", prompt) for prompt in site.prompts.values()),
            *(("resource", resource) for resource in site.resources.values()),
        ]
        for kind, item in declared:
            for scope in sorted(item.scopes.difference(available)):
                text = f"The {kind} {item.name!r} needs the scope {scope!r}, which SCOPES of OAUTH2_PROVIDER does not "
                yield problem(
                    "134", f"{text}have.", f"{nearest(scope, available)} There are {', '.join(available)}.".strip()
                )


def _takes_documents() -> bool:
    if not has_toolkit():
        return False
    from ..oauth.client_documents import takes_documents

    return takes_documents()


def _registers() -> bool:
    return settings.REGISTRATION != "off"


# Rates that should not be None: number of the check, test whether the rate matters, and the consequence of no limit.
RATES: Final[dict[str, tuple[str, Callable[[], bool], str]]] = {
    "refusals": ("147", uses_oauth, "anyone can try secrets, codes and tokens as fast as the server answers"),
    "registrations": ("131", _registers, "anyone can fill the table of clients"),
    "registrations_total": ("131", _registers, "anyone can fill the table of clients"),
    "documents": ("152", _takes_documents, "any user can make this server send requests as fast as it can"),
}


@check(CHECKS, uses_oauth)
def check_limits() -> Iterator[CheckMessage]:
    for name, (number, matters, consequence) in RATES.items():
        if settings.RATES[name] is None and matters():
            default = DEFAULTS["RATES"][name]
            yield problem(number, f"RATES[{name!r}] is None: {consequence}.", f"The default is {default!r}.")
    path = settings.CLIENT_DOCUMENTS["ca"]
    if path is not None and (_takes_documents() or settings.IDENTITY_PROVIDERS or settings.SERVICE_ACCOUNTS):
        try:
            ssl.create_default_context().load_verify_locations(str(path))
        except OSError as error:
            text = f"CLIENT_DOCUMENTS['ca'] {str(path)!r} cannot be read ({type(error).__name__}): nothing is fetched."
            yield problem("153", text, "It must be a PEM file of certificates.")


@check(CHECKS, uses_oauth)
def check_identity_providers() -> Iterator[CheckMessage]:
    entries = settings.IDENTITY_PROVIDERS
    if not entries:
        return
    model: Any = get_user_model()
    issuers = [entry["issuer"] for entry in entries]
    for issuer in sorted({issuer for issuer in issuers if issuers.count(issuer) > 1}):
        text = f"IDENTITY_PROVIDERS has {issuer!r} twice: a user of the one would be a user of the other."
        yield problem("154", text, "List all of its clients in one entry.")
    try:
        email = model._meta.get_field(model.get_email_field_name()).name
    except (AttributeError, FieldDoesNotExist):
        email = ""
    if not email and any(entry.get("link", "subject") != "subject" for entry in entries):
        text = "IDENTITY_PROVIDERS links users by e-mail, but the user model has no such field."
        yield problem("155", text, 'Set link to "subject", and link users in the admin.')
    more = sorted(set(model.REQUIRED_FIELDS) - {email})
    if more and any(entry.get("create") for entry in entries):
        text = f"IDENTITY_PROVIDERS creates users, but users need {', '.join(more)}, which providers do not send."
        yield problem("156", text, "Set create to False, and create users another way.")


@check(CHECKS)
def check_cache() -> Iterator[CheckMessage]:
    backend = django_settings.CACHES.get("default", {}).get("BACKEND", "")
    if backend.endswith(PER_PROCESS_CACHES) and not django_settings.DEBUG:
        text = (
            "Rate limits and used confirmations are counted in a cache that each process has for itself, or not at all."
        )
        yield problem("W133", text, "Configure a shared cache, such as Redis.")


@check(CHECKS, uses_oauth)
def check_sessions() -> Iterator[CheckMessage]:
    if django_settings.SESSION_ENGINE != "django.contrib.sessions.backends.cache" or django_settings.DEBUG:
        return
    backend = django_settings.CACHES.get(django_settings.SESSION_CACHE_ALIAS, {}).get("BACKEND", "")
    if backend.endswith(PER_PROCESS_CACHES):
        text = "Sessions are in a cache that each process has for itself: other workers do not know who has signed in."
        hint = "Store sessions in the database or in a shared cache: see SESSION_ENGINE and SESSION_CACHE_ALIAS."
        yield problem("W158", text, hint)


@check(CHECKS, uses_oauth)
def check_urls() -> Iterator[CheckMessage]:
    active = urls.get_urlconf()
    try:
        for urlconf in known_urlconfs():
            urls.set_urlconf(urlconf)
            yield from _check_urlconf(str(getattr(urlconf, "__name__", urlconf)))
    finally:
        urls.set_urlconf(active)
    if any(_has_introspection(urls.get_resolver(urlconf).url_patterns) for urlconf in known_urlconfs()):
        text = "The toolkit's introspection is mounted: any registered client can read the tokens that it holds."
        yield problem("W142", text, "Leave oauth2_provider.urls out of the URLconf.")


def _check_urlconf(name: str) -> Iterator[CheckMessage]:
    if not mounted():
        return
    # The view has to be this app's own, not one of the project or the toolkit.
    document = _view_at("/.well-known/oauth-protected-resource")
    if getattr(document, "__module__", "") != METADATA:
        text = f"The metadata of the endpoint is not at the root of the URLconf {name!r}: clients cannot sign in."
        hint = f'Add path("", include("mcp_django.oauth.urls")) to {name}, before any pattern that takes every path.'
        yield problem("W140", text, hint)
    try:
        login = resolve_url(django_settings.LOGIN_URL)
    except urls.NoReverseMatch:
        login = ""
    prefix = urls.get_script_prefix()
    is_here = login.startswith(prefix) and _view_at("/" + login.removeprefix(prefix)) is not None
    if not login.startswith(("http:", "https:")) and not is_here:
        text = f"LOGIN_URL {str(django_settings.LOGIN_URL)!r} leads nowhere: users cannot sign in to allow a client."
        yield problem("W141", text, _login_hint())


def _login_hint() -> str:
    """Return the remedy for a login page that is not there: one that is, or how to get one."""
    for name in LOGIN_PAGES:
        with suppress(urls.NoReverseMatch, ImproperlyConfigured):
            path = "/" + urls.reverse(name).removeprefix(urls.get_script_prefix())
            if _view_at(path) is not None:
                return f'Set LOGIN_URL = "{name}".'
    return (
        'No login page was found. Mount one, such as path("admin/", admin.site.urls) for LOGIN_URL = "admin:login", or '
        'path("accounts/", include("django.contrib.auth.urls")) for "login".'
    )


def _view_at(path: str) -> Any:
    try:
        return urls.resolve(path).func
    except (urls.Resolver404, ImproperlyConfigured, AttributeError):
        return None


def _has_introspection(patterns: Any) -> bool:
    """Return whether the toolkit's introspection view is among these URL patterns, or included by one of them."""
    for pattern in patterns:
        if hasattr(pattern, "url_patterns"):
            if _has_introspection(pattern.url_patterns):
                return True
            continue
        view_class = getattr(pattern.callback, "view_class", None)
        if getattr(view_class, "__name__", "") == "IntrospectTokenView":
            return True
    return False


@check(CHECKS, uses_oauth)
def check_session_cookie() -> Iterator[CheckMessage]:
    try:
        page = urls.reverse("mcp_oauth:authorize")
    except (urls.NoReverseMatch, ImproperlyConfigured):
        return
    path = django_settings.SESSION_COOKIE_PATH
    if not page.startswith(path if path.endswith("/") else f"{path}/"):
        text = f"SESSION_COOKIE_PATH {path!r} does not cover the consent page, {page}: users are not signed in there."
        yield problem("W157", text, "Set it to a path above both, such as '/'.")


@check(CHECKS)
def check_sign_in() -> Iterator[CheckMessage]:
    try:
        facts = settings.SIGN_IN_FACTS
    except ImproperlyConfigured as error:
        yield problem("E143", str(error), FACTS_HINT)
        return
    wrong = [fact for fact in facts if not _is_fact(fact)]
    for fact in wrong:
        text = f"SIGN_IN_FACTS has {fact!r}, not a subclass of mcp_django.signin.SignInFact with a name."
        yield problem("E143", text, FACTS_HINT)
    if not wrong and uses_oauth():
        for admin_site in {site.admin_site for site in mounted() if site.admin_site is not None}:
            yield from _check_admin_site(admin_site)


def _is_fact(fact: Any) -> bool:
    return (
        isinstance(fact, type) and issubclass(fact, SignInFact) and bool(fact.name) and fact.name != FactName.CREDENTIAL
    )


def _check_admin_site(admin_site: Any) -> Iterator[CheckMessage]:
    request = MCPRequest()
    request.mcp = MCPContext(None)
    # Assume that a fact of the project's own is kept.
    has_otp = apps.is_installed("django_otp") and OTP_MIDDLEWARE in django_settings.MIDDLEWARE
    is_kept = any(fact is not OTPDevice or has_otp for fact in settings.SIGN_IN_FACTS)
    try:
        request.user = get_user_model()(is_staff=True, is_superuser=True, is_active=True)
        SignIn(request).restore()
        if admin_site.has_permission(request):
            return
        seen = "admits nobody by password alone"
    except (AttributeError, KeyError) as error:
        # A call has a session of its own, in which nothing is stored.
        seen = f"needs what only a browser has ({error})"
        is_kept = False
    except Exception:  # such as in a query: this user is not in the database
        return
    other = login_admin()
    if not is_kept:
        text = f"The admin site {admin_site.name!r} {seen}: clients will see nothing of it."
        yield problem(
            "W144", text, "Store what it asks for with the tokens: add a class to SIGN_IN_FACTS (docs/oauth.md)."
        )
    elif other not in (None, admin_site) and type(other).has_permission is AdminSite.has_permission:
        text = f"LOGIN_URL is the page of an admin that asks only for a password; {admin_site.name!r} asks for more."
        yield problem("W145", text, "Set LOGIN_URL to the page on which users give their second factor.")


def login_admin() -> AdminSite | None:
    """Return the admin site whose login page is at ``LOGIN_URL``, None for another page."""
    try:
        login = urlsplit(resolve_url(django_settings.LOGIN_URL)).path
        owner = getattr(urls.resolve("/" + login.removeprefix(urls.get_script_prefix())).func, "__self__", None)
    except (urls.NoReverseMatch, urls.Resolver404, ImproperlyConfigured):
        return None
    return owner if isinstance(owner, AdminSite) else None


@check(DEPLOYMENT_CHECKS, uses_oauth)
def check_audience() -> Iterator[CheckMessage]:
    """Find exposures that are open to users without ``is_staff`` while ``LOGIN_URL`` lets only staff sign in."""
    from ..emulation.history_model import HistoryRows
    from ..emulation.inline_rows import InlineRows

    if login_admin() is None:
        return
    # These exposures come from the admin's pages, so only users of the admin can see them.
    closed = (AdminExposure, HistoryRows, InlineRows)
    exposures = (exposure for site in mounted() for exposure in site.exposures.values())
    open_to_all = next((exposure for exposure in exposures if not isinstance(exposure, closed)), None)
    if open_to_all is not None:
        text = f"Only staff can sign in at LOGIN_URL, and {type(open_to_all).__name__} does not ask users to be staff."
        hint = "Set LOGIN_URL to a page for all users. If all of them are staff, silence this check."
        yield problem("I135", text, hint)
