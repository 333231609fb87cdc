"""The pages and endpoints of the authorization server, over django-oauth-toolkit's."""

import base64
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.contrib.admin import AdminSite
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest, ObjectDoesNotExist
from django.db import DataError, InterfaceError, OperationalError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.encoding import iri_to_uri
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from oauth2_provider.exceptions import OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2 import OAuth2Error

from ..conf import settings
from ..rates import give_back, hit_if_counted
from ..signin import keep, would_admit
from . import dot
from .clients import is_app_scheme, is_loopback
from .cors import cors
from .forms import ConsentForm
from .metadata import well_known
from .resource import endpoints, issuer, resource_url
from .scopes import ADMIN
from .styles import content_security_policy, stylesheet
from .text import plain
from .validator import BEGAN, GRANT_TYPES, check_challenge, check_resources

__all__ = ["ConsentView", "RevokeView", "TokenDeleteView", "TokenListView", "TokenView", "appended_well_known"]

logger = logging.getLogger(__name__)

# What oauthlib raises for a query string that is not properly encoded, and the database for a NUL.
UNREADABLE: Final = (ValueError, DataError)
# Seconds after which a client may try again when the database did not answer.
RETRY_AFTER: Final = 5
SECRETS: Final = ("client_secret", "code", "code_verifier", "refresh_token", "token", "password")


class PageMixin:
    """A page for people that no other page may frame, no cache keep and no script run in."""

    @method_decorator(never_cache)
    @method_decorator(xframe_options_deny)
    @method_decorator(csrf_protect)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        response["Content-Security-Policy"] = content_security_policy()
        response["Referrer-Policy"] = "same-origin"
        return response

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        """Render the page with its styles."""
        found: HttpResponse = super().render_to_response({**context, "styles": stylesheet()}, **kwargs)  # type: ignore[misc]
        return found


@method_decorator(login_not_required, name="dispatch")
class ConsentView(PageMixin, dot.AuthorizationView):
    """The authorization endpoint (OAuth 2.1, section 3.1): it asks the user, each time."""

    template_name = "mcp_django/oauth/authorize.html"
    form_class = ConsentForm

    def validate_authorization_request(self, request: HttpRequest) -> tuple[list[str], dict[str, Any]]:
        """Check all of the request, PKCE and resource included, before anything is shown.

        Raises:
            OAuthToolkitError: the answer is an error, to the client where its redirect URI is known to be its own.
        """
        try:
            scopes, credentials = super().validate_authorization_request(request)
        except UNREADABLE:
            raise BadRequest("The query string is malformed.") from None
        state = credentials.get("state")
        try:
            check_challenge(credentials.get("code_challenge"), credentials.get("code_challenge_method"), state)
            self.resources = check_resources(request.GET.getlist("resource"), request, state)
        except OAuth2Error as error:
            raise OAuthToolkitError(error=error, redirect_uri=credentials["redirect_uri"]) from None
        return scopes, credentials

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page."""
        # The toolkit lets the client's query decide whether the user is asked.
        query = request.GET.copy()
        query["approval_prompt"] = "force"
        request.GET = query  # type: ignore[assignment]
        return super().get(request, *args, **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Take the answer, or let somebody else sign in."""
        if "switch" in request.POST:
            logout(request)
            return redirect_to_login(request.get_full_path(), self.get_login_url())
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: ConsentForm) -> HttpResponseBase:
        """Answer the client. The fields are the browser's to change, so the redirect is checked before it is used."""
        client = get_application_model().objects.filter(client_id=form.cleaned_data["client_id"]).first()
        if client is None or not client.redirect_uri_allowed(form.cleaned_data["redirect_uri"]):
            return self.form_invalid(form)
        return super().form_valid(form)

    def form_invalid(self, form: ConsentForm) -> HttpResponseBase:
        """Say that the form was not the one that was shown."""
        return self.render_to_response({"error": {"error": "invalid_request", "description": ""}}, status=400)

    def get_form_kwargs(self) -> dict[str, Any]:
        """Prefill what was checked, not what was sent."""
        kwargs = super().get_form_kwargs()
        if self.request.method == "GET":
            kwargs["initial"]["resource"] = " ".join(self.resources)
        return kwargs

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return what the user must know to decide (client-registration, security-considerations)."""
        client, redirect_uri = kwargs["application"], kwargs["redirect_uri"]
        described = oauth2_settings.SCOPES
        return super().get_context_data(
            person=self.request.user,
            client_name=plain(client.name),
            verified=client.registration_source == client.RegistrationSource.MANUAL,
            redirect_host=_shown_target(redirect_uri),
            loopback=is_loopback(redirect_uri),
            local_app=urlsplit(redirect_uri).scheme not in ("http", "https"),
            resources=self.resources,
            is_refused=self._is_refused(),
            choices=[(scope, described[scope], scope == ADMIN) for scope in kwargs["scopes"]],
            **kwargs,
        )

    def _is_refused(self) -> bool:
        """Return whether an admin that the client asks for does not let in its user, as they are signed in now."""
        user: Any = self.request.user
        mounted = endpoints().items()
        asked = [site for path, site in mounted if resource_url(self.request, path) in self.resources]
        admins = [site.admin_site for site in asked if site is not None and site.admin_site is not None]
        return getattr(user, "is_staff", False) and any(_refuses(admin_site, self.request) for admin_site in admins)

    def create_authorization_response(self, request: HttpRequest, scopes: str, credentials: Any, allow: bool) -> Any:
        """Grant it, or do not; what this sign-in leaves with the tokens goes on with the code."""
        kept = {**credentials, "facts": keep(request)} if allow else credentials
        return super().create_authorization_response(request, scopes, kept, allow)

    def redirect(self, redirect_to: str, application: Any) -> HttpResponseBase:
        """Send the browser back with the issuer in the answer, be it a code or an error (RFC 9207, section 2)."""
        target = _with_issuer(redirect_to, issuer(self.request))
        # Whose own it is was checked before; the toolkit knows schemes by a list alone.
        if is_app_scheme(urlsplit(target).scheme):
            return HttpResponse(status=302, headers={"Location": iri_to_uri(target)})
        return super().redirect(target, application)


def _refuses(admin_site: AdminSite, request: HttpRequest) -> bool:
    """Return whether an admin lets the user in, but not as they are signed in now."""
    try:
        admitted = admin_site.has_permission(request)
    except Exception as error:
        logger.error("The admin site %r cannot be asked", admin_site.name, exc_info=error)
        return True
    return not admitted and would_admit(request, admin_site)


def _shown_target(uri: str) -> str:
    """Return where a redirect goes, as far as it tells the user something: the port of loopback is random."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return plain(f"{parts.scheme}://{parts.netloc}")
    return plain(parts.hostname if is_loopback(uri) else parts.netloc, limit=255)


def _with_issuer(url: str, issuer: str) -> str:
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key != "iss"]
    return urlunsplit(parts._replace(query=urlencode([*query, ("iss", issuer)])))


View = Callable[..., HttpResponseBase]


def limited(post: View) -> View:
    """Decorate the ``post`` of a view for client programs: so many refusals for each client, and for each address.

    Each request counts before anything is looked at, and is given back when it was a good one.
    """

    @wraps(post)
    def wrapper(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        address, rate = request.META.get("REMOTE_ADDR", ""), settings.TOKEN_REFUSAL_RATE
        limits = [] if rate is None else [(f"{address} {_client_id(request)}", rate), (address, _five_times(rate))]
        for who, limit in limits:
            wait = hit_if_counted("refusals", who, limit)
            if wait is not None:
                return _unavailable(429, wait)
        response = post(self, request, *args, **kwargs)
        if response.status_code < 400:
            for who, limit in limits:
                give_back("refusals", who, limit)
        return response

    return wrapper


def _client_id(request: HttpRequest) -> str:
    """Return as whom a client program asks, whether it is or not."""
    kind, _, encoded = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    if kind.lower() != "basic":
        return request.POST.get("client_id", "")
    with suppress(ValueError):
        return base64.b64decode(encoded).partition(b":")[0].decode("latin-1")
    return ""


def _five_times(rate: str) -> str:
    number, _, period = rate.partition("/")
    return f"{int(number) * 5}/{period}"


@method_decorator(transaction.non_atomic_requests, name="dispatch")
@method_decorator(cors("POST"), name="dispatch")
@method_decorator(sensitive_post_parameters(*SECRETS), name="dispatch")
class TokenView(dot.TokenView):
    """The token endpoint: codes and refresh tokens (OAuth 2.1, section 3.2)."""

    @limited
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer in JSON, whatever was sent."""
        request.META[BEGAN] = timezone.now()
        if request.POST.get("grant_type") not in GRANT_TYPES:
            error = "unsupported_grant_type" if request.POST.get("grant_type") else "invalid_request"
            return _refused(error)
        try:
            response = self.authorization_flow_token_response(request)
        except UNREADABLE:
            return _refused("invalid_request")
        except ObjectDoesNotExist:
            # What was found a moment ago was used or revoked meanwhile.
            return _refused("invalid_grant")
        except (OperationalError, InterfaceError) as error:
            logger.error("The database does not answer", exc_info=error)
            return _unavailable(503, RETRY_AFTER)
        # The toolkit leaves both off some errors.
        response["Content-Type"] = "application/json"
        response["Cache-Control"] = "no-store"
        return response


@method_decorator(transaction.non_atomic_requests, name="dispatch")
@method_decorator(cors("POST"), name="dispatch")
@method_decorator(sensitive_post_parameters(*SECRETS), name="dispatch")
class RevokeView(dot.RevokeTokenView):
    """The revocation endpoint (RFC 7009)."""

    @limited
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer in JSON, whatever was sent."""
        try:
            return super().post(request, *args, **kwargs)
        except UNREADABLE:
            return _refused("invalid_request")
        except (OperationalError, InterfaceError) as error:
            logger.error("The database does not answer", exc_info=error)
            return _unavailable(503, RETRY_AFTER)


def _refused(error: str) -> HttpResponse:
    return JsonResponse({"error": error}, status=400, headers={"Cache-Control": "no-store"})


def _unavailable(status: int, wait: int) -> HttpResponse:
    """Return the answer to a request that can come again in so many seconds."""
    answer = {"error": "temporarily_unavailable", "error_description": f"Try again in {wait} seconds."}
    return JsonResponse(answer, status=status, headers={"Cache-Control": "no-store", "Retry-After": str(wait)})


class TokenListView(PageMixin, dot.AuthorizedTokensListView):
    """The applications that act for the user now, or may again by a refresh token."""

    template_name = "mcp_django/oauth/tokens.html"
    paginate_by = 50

    def get_queryset(self) -> QuerySet[Any]:
        """Return the user's own live tokens, newest first."""
        live = Q(expires__gt=timezone.now()) | Q(refresh_token__isnull=False, refresh_token__revoked__isnull=True)
        return super().get_queryset().filter(live).order_by("-created")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the tokens, each with the name to show for its client."""
        context = super().get_context_data(**kwargs)
        for row in context["authorized_tokens"]:
            row.client_name = _client_name(row.application)
        return context


class TokenDeleteView(PageMixin, dot.AuthorizedTokenDeleteView):
    """Take an application's access away: its refresh token goes with the access token."""

    template_name = "mcp_django/oauth/token_delete.html"
    success_url = reverse_lazy("mcp_oauth:authorized-token-list")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the name to show."""
        return super().get_context_data(client_name=_client_name(self.object.application), **kwargs)


def _client_name(client: Any) -> str:
    return "" if client is None else plain(client.name) or plain(client.client_id)


@login_not_required
def appended_well_known(request: HttpRequest, path: str, name: str) -> HttpResponseBase:
    """Answer for the form ``<path>/.well-known/<name>``."""
    return well_known(request, name=name, path="/" + path)
