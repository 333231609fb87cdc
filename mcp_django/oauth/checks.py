"""System checks of the authorization server: each setting of the toolkit that would be unsafe, and what is missing.

A finding is an error (``E1xx``) where it matters, and the same number as a warning (``W1xx``) while ``DEBUG`` is on.
"""

import ssl
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Info, Warning
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.http.request import validate_host
from django.shortcuts import resolve_url
from django.urls import (
    NoReverseMatch,
    Resolver404,
    get_resolver,
    get_script_prefix,
    get_urlconf,
    resolve,
    reverse,
    set_urlconf,
)
from django.utils.module_loading import import_string

from ..conf import DEFAULTS, nearest, settings
from ..context.request import MCPContext, MCPRequest
from ..exposures.admin import AdminExposure
from ..routing import known_urlconfs, mounted_sites
from ..scopes import ADMIN, READ, WRITE
from ..signin import CREDENTIAL, OTPDevice, SignInFact, restore

AUTHENTICATION: Final = "mcp_django.oauth.bearer.BearerAuthentication"
METADATA: Final = "mcp_django.oauth.metadata"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
FACTS_HINT: Final = 'The default is ["mcp_django.signin.OTPDevice"].'
OTP_MIDDLEWARE: Final = "django_otp.middleware.OTPMiddleware"
HOUR: Final = 3600
PER_PROCESS_CACHES: Final = ("LocMemCache", "DummyCache")


def uses_oauth() -> bool:
    """Tell whether the endpoint takes this server's tokens."""
    configured = getattr(django_settings, "MCP_DJANGO", {}).get("AUTHENTICATION_CLASSES", [AUTHENTICATION])
    return any(map(_takes_tokens, configured))


def _takes_tokens(authentication: Any) -> bool:
    """Tell whether an authentication class, or the one of that name, is the app's or derived from it."""
    if authentication == AUTHENTICATION:
        return True
    try:
        found = import_string(authentication) if isinstance(authentication, str) else authentication
    except RuntimeError:  # it needs the toolkit, which is not installed
        return True
    except Exception:  # whatever the project's module raises; Django says so when it is needed
        return False
    names = {f"{base.__module__}.{base.__qualname__}" for base in getattr(found, "__mro__", ())}
    return AUTHENTICATION in names


def finding(number: int, message: str, hint: str) -> CheckMessage:
    """Return an error, or a warning while developing."""
    if django_settings.DEBUG:
        return Warning(message, hint=hint, id=f"mcp_django.W{number}")
    return Error(message, hint=hint, id=f"mcp_django.E{number}")


def is_open_http(origin: str) -> bool:
    """Return whether what is sent to the origin can be read and changed on its way."""
    parts = urlsplit(origin)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK


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
    if is_open_http(base) and not django_settings.DEBUG:
        hint = "Serve the site by TLS: tokens and codes travel in these requests."
        found.append(Warning(f"BASE_URL {base!r} is not https.", hint=hint, id="mcp_django.W103"))
    if not found[:1] or found[0].id == "mcp_django.W103":
        found += _check_host(parts.hostname or "")
    return found


def _check_host(host: str) -> Iterator[CheckMessage]:
    # As Django takes them in DEBUG.
    allowed = django_settings.ALLOWED_HOSTS or ([".localhost", *LOOPBACK] if django_settings.DEBUG else [])
    if not validate_host(host, allowed) and not (":" in host and validate_host(f"[{host}]", allowed)):
        text = f"The host of BASE_URL, {host!r}, is not in ALLOWED_HOSTS: Django answers its requests with 400."
        hint = f"Add {host!r} to ALLOWED_HOSTS. A proxy that sends another Host header is the one reason not to."
        yield Warning(text, hint=hint, id="mcp_django.W127")


def check_proxy(**kwargs: Any) -> list[CheckMessage]:
    """Check that requests behind a proxy that ends TLS are known to be secure, where nobody develops."""
    is_https = str(settings.BASE_URL or "").startswith("https://")
    is_developers = django_settings.DEBUG and not django_settings.SECURE_SSL_REDIRECT
    if not is_https or is_developers or django_settings.SECURE_PROXY_SSL_HEADER or not uses_oauth():
        return []
    text = "BASE_URL is https and SECURE_PROXY_SSL_HEADER is not set: behind a proxy requests look like http, and the "
    text += "consent page refuses its own form (CSRF)."
    if django_settings.SECURE_SSL_REDIRECT:
        text += " SECURE_SSL_REDIRECT then redirects every request to itself for ever."
    hint = 'If a proxy ends TLS, set it, such as to ("HTTP_X_FORWARDED_PROTO", "https"). If the server itself does, or '
    hint += "takes it from the proxy (uvicorn --proxy-headers), silence this check."
    return [Warning(text, hint=hint, id="mcp_django.W128")]


# Number, setting of the toolkit, what makes it unsafe, what then happens, the value to set.
Rule = tuple[int, str, Callable[[Any], bool], str, str]


def _off(value: Any) -> bool:
    return not value


def _on(value: Any) -> bool:
    return bool(value)


def _longer_than(seconds: int) -> Callable[[Any], bool]:
    return lambda value: not value or not isinstance(value, (int, timedelta)) or _seconds(value) > seconds


def _seconds(value: int | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _writes(scopes: Iterable[str]) -> bool:
    return not {"__all__", WRITE, ADMIN}.isdisjoint(scopes)


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
    (
        119,
        "REFRESH_TOKEN_EXPIRE_SECONDS",
        _longer_than(365 * 24 * HOUR),
        "an unused refresh token works too long",
        "2592000",
    ),
    (120, "ALLOW_URI_WILDCARDS", _on, "codes can be sent to any host of a domain", "False"),
    (121, "DEFAULT_SCOPES", _writes, "who asks for no scope gets more than reading", '["mcp:read"]'),
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
    if not hasattr(django_settings, "OAUTH2_PROVIDER"):
        text = "OAUTH2_PROVIDER is not set: the defaults of django-oauth-toolkit are not safe for MCP."
        hint = "Set OAUTH2_PROVIDER = mcp_django.oauth.provider_settings(base_url=BASE_URL)."
        return [finding(129, text, hint)]
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
    if apps.is_installed("oauth2_provider") and not hasattr(django_settings, "OAUTH2_PROVIDER"):
        return []
    if not apps.is_installed("oauth2_provider"):
        return [finding(104, "oauth2_provider is not installed.", 'Add "oauth2_provider" to INSTALLED_APPS.')]
    from oauth2_provider.settings import oauth2_settings

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
            found.append(
                finding(108, text, "Set it to False: CLIENT_DOCUMENTS of MCP_DJANGO has a fetcher of its own.")
            )
    if not oauth2_settings.ALLOW_LOCALHOST_LOOPBACK:
        text = "ALLOW_LOCALHOST_LOOPBACK is off: command-line clients, which use any port of localhost, cannot sign in."
        found.append(Warning(text, hint=hint, id="mcp_django.W109"))
    return found


def check_registration(**kwargs: Any) -> list[CheckMessage]:
    """Check that what strangers may ask for has limits."""
    if not uses_oauth():
        return []
    found: list[CheckMessage] = []
    if settings.TOKEN_REFUSAL_RATE is None:
        text = "TOKEN_REFUSAL_RATE is None: anyone can try secrets, codes and tokens as fast as the server answers."
        found.append(finding(147, text, f"The default is {DEFAULTS['TOKEN_REFUSAL_RATE']!r}."))
    if settings.REGISTRATION == "off":
        return found
    for name in ("REGISTRATION_RATE", "REGISTRATION_TOTAL_RATE"):
        if getattr(settings, name) is None:
            hint = f"The default is {DEFAULTS[name]!r}."
            found.append(finding(131, f"{name} is None: anyone can fill the table of clients.", hint))
    return found


def check_documents(**kwargs: Any) -> list[CheckMessage]:
    """Check what is set of documents and keys that are fetched."""
    if not uses_oauth() or not apps.is_installed("oauth2_provider"):
        return []
    from .hosts import takes_documents

    if not (takes_documents() or settings.IDENTITY_PROVIDERS or settings.SERVICE_ACCOUNTS):
        return []
    found: list[CheckMessage] = []
    if takes_documents() and settings.CLIENT_DOCUMENT_RATE is None:
        text = "CLIENT_DOCUMENT_RATE is None: any user can make this server send requests as fast as it can."
        found.append(finding(152, text, f"The default is {DEFAULTS['CLIENT_DOCUMENT_RATE']!r}."))
    path = settings.CLIENT_DOCUMENT_CA
    try:
        if path is not None:
            ssl.create_default_context().load_verify_locations(str(path))
    except OSError as error:
        text = f"CLIENT_DOCUMENT_CA {str(path)!r} cannot be read ({type(error).__name__}): nothing is fetched."
        found.append(finding(153, text, "It has to be a file of certificates in PEM."))
    return found


def check_identity_providers(**kwargs: Any) -> list[CheckMessage]:
    """Check that each provider is set up once, and that users can be found and created as its entry says."""
    if not uses_oauth() or not settings.IDENTITY_PROVIDERS:
        return []
    found: list[CheckMessage] = []
    issuers = [entry["issuer"] for entry in settings.IDENTITY_PROVIDERS]
    for issuer in sorted({issuer for issuer in issuers if issuers.count(issuer) > 1}):
        text = f"IDENTITY_PROVIDERS has {issuer!r} twice: a user of the one would be a user of the other."
        found.append(finding(154, text, "Give one entry all of its clients."))
    model: Any = get_user_model()
    try:
        email = model._meta.get_field(model.get_email_field_name()).name
    except (AttributeError, FieldDoesNotExist):
        email = ""
    if not email and any(entry.get("link", "subject") != "subject" for entry in settings.IDENTITY_PROVIDERS):
        text = "IDENTITY_PROVIDERS links users by e-mail, and the user model has no such field."
        found.append(finding(155, text, 'Set link to "subject", and link users in the admin.'))
    more = sorted(set(model.REQUIRED_FIELDS) - {email})
    if more and any(entry.get("create") for entry in settings.IDENTITY_PROVIDERS):
        text = f"IDENTITY_PROVIDERS creates users, and they need {', '.join(more)} too, which a provider does not say."
        found.append(finding(156, text, "Set create to False, and create users another way."))
    return found


def check_cache(**kwargs: Any) -> list[CheckMessage]:
    """Check that all processes count in one cache, with registration or without."""
    backend = django_settings.CACHES.get("default", {}).get("BACKEND", "")
    if not backend.endswith(PER_PROCESS_CACHES) or django_settings.DEBUG:
        return []
    text = "Rates and confirmations that were used are counted in a cache that each process has to itself, or in none."
    return [Warning(text, hint="Configure a shared cache, such as Redis.", id="mcp_django.W133")]


def check_schemes(**kwargs: Any) -> list[CheckMessage]:
    """Check that no redirect URI can be one that a browser runs or reads itself."""
    if not uses_oauth() or not apps.is_installed("oauth2_provider"):
        return []
    from oauth2_provider.settings import oauth2_settings

    from .clients import NEVER

    unsafe = sorted(NEVER.intersection(map(str.lower, oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES)))
    if not unsafe:
        return []
    text = f"ALLOWED_REDIRECT_URI_SCHEMES of OAUTH2_PROVIDER has {', '.join(unsafe)}: a code, or a script, runs there."
    return [
        finding(148, text, "Leave it out: registration refuses it, and the admin's form for applications does not.")
    ]


def check_urls(**kwargs: Any) -> list[CheckMessage]:
    """Check that clients find the documents, and users the page to sign in on, wherever an endpoint is mounted."""
    if not uses_oauth():
        return []
    active, found = get_urlconf(), list[CheckMessage]()
    try:
        for urlconf in known_urlconfs():
            set_urlconf(urlconf)
            found += _check_urlconf(str(getattr(urlconf, "__name__", urlconf)))
    finally:
        set_urlconf(active)
    if any(_has_introspection(get_resolver(urlconf).url_patterns) for urlconf in known_urlconfs()):
        text = "The toolkit's introspection is mounted: any registered client can read the tokens that it holds."
        found.append(Warning(text, hint="Leave oauth2_provider.urls out of the URLconf.", id="mcp_django.W142"))
    return found


def _check_urlconf(name: str) -> Iterator[CheckMessage]:
    """Check the active URLconf, if it has an endpoint."""
    try:
        if not mounted_sites():
            return
    except ImproperlyConfigured:  # Django's own checks say so
        return
    if not _is_metadata("/.well-known/oauth-protected-resource"):
        text = f"The metadata of the endpoint is not at the root of the URLconf {name!r}: clients cannot sign in."
        hint = f'Add path("", include("mcp_django.oauth.urls")) to {name}, before any pattern that takes every path.'
        yield Warning(text, hint=hint, id="mcp_django.W140")
    try:
        login = resolve_url(django_settings.LOGIN_URL)
    except NoReverseMatch:
        login = ""
    prefix = get_script_prefix()
    is_here = login.startswith(prefix) and _resolves("/" + login.removeprefix(prefix))
    if not login.startswith(("http:", "https:")) and not is_here:
        text = f"LOGIN_URL {str(django_settings.LOGIN_URL)!r} leads nowhere: users cannot sign in to allow a client."
        hint = 'An example for a site with an admin is LOGIN_URL = "admin:login".'
        yield Warning(text, hint=hint, id="mcp_django.W141")


def check_session_cookie(**kwargs: Any) -> list[CheckMessage]:
    """Check that browsers send the session along to the consent page."""
    try:
        page = reverse("mcp_oauth:authorize")
    except (NoReverseMatch, ImproperlyConfigured):
        return []
    path = django_settings.SESSION_COOKIE_PATH
    if not uses_oauth() or page.startswith(path if path.endswith("/") else f"{path}/"):
        return []
    text = f"SESSION_COOKIE_PATH {path!r} leaves out the consent page, {page}: users are not signed in there."
    return [Warning(text, hint="Set it to a path that both are below, such as '/'.", id="mcp_django.W157")]


def check_sign_in(**kwargs: Any) -> list[CheckMessage]:
    """Check that what admin sites ask of a sign-in is kept with the tokens, and that users are asked for it."""
    found: list[CheckMessage] = []
    try:
        facts = settings.SIGN_IN_FACTS
    except ImproperlyConfigured as error:
        return [Error(str(error), hint=FACTS_HINT, id="mcp_django.E143")]
    for fact in facts:
        if not (isinstance(fact, type) and issubclass(fact, SignInFact) and fact.name) or fact.name == CREDENTIAL:
            text = f"SIGN_IN_FACTS has {fact!r}, which is no subclass of mcp_django.signin.SignInFact with a name."
            found.append(Error(text, hint=FACTS_HINT, id="mcp_django.E143"))
    if found or not uses_oauth():
        return found
    for admin_site in {site.admin_site for site in _sites() if site.admin_site is not None}:
        found += _check_admin_site(admin_site)
    return found


def _sites() -> list[Any]:
    try:
        return mounted_sites()
    except ImproperlyConfigured:
        return []


def _check_admin_site(admin_site: Any) -> list[CheckMessage]:
    """Look whether the admin site lets in a superuser who has signed in by password alone."""
    request = MCPRequest()
    request.mcp = MCPContext(None)  # type: ignore[arg-type]
    is_kept = any(map(_keeps, settings.SIGN_IN_FACTS))
    try:
        request.user = get_user_model()(is_staff=True, is_superuser=True, is_active=True)
        restore(request)
        if admin_site.has_permission(request):
            return []
        problem = "lets in nobody by password alone"
    except AttributeError as error:
        problem, is_kept = f"looks for what only a browser has ({error})", False
    except Exception:  # such as a query: this user is no row
        return []
    if not is_kept:
        text = f"The admin site {admin_site.name!r} {problem}: clients will see nothing of it."
        hint = "Keep what it asks for with the tokens: name a class in SIGN_IN_FACTS (docs/oauth.md)."
        return [Warning(text, hint=hint, id="mcp_django.W144")]
    other = login_admin()
    asks_less = other is not None and type(other).has_permission is AdminSite.has_permission
    if asks_less and other is not admin_site:
        text = f"LOGIN_URL is the page of an admin that asks for a password alone; {admin_site.name!r} asks for more."
        hint = "Set LOGIN_URL to the page on which users give their second factor."
        return [Warning(text, hint=hint, id="mcp_django.W145")]
    return []


def _keeps(fact: type[SignInFact]) -> bool:
    """Return whether the fact is kept in this project; of one of the project's own it is taken to be."""
    if fact is not OTPDevice:
        return True
    return apps.is_installed("django_otp") and OTP_MIDDLEWARE in django_settings.MIDDLEWARE


def login_admin() -> AdminSite | None:
    """Return the admin site whose login page is at ``LOGIN_URL``, None where another page is."""
    try:
        login = urlsplit(resolve_url(django_settings.LOGIN_URL)).path
        found = getattr(resolve("/" + login.removeprefix(get_script_prefix())).func, "__self__", None)
    except (NoReverseMatch, Resolver404, ImproperlyConfigured):
        return None
    return found if isinstance(found, AdminSite) else None


def _resolves(path: str) -> bool:
    try:
        resolve(path)
    except (Resolver404, ImproperlyConfigured, AttributeError):
        return False
    return True


def _is_metadata(path: str) -> bool:
    """Return whether the app's own documents are at the path, and not a page of the project or the toolkit's."""
    try:
        return bool(resolve(path).func.__module__ == METADATA)
    except (Resolver404, ImproperlyConfigured, AttributeError):
        return False


def _has_introspection(patterns: Any) -> bool:
    """Return whether the toolkit's view is somewhere among these patterns, at whatever path."""
    return any(
        _has_introspection(pattern.url_patterns)
        if hasattr(pattern, "url_patterns")
        else getattr(getattr(pattern.callback, "view_class", None), "__name__", "") == "IntrospectTokenView"
        for pattern in patterns
    )


def check_scopes(**kwargs: Any) -> list[CheckMessage]:
    """Check that clients can be granted the scopes that tools, prompts and resources need."""
    if not uses_oauth() or not apps.is_installed("oauth2_provider"):
        return []
    from oauth2_provider.settings import oauth2_settings

    known = list(oauth2_settings.SCOPES)
    text = "The {} {!r} needs the scope {!r}, which SCOPES of OAUTH2_PROVIDER does not have."
    there = f"There are {', '.join(known)}."
    return [
        finding(134, text.format(kind, item.name, scope), f"{nearest(scope, known)} {there}".strip())
        for site in _sites()
        for kind, items in _with_scopes(site).items()
        for item in items
        for scope in sorted(item.scopes.difference(known))
    ]


def _with_scopes(site: Any) -> dict[str, Iterable[Any]]:
    return {"tool": site.function_tools(), "prompt": site.prompts.values(), "resource": site._resources.values()}


def check_audience(**kwargs: Any) -> list[CheckMessage]:
    """Tell, for a deployment, that users who are no staff cannot sign in for what is exposed to them."""
    if not uses_oauth() or login_admin() is None:
        return []
    from ..exposures.history_rows import HistoryRows
    from ..exposures.inline_rows import InlineRows

    # What comes of the admin's pages is for those whom the admin lets in.
    closed = (AdminExposure, HistoryRows, InlineRows)
    open_to_all = [
        exposure for site in _sites() for exposure in site.exposures.values() if not isinstance(exposure, closed)
    ]
    if not open_to_all:
        return []
    text = f"Only staff can sign in at LOGIN_URL, and {type(open_to_all[0]).__name__} does not ask users to be staff."
    hint = "Set LOGIN_URL to a page for all users. If all of them are staff, silence this check."
    return [Info(text, hint=hint, id="mcp_django.I135")]


DEPLOYMENT_CHECKS: Final = (check_audience,)
CHECKS: Final = (
    check_base_url,
    check_proxy,
    check_toolkit,
    check_toolkit_settings,
    check_registration,
    check_documents,
    check_identity_providers,
    check_cache,
    check_schemes,
    check_scopes,
    check_urls,
    check_session_cookie,
    check_sign_in,
)
