"""The pages and endpoints of the authorization server, over django-oauth-toolkit's."""

from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest
from django.db import DataError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from oauth2_provider.exceptions import OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2 import OAuth2Error

from . import dot
from .clients import is_loopback
from .cors import cors
from .forms import ConsentForm
from .metadata import well_known
from .resource import origin
from .scopes import ADMIN
from .text import plain
from .validator import GRANT_TYPES, check_challenge, check_resources

__all__ = ["ConsentView", "RevokeView", "TokenDeleteView", "TokenListView", "TokenView", "appended_well_known"]

# What oauthlib raises for a query string that is not properly encoded, and the database for a NUL.
UNREADABLE: Final = (ValueError, DataError)
SECRETS: Final = ("client_secret", "code", "code_verifier", "refresh_token", "token", "password")


class PageMixin:
    """A page for people that no other page may frame, no cache keep and no script run in."""

    @method_decorator(never_cache)
    @method_decorator(xframe_options_deny)
    @method_decorator(csrf_protect)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        styles = urlsplit(static("mcp_django/oauth.css"))
        source = f"{styles.scheme}://{styles.netloc}" if styles.netloc else "'self'"
        # No form-action: browsers apply it to the redirect after the form as well, which goes to the client.
        response["Content-Security-Policy"] = (
            f"default-src 'none'; style-src {source}; base-uri 'none'; frame-ancestors 'none'"
        )
        response["Referrer-Policy"] = "same-origin"
        return response


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
            choices=[(scope, described[scope], scope == ADMIN) for scope in kwargs["scopes"]],
            **kwargs,
        )

    def redirect(self, redirect_to: str, application: Any) -> HttpResponseBase:
        """Send the browser back with the issuer in the answer, be it a code or an error (RFC 9207, section 2)."""
        return super().redirect(_with_issuer(redirect_to, origin(self.request)), application)


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


@method_decorator(cors("POST"), name="dispatch")
@method_decorator(sensitive_post_parameters(*SECRETS), name="dispatch")
class TokenView(dot.TokenView):
    """The token endpoint: codes and refresh tokens (OAuth 2.1, section 3.2)."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer in JSON, whatever was sent."""
        if request.POST.get("grant_type") not in GRANT_TYPES:
            error = "unsupported_grant_type" if request.POST.get("grant_type") else "invalid_request"
            return _refused(error)
        try:
            response = self.authorization_flow_token_response(request)
        except UNREADABLE:
            return _refused("invalid_request")
        # The toolkit leaves both off some errors.
        response["Content-Type"] = "application/json"
        response["Cache-Control"] = "no-store"
        return response


@method_decorator(cors("POST"), name="dispatch")
@method_decorator(sensitive_post_parameters(*SECRETS), name="dispatch")
class RevokeView(dot.RevokeTokenView):
    """The revocation endpoint (RFC 7009)."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer in JSON, whatever was sent."""
        try:
            return super().post(request, *args, **kwargs)
        except UNREADABLE:
            return _refused("invalid_request")


def _refused(error: str) -> HttpResponse:
    return JsonResponse({"error": error}, status=400, headers={"Cache-Control": "no-store"})


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
