"""What people see of the authorization server: the frame of its pages, applications, tokens, what a model reaches.

Styles are inlined, so that pages look right under every server, with or without static files. A token itself is never
shown. In the message to a user about a new application all that strangers chose is on one line, and none of it becomes
a link in a mail program.
"""

import base64
import hashlib
import ipaddress
import logging
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.admin import site as admin_site
from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.mail import EmailMessage
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from django.utils import timezone, translation
from django.utils.decorators import method_decorator
from django.utils.formats import date_format
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language_info
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect
from django.views.generic import TemplateView
from oauth2_provider.models import refresh_token_expire_timedelta
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.narrowing import narrowing_of
from ..context.page import page_language, shown_language
from ..context.request import MCPRequest, local_request
from ..context.text import doubts_about, plain
from ..emulation.history import made_by
from ..orm.access import access_of
from ..routing import mounted_endpoints
from ..scopes import default_scopes, expand
from ..signin import act_as, chosen_words, keep
from ..tools.overviews import may_words
from .bearer import last_uses
from .resource import is_loopback, origin, resource_url
from .tokens import facts_of_many, until_of

if TYPE_CHECKING:
    from ..sites import MCPSite

logger = logging.getLogger("mcp_django")

# Names under which a country's registry gives out names, as in shop.co.uk: the list of all is not worth its upkeep.
SECOND_LEVEL: Final = frozenset(
    {"ac", "co", "com", "edu", "gen", "gob", "gouv", "gov", "go", "gub", "id", "ind", "info", "ltd", "me", "mil", "ne"}
    | {"net", "nom", "nsw", "or", "org", "plc", "res", "sch"}
)
# Entries of a user's history that are looked through for the last of each client.
LOOKED_AT: Final = 300
# Seconds that a sign-in waits for the mail server at most; the message goes on in its thread.
PATIENCE: Final = 5.0
# Without these, mail programs find addresses neither of pages nor of people in a text.
ARMS: Final = re.compile(r"[.:@](?=\S)|/")
DISARMED: Final = {".": "[.]", "@": "[at]", ":": " ", "/": " "}


# The frame


def stylesheet() -> SafeString:
    """Return the text of the style element; a project can have its own ``mcp_django/oauth/styles.css``."""
    return mark_safe(render_to_string("mcp_django/oauth/styles.css"))


def content_security_policy() -> str:
    """Return the policy of a page that loads the site's icon alone, runs no script, and has styles of its own."""
    image = ""
    if settings.SERVER_ICON:
        # As policies name the source of an image (CSP 3, section 2.3.1).
        icon = urlsplit(str(settings.SERVER_ICON))
        source = f"{icon.scheme}://{icon.netloc}" if icon.netloc else f"{icon.scheme}:" if icon.scheme else "'self'"
        image = f" img-src {source};"
    # No form-action: browsers apply it to the redirect after the form as well, which goes to the client.
    return f"default-src 'none'; style-src '{_digest(stylesheet())}';{image} base-uri 'none'; frame-ancestors 'none'"


@lru_cache(maxsize=4)
def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def frame(request: HttpRequest | None = None) -> dict[str, Any]:
    """Return the context that every page needs, in the language that is active.

    ``request`` is that of a person who is signed in or about to be; without it nothing depends on who asks.
    """
    language = shown_language()
    try:
        is_rtl = bool(get_language_info(language)["bidi"])
    except KeyError:
        is_rtl = False
    host = urlsplit(str(settings.BASE_URL)).netloc if settings.BASE_URL else request.get_host() if request else ""
    context: dict[str, Any] = {
        "styles": stylesheet(),
        "site_title": str(settings.SERVER_TITLE or settings.SERVER_NAME),
        "site_host": host,
        "site_icon": str(settings.SERVER_ICON or ""),
        "page_language": language,
        "page_direction": "rtl" if is_rtl else "ltr",
    }
    if request is not None and request.user.is_authenticated:
        names = {"tokens": "authorized-token-list", "access": "access", "sign_out": "sign-out"}
        context |= {key: url_of(name) for key, name in names.items()}
        context |= {"person": request.user, "back": _way_back(request)}
    return context


def url_of(name: str) -> str:
    """Return the path of a page of the authorization server, "" where the project does not mount it."""
    try:
        return reverse(f"mcp_oauth:{name}")
    except NoReverseMatch:
        return ""


def _way_back(request: HttpRequest) -> tuple[str, str] | None:
    """Return path and name of where a person comes from: the admin of who may enter it, else the site."""
    may_enter = False
    with suppress(Exception):  # there may be no admin, and its hook is the project's own
        may_enter = bool(admin_site.has_permission(request))
    try:
        if may_enter:
            return reverse("admin:index"), _("The admin")
        resolve("/")
    except (NoReverseMatch, Resolver404):
        return None
    return get_script_prefix(), _("The site")


class PageMixin:
    """A page for people, in their language, that no other page may frame, no cache keep and no script run in."""

    request: HttpRequest

    @method_decorator(never_cache)
    @method_decorator(xframe_options_deny)
    @method_decorator(csrf_protect)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with page_language(request):
            response = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
            if isinstance(response, TemplateResponse):
                response.render()
        response["Content-Security-Policy"] = content_security_policy()
        response["Referrer-Policy"] = "same-origin"
        return response

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        """Render the page with what stands around each."""
        found: HttpResponse = super().render_to_response({**context, **frame(self.request)}, **kwargs)  # type: ignore[misc]
        return found


# Applications


@dataclass(frozen=True, slots=True)
class Target:
    """What is shown of a redirect URI: ``before``, ``domain`` and ``after`` make up its text.

    ``kind`` is "web" for a host, "device" for this computer, "app" for an application's own scheme.
    """

    kind: str
    before: str
    domain: str
    after: str = ""

    def __str__(self) -> str:
        return self.before + self.domain + self.after


def shown_target(uri: str) -> Target:
    """Return where a redirect goes, as far as it tells the user something: the port of loopback is random."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return Target("app", "", plain(f"{parts.scheme}://{parts.netloc}"))
    # Without letters that look like others: punycode (RFC 3492) for what is not ASCII.
    names = (parts.hostname or "").split(".")
    labels = [name if name.isascii() else f"xn--{name.encode('punycode').decode()}" for name in names]
    host = plain(".".join(labels), limit=255)
    if is_loopback(uri):
        return Target("device", "", host)
    port = ""
    with suppress(ValueError):
        port = "" if parts.port is None else f":{parts.port}"
    return Target("web", *_apart(host), port)


def targets_of(client: Any) -> list[Target]:
    """Return where a client can be, each place once."""
    found = (shown_target(uri) for uri in (client.redirect_uris.split() if client is not None else ()))
    return list(dict.fromkeys(found))


def described_by(client: Any) -> Target | None:
    """Return the host whose document describes a client, which is what is known of it for certain; None of others."""
    if client is None or client.registration_source != client.RegistrationSource.CIMD:
        return None
    return shown_target(client.client_id)


def hosts_of(client: Any) -> list[str]:
    """Return the hosts that a client verifiably comes from, none where it runs on the user's own device.

    It is the host of the document that describes it, else those it sends people back to.
    """
    described = described_by(client)
    targets = targets_of(client) if described is None else [described]
    return [target.before + target.domain for target in targets if target.kind == "web"]


def _apart(host: str) -> tuple[str, str]:
    """Return what stands before the part of a host that was registered, and that part; an address is one part."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
    else:
        return "", f"[{host}]" if ":" in host else host
    size = 3 if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in SECOND_LEVEL else 2
    before = "".join(f"{label}." for label in labels[:-size])
    return before, ".".join(labels[-size:])


def client_name(client: Any) -> str:
    """Return what to call a client."""
    return "" if client is None else plain(client.name) or plain(client.client_id)


def name_doubts(client: Any) -> list[str]:
    """Return in words what is odd about the name of a client; what administrators registered is what they called it."""
    if client is None or client.registration_source == client.RegistrationSource.MANUAL:
        return []
    return doubts_about(client.name, hosts_of(client))


def scope_words(scopes: Iterable[str]) -> list[str]:
    """Return scopes in words."""
    return [_(oauth2_settings.SCOPES.get(scope) or scope) for scope in scopes]


# Tokens


def describe(tokens: Collection[Any]) -> None:
    """Give access tokens what is to be shown of them, whatever their number by one question to the cache and one query.

    ``client_name``, ``doubts`` about that name, ``described`` and ``targets`` are of their client, ``words`` say their
    scopes. ``used`` is when they were last used, and ``place`` from where, as far as that is known, ``until`` when
    access ends, None for never; ``labels`` are the apps and models that it is for, None for all; ``chosen`` is what the
    user chose beside. ``facts`` are what is kept with each.
    """
    uses = last_uses(token.token_checksum for token in tokens)
    kept = facts_of_many(token.token_checksum for token in tokens)
    lifetime = refresh_token_expire_timedelta()
    for token in tokens:
        client = token.application
        token.client_name, token.doubts = client_name(client), name_doubts(client)
        token.described, token.targets = described_by(client), targets_of(client)
        token.words = scope_words(token.scope.split())
        use = uses.get(token.token_checksum)
        # One that a client got for one that it had before was used by that.
        renewed = token.created if token.source_refresh_token_id is not None else None
        token.used, token.place = (renewed, "") if use is None else (use.moment, use.place)
        token.facts = facts = kept.get(token.token_checksum, {})
        narrowing, chosen, refresh = narrowing_of(facts), until_of(facts), getattr(token, "refresh_token", None)
        token.chosen = [(label, plain(words)) for label, words in chosen_words(facts)]
        token.labels = None if narrowing is None or narrowing.labels is None else sorted(narrowing.labels)
        token.until = token.expires
        if refresh is not None and refresh.revoked is None:
            token.until = None if lifetime is None else token.expires + lifetime
        if chosen is not None:
            token.until = chosen if token.until is None else min(token.until, chosen)


def add_last_changes(tokens: Collection[Any], user: Any) -> None:
    """Give tokens of a user the last entry of the admin's history that their client made as ``last_change``, or None.

    The admin shows users their own entries in the same way, under recent actions.
    """
    found: dict[str, Any] = {}
    if tokens and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import LogEntry

        asked = {token.application.client_id for token in tokens if token.application is not None}
        for entry in LogEntry.objects.filter(user=user).order_by("-action_time", "-pk")[:LOOKED_AT]:
            for client_id in asked.difference(found):
                if made_by(entry.change_message, client_id):
                    found[client_id] = entry
    for token in tokens:
        token.last_change = found.get(token.application.client_id) if token.application is not None else None
        if token.last_change is not None:
            token.last_change.object_repr = plain(token.last_change.object_repr)


# The message about a new application


def tell_user(user: Any, client: Any, scopes: Iterable[str], request: HttpRequest) -> None:
    """Send the user a message that a client got these scopes, and where to remove the access.

    ``request`` is that of the token endpoint, for the address of this site while it is developed. Who has no address
    gets none. What fails is logged: the client has its access.
    """
    try:
        address = str(getattr(user, user.get_email_field_name(), None) or "")
        if not address:
            return
        with translation.override(django_settings.LANGUAGE_CODE):
            site = plain(str(settings.SERVER_TITLE or settings.SERVER_NAME))
            subject = _("New application with access to your account: %(site)s") % {"site": site}
            remove_url = origin(request) + url_of("authorized-token-list")
            message = EmailMessage(subject, _body(site, user, client, scopes, remove_url), to=[address])
        # The mail server may not answer, and Django waits for it as long as it takes.
        thread = threading.Thread(target=_send, args=[message], name="mcp_django mail", daemon=True)
        thread.start()
        thread.join(PATIENCE)
    except Exception:
        logger.exception("A user could not be told of an application that was connected")


def _send(message: EmailMessage) -> None:
    try:
        message.send()
    except Exception:
        logger.exception("A user could not be told of an application that was connected")
    finally:
        connections.close_all()


def _body(site: str, user: Any, client: Any, scopes: Iterable[str], remove_url: str) -> str:
    """Return the text; the names of applications are claims, and their hosts are what is known of them."""
    hosts = ", ".join(hosts_of(client)[:3])
    moment = timezone.localtime() if django_settings.USE_TZ else timezone.now()
    facts = [
        (_("Account"), _disarmed(plain(user.get_username()))),
        (_("The application calls itself"), _disarmed(client_name(client))),
        (_("Host"), _disarmed(plain(hosts, 255)) or _("none: it runs on a device, and cannot be verified")),
        (_("Time"), f"{date_format(moment, 'DATETIME_FORMAT')} {moment:%Z}".strip()),
        *((_("It can"), words) for words in scope_words(scopes)),
    ]
    parts = [
        _("An application was given access to your account at %(site)s.") % {"site": site},
        "\n".join(f"{label}: {value}" for label, value in facts),
        *(_disarmed(doubt) for doubt in name_doubts(client)),
        _("If that was you, there is nothing to do. If it was not, remove its access and change your password:"),
        remove_url,
    ]
    return "\n\n".join(part for part in parts if part)


def _disarmed(text: str) -> str:
    """Return a text of which a mail program makes no link."""
    return ARMS.sub(lambda found: DISARMED[found[0]], text)


# What a model reaches


class AccessView(PageMixin, LoginRequiredMixin, TemplateView):
    """The page that shows users what a model would see that acts as them."""

    template_name = "mcp_django/access.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the tools and models of each endpoint."""
        found = []
        for path, site in mounted_endpoints().items():
            if not site.needs_middleware:
                asked = _asked(self.request, site)
                tools = [tool.name for tool in site.get_tools(asked)]
                found.append({"url": resource_url(self.request, path), "tools": tools, "models": list(_models(asked))})
        return super().get_context_data(endpoints=found, page="access", **kwargs)


def _asked(request: HttpRequest, site: "MCPSite") -> MCPRequest:
    """Return the request of a model that acts as the user who is signed in here."""
    asked = local_request(site)
    asked.mcp.facts = keep(request)
    act_as(asked, request.user, expand(default_scopes()))
    return asked


def _models(asked: MCPRequest) -> Iterator[dict[str, Any]]:
    """Yield each model that the caller sees, and what the caller can do with it."""
    for exposure in access_of(asked).exposures:
        allowed = {*may_words(access_of(asked)[exposure]).split()} - {"view"}
        yield {
            "label": exposure.label,
            "name": exposure.opts.verbose_name_plural,
            "fields": access_of(asked)[exposure].fields,
            "is_writable": bool(allowed),
            "is_changeable": bool(allowed - {"delete"}),
            "is_deletable": "delete" in allowed,
            "actions": 0 if settings.READ_ONLY else len(access_of(asked)[exposure].actions),
        }


def reach_of(request: HttpRequest, sites: "Iterable[MCPSite]") -> dict[str, Any] | None:
    """Return how many models, fields and actions an AI model would reach at these sites as the user signed in here.

    None where it cannot be told: a site needs middleware of its own, or a hook of the project fails.
    """
    found = list(sites)
    if not found or any(site.needs_middleware for site in found):
        return None
    try:
        models = [model for site in found for model in _models(_asked(request, site))]
    except Exception as error:
        logger.error("What an application can reach cannot be counted", exc_info=error)
        return None
    by_app: dict[str, dict[str, str]] = {}
    for model in models:
        by_app.setdefault(model["label"].partition(".")[0], {})[model["label"]] = str(model["name"])
    return {
        "models": len(models),
        "fields": sum(len(model["fields"]) for model in models),
        "changeable": sum(model["is_changeable"] for model in models),
        "deletable": sum(model["is_deletable"] for model in models),
        "actions": sum(model["actions"] for model in models),
        "apps": [
            {"label": label, "name": getattr(apps.app_configs.get(label), "verbose_name", label), "models": names}
            for label, names in sorted(by_app.items())
        ],
    }
