"""Views of the authorization server: consent page, token and revocation endpoint, list of tokens, sign-out."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django import forms
from django.conf import settings as django_settings
from django.contrib.admin import AdminSite
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest, ImproperlyConfigured, ObjectDoesNotExist, ValidationError
from django.db import DataError, InterfaceError, OperationalError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.encoding import iri_to_uri
from django.utils.timesince import TIME_STRINGS
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST
from oauth2_provider.exceptions import OAuthToolkitError
from oauth2_provider.forms import AllowForm
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)
from oauth2_provider.settings import oauth2_settings
from oauthlib.oauth2 import InvalidClientError, InvalidRequestError, OAuth2Error

from ..conf import settings
from ..context.call_restrictions import Narrowing
from ..context.untrusted_text import plain
from ..problems import LoginReturn, Problem
from ..runtime.cache_and_rate_limits import RateLimit, cache
from ..runtime.missing_migrations import MissingTables
from ..scopes import Scope, expand
from ..signin import SignIn
from .access_page import reach_of
from .client_and_token_display import add_last_changes, describe, described_by, name_doubts, scope_words, shown_target
from .client_documents import (
    DocumentRefused,
    find_described,
    is_admitted,
    is_document_id,
    is_verified,
    takes_documents,
)
from .client_registration import is_app_scheme
from .cors_and_refusals import begin, client_id, cors, log_refusal, logged, note, unrestored_address
from .page_frame import PageMixin
from .program_grants import PROGRAM_GRANTS
from .resource_urls import default_resource, endpoints, issuer, resource_url
from .stored_tokens import checksum_of, chosen, end_access, find_client, live
from .validator import BEGAN, GRANT_TYPES, check_challenge, check_resources
from .well_known_metadata import well_known

try:
    # Location since django-oauth-toolkit 4.0.
    from oauth2_provider.authorization_server.views import base as toolkit
    from oauth2_provider.authorization_server.views import token as toolkit_tokens
except ImportError:
    from oauth2_provider.views import base as toolkit
    from oauth2_provider.views import token as toolkit_tokens

logger = logging.getLogger(__name__)

# oauthlib raises ValueError for a malformed query string, the database DataError (or ValueError) for a NUL.
UNREADABLE: Final = (ValueError, DataError)
# Seconds until a client should try again after the database did not answer.
RETRY_AFTER: Final = 5
# Units in which the consent page shows a period, with their seconds.
UNITS: Final = (("day", 24 * 3600), ("hour", 3600), ("minute", 60))
# Errors that are not logged: the user refused, or a client asked whether they are signed in.
ORDINARY: Final = frozenset({"access_denied", "login_required"})
SECRETS: Final = (
    *("assertion", "client_assertion", "client_secret", "code", "code_verifier"),
    *("password", "refresh_token", "token"),
)
# Parameters that errors may name; other names are the sender's own text, which is not repeated.
PARAMETERS: Final = frozenset(
    {"grant_type", "client_id", "client_secret", "client_assertion", "client_assertion_type", "assertion", "scope"}
    | {"code", "code_verifier", "redirect_uri", "refresh_token", "token"}
)
# Reasons why a request is refused.
CHANGED_FORM: Final = Problem("the form is not the one that was shown", "The user has to start again in the client.")
MANY_REFUSALS: Final = Problem(
    "too many requests of this client or address were refused", "RATES['refusals'] sets the limit."
)
NO_DATABASE: Final = Problem("the database does not answer", "The error logged before this says why.")


class ConsentForm(AllowForm):
    """The authorization request in hidden fields, and the user's answer.

    Cleaned, ``scope`` holds the requested scopes that were ticked; if none was, ``allow`` is False. ``models`` are the
    labels of apps and models that limit access, none for all; ``days`` is its lifetime, None for the site's default.
    """

    nonce = None
    claims = None
    days = forms.TypedChoiceField(required=False, coerce=int, empty_value=None, choices=[("1", "1"), ("30", "30")])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.hidden_fields():
            # Stripping white space would change the client's ``state``.
            field.field.strip = False

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        ticked = set(cast(QueryDict, self.data).getlist("granted"))
        granted = [scope for scope in cleaned.get("scope", "").split() if scope in ticked]
        cleaned["allow"] = bool(cleaned.get("allow") and granted)
        cleaned["scope"] = " ".join(granted)
        cleaned["models"] = cast(QueryDict, self.data).getlist("models")
        if not Narrowing.can_name(cleaned["models"]):
            # Ignoring an invalid label could give access to more than the user meant.
            raise forms.ValidationError("unknown model")
        return cleaned


@method_decorator(login_not_required, name="dispatch")
class ConsentView(PageMixin, toolkit.AuthorizationView):
    """The authorization endpoint with its consent page, which asks the user each time (OAuth 2.1, section 3.1)."""

    template_name = "mcp_django/oauth/authorize.html"
    form_class = ConsentForm

    def validate_authorization_request(self, request: HttpRequest) -> tuple[list[str], dict[str, Any]]:
        """Validate the authorization request, with PKCE and resource, before the consent page is shown."""
        try:
            scopes, credentials = super().validate_authorization_request(request)
        except UNREADABLE:
            text = "The query string is malformed."
            log_refusal(request, 400, "invalid_request", text)
            raise BadRequest(text) from None
        state = credentials.get("state")
        try:
            check_challenge(credentials.get("code_challenge"), credentials.get("code_challenge_method"), state)
            self.resources = check_resources(request.GET.getlist("resource"), request, state)
        except OAuth2Error as error:
            raise OAuthToolkitError(error=error, redirect_uri=credentials["redirect_uri"]) from None
        return scopes, credentials

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Prepare for noting why a request is refused."""
        super().setup(request, *args, **kwargs)
        self.choice: dict[str, Any] = {}
        begin(request)

    def error_response(self, error: OAuthToolkitError, application: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer with an OAuth error, and log it unless the user caused it."""
        oauth_error = error.oauthlib_error
        if oauth_error.error not in ORDINARY:
            log_refusal(self.request, oauth_error.status_code, oauth_error.error, oauth_error.description or "")
        return super().error_response(error, application, **kwargs)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the consent page; a client's metadata document is fetched for signed-in users only."""
        document_id = request.GET.get("client_id", "")
        try:
            if is_document_id(document_id) and (takes_documents() or not oauth2_settings.CIMD_ENABLED):
                find_described(document_id, request)
        except DocumentRefused as refused:
            note(request.META, refused.reason)
            log_refusal(request, refused.status, "invalid_client", refused.detail)
            error = {"error": "invalid_client", "description": refused.detail}
            return self.render_to_response({"error": error, "refused": refused}, status=refused.status)
        # Always ask the user: the toolkit lets the client's query decide it.
        query = request.GET.copy()
        query["approval_prompt"] = "force"
        request.GET = query  # type: ignore[assignment]
        return super().get(request, *args, **kwargs)

    def handle_no_permission(self) -> HttpResponseBase:
        """Show on the way to login which application asks; an error if the browser returns without a session."""
        request = self.request
        if request.method != "GET" or "none" in request.GET.get("prompt", "").split():
            return super().handle_no_permission()
        if LoginReturn.PARAMETER in request.GET:
            is_sent = bool(request.COOKIES.get(django_settings.SESSION_COOKIE_NAME))
            note(request.META, LoginReturn.LOST_SESSION if is_sent else LoginReturn.NO_SESSION)
            log_refusal(request, 403, "login_required")
            login = redirect_to_login(request.get_full_path(), self.get_login_url())["Location"]
            return self.render_to_response({"sign_in": login, "is_lost": is_sent}, status=403)
        query_string = request.META.get("QUERY_STRING", "")
        request.META["QUERY_STRING"] = f"{query_string}&{LoginReturn.PARAMETER}=1".lstrip("&")
        login = super().handle_no_permission()
        requested_id = request.GET.get("client_id", "")
        with suppress(ValueError):  # brackets around something that is not an address
            is_known = "Location" in login and requested_id and requested_id.isprintable()
            client = find_client(requested_id) if is_known else None
            if client is not None:
                name = plain(client.name)
                uri = request.GET.get("redirect_uri", "")
                if name and is_admitted(client) and client.redirect_uri_allowed(uri):
                    verified = client.registration_source == client.RegistrationSource.MANUAL
                    context = {"client_name": name, "doubts": name_doubts(client), "verified": verified}
                    return self.render_to_response(context | {"login": login["Location"]})
        return login

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Handle the form, or let another user sign in."""
        if "switch" in request.POST:
            logout(request)
            return redirect_to_login(request.get_full_path(), self.get_login_url())
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: ConsentForm) -> HttpResponseBase:
        """Answer the client; form fields can be forged, so the redirect URI is checked again."""
        client = find_client(form.cleaned_data["client_id"])
        answers = SignIn(self.request).questions().answered(form.data)
        if client is None or answers is None or not is_admitted(client):
            return self.form_invalid(form)
        self.choice = chosen(form.cleaned_data["models"], form.cleaned_data["days"]) | answers
        try:
            if not client.redirect_uri_allowed(form.cleaned_data["redirect_uri"]):
                return self.form_invalid(form)
            return super().form_valid(form)
        except UNREADABLE:
            return self.form_invalid(form)

    def form_invalid(self, form: ConsentForm) -> HttpResponseBase:
        """Answer that the form was changed."""
        note(self.request.META, CHANGED_FORM)
        log_refusal(self.request, 400, "invalid_request")
        return self.render_to_response({"error": {"error": "invalid_request", "description": ""}}, status=400)

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        """Render the page, or say that an unknown application has to be connected again."""
        requested_id = self.request.GET.get("client_id") or self.request.POST.get("client_id") or ""
        # Databases do not accept a NUL.
        may_be_unknown = "error" in context and "refused" not in context and requested_id and requested_id.isprintable()
        if may_be_unknown and find_client(requested_id) is None:
            with suppress(ImproperlyConfigured):
                context = {**context, "endpoint": default_resource(self.request)}
            context = {**context, "is_unknown": True}
        return super().render_to_response(context, **kwargs)

    def get_form_kwargs(self) -> dict[str, Any]:
        """Return the form's arguments, with the validated resources as its initial data."""
        kwargs = super().get_form_kwargs()
        if self.request.method == "GET":
            kwargs["initial"]["resource"] = " ".join(self.resources)
        return kwargs

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: client, hosts, scopes, and the data within reach (security-considerations)."""
        client = kwargs["application"]
        target = shown_target(kwargs["redirect_uri"])
        verified = client.registration_source == client.RegistrationSource.MANUAL
        user = self.request.user
        had = get_access_token_model()._default_manager.filter(user=user, application=client)
        asked = [site for path, site in endpoints().items() if resource_url(self.request, path) in self.resources]
        sites = [site for site in dict.fromkeys(asked) if site is not None]
        admins = [site.admin_site for site in sites if site.admin_site is not None]
        return super().get_context_data(
            client_name=plain(client.name),
            doubts=name_doubts(client),
            verified=verified,
            described=described_by(client),
            target=target,
            redirect_host=str(target),
            # The user has given this client access before, and has not removed it.
            is_known=not verified and target.kind == "web" and had.filter(live()).exists(),
            resources=self.resources,
            # An admin at the requested endpoints does not admit the user as they are signed in now.
            is_refused=getattr(user, "is_staff", False) and any(_refuses(found, self.request) for found in admins),
            reach=reach_of(self.request, sites),
            choices=_choices(kwargs["scopes"]),
            # Scopes are ticked only if the client named them.
            is_named=bool(self.request.GET.get("scope", "").strip()),
            questions=SignIn(self.request).questions(),
            unused_for=_period(refresh_token_expire_timedelta()),
            **kwargs,
        )

    def create_authorization_response(self, request: HttpRequest, scopes: str, credentials: Any, allow: bool) -> Any:
        """Grant or deny as the user consents; facts of the sign-in and the choices are stored with the code."""
        stored = {**credentials, "facts": SignIn(request).facts() | self.choice} if allow else credentials
        return super().create_authorization_response(request, scopes, stored, allow)

    def redirect(self, redirect_to: str, application: Any) -> HttpResponseBase:
        """Redirect the browser to the client, with ``iss`` beside codes and errors (RFC 9207, section 2).

        Without a click of the user, nobody is sent to a website that anyone could have registered: a page shows where
        the link leads (OAuth 2.1, section 7.12.2).
        """
        parts = urlsplit(redirect_to)
        query = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key != "iss"]
        target = urlunsplit(parts._replace(query=urlencode([*query, ("iss", issuer(self.request))])))
        if self.request.method == "GET" and self._is_of_a_stranger(target, application):
            parameters = dict(parse_qsl(urlsplit(target).query))
            error = {"error": parameters.get("error", ""), "description": parameters.get("error_description", "")}
            context = {"error": error, "leads_to": target, "leads_to_host": str(shown_target(target))}
            return self.render_to_response(context, status=400)
        # The URI was checked to be the client's own; the toolkit would only allow schemes on its list.
        if is_app_scheme(urlsplit(target).scheme):
            return HttpResponse(status=302, headers={"Location": iri_to_uri(target)})
        return super().redirect(target, application)

    def _is_of_a_stranger(self, target: str, application: Any) -> bool:
        """Return whether the consent view would send the browser to a website of a client that nobody has verified,
        and that the user has not connected before."""
        if shown_target(target).kind != "web":
            return False
        client = application
        if client is None:
            client = find_client(self.request.GET["client_id"])
        if client is None:
            return True
        if is_verified(client):
            return False
        user = self.request.user
        had = get_access_token_model()._default_manager.filter(application=client)
        return not (user.is_authenticated and had.filter(live(), user=user).exists())


def _refuses(admin_site: AdminSite, request: HttpRequest) -> bool:
    """Return whether an admin site refuses the user only for how they signed in."""
    try:
        admitted = admin_site.has_permission(request)
    except Exception as error:
        logger.error("has_permission() of the admin site %r failed", admin_site.name, exc_info=error)
        return True
    return not admitted and SignIn(request).would_admit(admin_site)


def _choices(asked: Iterable[str]) -> list[dict[str, Any]]:
    """Return the scopes to tick: those requested, and write, which is disabled if it was not requested."""
    scopes = list(asked)
    shown = scopes if settings.READ_ONLY or Scope.WRITE in expand(scopes) else [*scopes, Scope.WRITE]
    return [
        {"scope": scope, "words": words, "asked": scope in scopes, "powerful": scope == Scope.ADMIN}
        for scope, words in zip(shown, scope_words(shown), strict=True)
    ]


def _period(span: timedelta | None) -> str:
    """Return a timedelta in words, in one unit; "" for none."""
    if span is None:
        return ""
    seconds = int(span.total_seconds())
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= size), UNITS[-1])
    return str(TIME_STRINGS[unit] % {"num": seconds // size})


# Decorators of the endpoints for client programs.
FOR_PROGRAMS: Final = (transaction.non_atomic_requests, cors("POST"), logged, sensitive_post_parameters(*SECRETS))


def require_once(request: HttpRequest) -> None:
    """Raise an OAuth error for a repeated parameter: two parsers could read different values (RFC 6749, 3.2)."""
    # A request may name several endpoints for one token (RFC 8707, section 2).
    repeated = {name for name, values in request.POST.lists() if len(values) > 1 and name != "resource"}
    if repeated:
        names = ", ".join(sorted(PARAMETERS & repeated)) or "each parameter"
        raise InvalidRequestError(description=f"Send {names} once.")


# Seconds for which a secret that was right once lets its client past the limit of refusals.
REMEMBERED: Final = 24 * 3600


def has_credential(request: HttpRequest) -> bool:
    """Return whether a program's request has something that only its client has: a refresh token or code that was
    issued to it, or a secret that was right lately. Whether it is still valid is examined later."""
    name = client_id(request)
    token = request.POST.get("refresh_token", "")
    code = request.POST.get("code", "")
    if not all(text.isprintable() for text in (name, token, code)):
        # Databases do not accept a NUL.
        return False
    refresh = get_refresh_token_model()._default_manager
    grant = get_grant_model()._default_manager
    if token and refresh.filter(token_checksum=checksum_of(token), application__client_id=name).exists():
        return True
    if code and grant.filter(code=code, application__client_id=name).exists():
        return True
    with suppress(Exception):  # whatever the cache's client library raises
        return cache.get(_secret_key(request, name)) is not None
    return False


def remember_credential(request: HttpRequest) -> None:
    """Remember a digest of the secret with which a program's request succeeded, if it has one."""
    if "HTTP_AUTHORIZATION" in request.META or request.POST.get("client_secret"):
        with suppress(Exception):  # whatever the cache's client library raises
            cache.set(_secret_key(request, client_id(request)), 1, REMEMBERED)


def _secret_key(request: HttpRequest, name: str) -> str:
    secret = request.META.get("HTTP_AUTHORIZATION", "") or request.POST.get("client_secret", "")
    return f"mcp_django:secret:{checksum_of(f'{django_settings.SECRET_KEY} {name} {secret}')}"


class ProgramMixin:
    """Mixin of the two views for client programs, of tokens and revocation: JSON answers, and rates of refusals.

    Refusals are limited for each client and for each address. Each request counts before it is examined, and its count
    is given back if it succeeds. Over a limit, only requests with a credential of their client are still examined, so
    that nobody shuts a client out by sending wrong secrets in its name.
    """

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        address = request.META.get("REMOTE_ADDR", "")
        of_client = RateLimit("refusals", settings.RATES["refusals"])
        limits: list[tuple[str, RateLimit]] = []
        if of_client.rate is not None:
            limits = [(f"{address} {client_id(request)}", of_client), (address, of_client.times(5))]
        waits = [limit.hit_if_counted(who) for who, limit in limits]
        longest = max((wait for wait in waits if wait is not None), default=None)
        try:
            if longest is not None and not has_credential(request):
                note(request.META, unrestored_address(request) or MANY_REFUSALS)
                return _unavailable(429, longest)
            require_once(request)
            response = self.answer(request)
        except OAuth2Error as error:
            refused = _refused(error.error, error.description, error.status_code)
            if isinstance(error, InvalidClientError) and "HTTP_AUTHORIZATION" in request.META:
                # RFC 6749, section 5.2
                refused["WWW-Authenticate"] = 'Basic realm="token", charset="UTF-8"'
            return refused
        except UNREADABLE:
            return _refused("invalid_request")
        except ObjectDoesNotExist:
            # A row that was found a moment ago has been used or revoked since.
            return _refused("invalid_grant")
        except (OperationalError, InterfaceError) as error:
            logger.error("The database does not answer", exc_info=error)
            MissingTables(error).log()
            note(request.META, NO_DATABASE)
            return _unavailable(503, RETRY_AFTER)
        if response.status_code < 400:
            for who, limit in limits:
                limit.give_back(who)
            remember_credential(request)
        return response

    def answer(self, request: HttpRequest) -> HttpResponseBase:
        raise NotImplementedError


@method_decorator(FOR_PROGRAMS, name="dispatch")
class TokenView(ProgramMixin, toolkit.TokenView):
    """The token endpoint: codes, refresh tokens, service accounts, assertions (OAuth 2.1, section 3.2)."""

    def answer(self, request: HttpRequest) -> HttpResponseBase:
        request.META[BEGAN] = timezone.now()
        grant = request.POST.get("grant_type")
        for_program = PROGRAM_GRANTS.get(grant or "")
        if for_program is not None and for_program.is_enabled:
            return JsonResponse(for_program.issue(request), headers={"Cache-Control": "no-store"})
        if grant not in GRANT_TYPES:
            return _refused("unsupported_grant_type" if grant else "invalid_request")
        response: HttpResponseBase = self.authorization_flow_token_response(request)
        # The toolkit omits both headers from some errors.
        response["Content-Type"] = "application/json"
        response["Cache-Control"] = "no-store"
        return response


@method_decorator(FOR_PROGRAMS, name="dispatch")
class RevokeView(ProgramMixin, toolkit.RevokeTokenView):
    """The revocation endpoint (RFC 7009)."""

    def answer(self, request: HttpRequest) -> HttpResponseBase:
        return toolkit.RevokeTokenView.post(self, request)


def _refused(error: str, description: str | None = None, status: int = 400) -> HttpResponse:
    body = {"error": error} | ({"error_description": description} if description else {})
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})


def _unavailable(status: int, wait: int) -> HttpResponse:
    """Return the JSON response ``temporarily_unavailable`` of an endpoint that cannot answer now."""
    refused = _refused("temporarily_unavailable", f"Try again in {wait} seconds.", status)
    refused["Retry-After"] = str(wait)
    return refused


class TokenListView(PageMixin, toolkit_tokens.AuthorizedTokensListView):
    """The page of the user's connected applications: those with a live or refreshable token."""

    template_name = "mcp_django/oauth/tokens.html"
    paginate_by = 50

    def get_queryset(self) -> QuerySet[Any]:
        """Return the user's live tokens, newest first."""
        return super().get_queryset().select_related("application", "refresh_token").filter(live()).order_by("-created")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: the tokens, with what is shown of them."""
        context = super().get_context_data(**kwargs, page="tokens")
        describe(context["authorized_tokens"])
        add_last_changes(context["authorized_tokens"], self.request.user)
        return context


class TokenDeleteView(PageMixin, toolkit_tokens.AuthorizedTokenDeleteView):
    """The page that ends an application's access once the user confirms, like the toolkit's."""

    template_name = "mcp_django/oauth/token_delete.html"
    success_url = reverse_lazy("mcp_oauth:authorized-token-list")

    def get_queryset(self) -> QuerySet[Any]:
        """Return the user's tokens, with their refresh tokens."""
        tokens: QuerySet[Any] = super().get_queryset().select_related("refresh_token")
        return tokens

    def get_object(self, queryset: QuerySet[Any] | None = None) -> Any:
        """Return the token that the URL names, or the one that the client has since got for it by a refresh."""
        family = self.request.GET.get("family", "")
        since = None
        with suppress(ValidationError):
            since = self.get_queryset().filter(refresh_token__token_family=family).first()
        return since or super().get_object(queryset)

    def form_valid(self, form: Any) -> HttpResponseBase:
        """Revoke the token."""
        end_access([self.object])
        return redirect(self.get_success_url())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: the token, with what is shown of it."""
        describe([self.object])
        return super().get_context_data(**kwargs)


@require_POST
@csrf_protect
@never_cache
@login_not_required
def sign_out(request: HttpRequest) -> HttpResponseBase:
    """End the browser's session; connected applications keep their tokens."""
    logout(request)
    if django_settings.LOGOUT_REDIRECT_URL:
        return redirect(django_settings.LOGOUT_REDIRECT_URL)
    return redirect_to_login(reverse("mcp_oauth:authorized-token-list"))


@login_not_required
def appended_well_known(request: HttpRequest, path: str, name: str) -> HttpResponseBase:
    """Answer with the metadata at ``<path>/.well-known/<name>``."""
    return well_known(request, name=name, path="/" + path)
