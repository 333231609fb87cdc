"""The toolkit's admin lists of applications and access tokens, with columns and filters for MCP.

``provider_settings`` names these subclasses of the toolkit's admin classes, and the toolkit registers them.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.contrib.auth import get_permission_codename
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router, transaction
from django.db.models import BigIntegerField, Count, Max, Q, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from oauth2_provider import admin as toolkit
from oauth2_provider.models import get_access_token_model

from ..context.untrusted_text import plain

# Every process of the project imports this module: what only these pages need is imported within functions. So are the
# models of this app: without it, the toolkit's admin imports this module before a check can say what is missing.
LISTED: Final = ("person", "client", "kind", "scope", "records", "last_use", "ends", "created", "place", "endpoint")
# Maximum number of tokens that the page before a revocation lists one by one.
TOLD: Final = 20
# Maximum users or applications in a filter, those with the most tokens. Links in the list lead to all others.
SHOWN: Final = 20
PERSON = "person"
SERVICE = "service"
COMMAND = "command"
ISSUER = "issuer:"


class StateFilter(admin.SimpleListFilter):
    """Filter by state: live by default, or ended."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        return [("ended", _("ended"))]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Name the default choice of the filter "live"."""
        first, *rest = super().choices(changelist)
        yield {**first, "display": _("live")}
        yield from rest

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        from .stored_tokens import live

        return queryset.filter(~live() if self.value() == "ended" else live())


class _MostFilter(admin.SimpleListFilter):
    """Filter by a related row: one of those with most tokens, or the one that the URL names."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        """Return the options: key and name of each row, with the number of its live tokens."""
        from .stored_tokens import live

        name = str(self.parameter_name)
        tokens = get_access_token_model()._default_manager.filter(live(), **{f"{name}__isnull": False})
        counted = dict(tokens.values_list(name).annotate(count=Count("pk")).order_by("-count", name)[:SHOWN])
        rows = self._rows().in_bulk(list(counted))
        options = [(str(pk), f"{self.called(rows[pk])} ({count})") for pk, count in counted.items() if pk in rows]
        value = self.value()
        if value is not None and value not in dict(options):
            row = self._chosen()
            options.append((value, plain(value) if row is None else self.called(row)))
        return options

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        row = self._chosen()
        if row is None:
            return queryset.none()
        return queryset.filter(**{str(self.parameter_name): row})

    def called(self, row: Any) -> str:
        raise NotImplementedError

    def _rows(self) -> QuerySet[Any]:
        field: Any = get_access_token_model()._meta.get_field(self.parameter_name)
        rows: QuerySet[Any] = field.related_model._default_manager.all()
        return rows

    def _chosen(self) -> Any:
        rows = self._rows()
        try:
            return rows.filter(pk=rows.model._meta.pk.to_python(plain(self.value()))).first()
        except ValidationError:
            return None


class UserFilter(_MostFilter):
    """Filter by user."""

    title = _("user")
    parameter_name = "user"

    def called(self, row: Any) -> str:
        return plain(row.get_username())


class ClientFilter(_MostFilter):
    """Filter by application."""

    title = _("application")
    parameter_name = "application"

    def called(self, row: Any) -> str:
        """Return the name of an application, with a sign before a doubtful one."""
        from .client_and_token_display import client_name, name_doubts

        return f"{'⚠ ' if name_doubts(row) else ''}{client_name(row)}"


class KindFilter(admin.SimpleListFilter):
    """Filter by grant: consent page, service account, ``mcp_token``, or identity provider."""

    title = _("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[Any]:
        """Return the kinds of grant, with each identity provider that has linked users."""
        from ..models import LinkedIdentity
        from .stored_tokens import CLIENT

        issuers = LinkedIdentity._default_manager.values_list("issuer", flat=True).distinct().order_by("issuer")
        kinds = [(PERSON, _("consent page")), (SERVICE, _("service account")), (COMMAND, CLIENT)]
        return kinds + [(ISSUER + issuer, plain(issuer, 255)) for issuer in issuers]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        from ..models import LinkedIdentity
        from ..signin import FactName
        from .stored_tokens import CLIENT

        value = self.value() or ""
        by_command = Q(application__client_id=CLIENT)
        if value.startswith(ISSUER):
            links = LinkedIdentity._default_manager.filter(issuer=value.removeprefix(ISSUER)).values("pk")
            identity = Cast(KT(f"facts__{FactName.LINKED_IDENTITY}"), BigIntegerField())
            return queryset.filter(_beside(Q(identity__in=links), identity=identity))
        if value == SERVICE:
            return queryset.filter(_beside(Q(facts__has_key=FactName.SERVICE_ACCOUNT)))
        if value == PERSON:
            machines = Q(facts__has_key=FactName.SERVICE_ACCOUNT) | Q(facts__has_key=FactName.LINKED_IDENTITY)
            return queryset.exclude(_beside(machines)).exclude(by_command)
        if value == COMMAND:
            return queryset.filter(by_command)
        return queryset


def _beside(condition: Q, **computed: Any) -> Q:
    """Return the condition for tokens whose facts meet ``condition``."""
    from ..models import TokenFacts
    from .stored_tokens import beside_tokens

    kept = TokenFacts._default_manager.annotate(**computed).filter(condition).values("pk")
    return Q(token_checksum__in=kept if beside_tokens() else [found["pk"] for found in kept])


def _column(attribute: str, description: Any) -> Any:
    """Return a column that shows an attribute of a token."""

    @admin.display(description=description)
    def show(self: Any, token: Any) -> Any:
        return getattr(token, attribute)

    return show


class AccessTokenAdmin(toolkit.AccessTokenAdmin):
    """The access tokens by user and application, to view and to revoke; their texts are never shown.

    Viewing needs the view permission; revoking needs the permission to change or to delete tokens as well.
    """

    list_display = ("pk", *LISTED)
    list_select_related = ("application", "user", "refresh_token")
    list_filter = ("scope",)
    list_per_page = 50
    # Facets would run a query for each user and application in the filters.
    show_facets = admin.ShowFacets.NEVER
    ordering = ("-created", "-pk")
    date_hierarchy = "created"
    fields = LISTED
    readonly_fields = LISTED
    change_list_template = "mcp_django/oauth/access_list.html"
    kind = _column("kind", _("kind"))
    last_use = _column("used", _("last use"))
    place = _column("place", _("address"))
    ends = _column("until", _("ends"))

    def get_urls(self) -> list[URLPattern]:
        revoke = self.admin_site.admin_view(self.revoke_all)
        urls: list[URLPattern] = super().get_urls()
        return [path("revoke/", revoke, name=self._name("revoke")), *urls]

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        return [StateFilter, KindFilter, UserFilter, ClientFilter, *super().get_list_filter(request)]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Iterable[str]:
        return self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Iterable[str]:
        return self.readonly_fields

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, with a link that revokes all listed tokens."""
        query = request.GET.copy()
        query.pop(PAGE_VAR, None)
        context: dict[str, Any] = {"title": gettext("Applications with access")}
        if self.has_revoke_permission(request) and "state" not in query:
            context["revoke_url"] = f"{self._url('revoke')}?{query.urlencode()}"
        response: HttpResponse = super().changelist_view(request, context | (extra_context or {}))
        return response

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        changelist: ChangeList = super().get_changelist_instance(request)
        changelist.result_list = list(changelist.result_list)
        _describe(changelist.result_list)
        return changelist

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        token = super().get_object(request, object_id, from_field)
        if token is not None:
            _describe([token])
        return token

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Return whether the user can revoke tokens: can view them, and change or delete them."""
        user: Any = request.user
        names = (get_permission_codename(action, self.opts) for action in ("change", "delete"))
        may_end = any(user.has_perm(f"{self.opts.app_label}.{name}") for name in names)
        return may_end and bool(self.has_view_permission(request))

    @admin.action(description=_("Remove the chosen access"), permissions=["revoke"])
    def revoke_tokens(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponseBase | None:
        """Revoke the selected tokens, after a page that asks."""
        tokens = list(queryset.select_related(*self.list_select_related))
        if "post" not in request.POST:
            return self._ask(request, tokens, [token.pk for token in tokens])
        self._revoke(request, tokens)
        return None

    def revoke_all(self, request: HttpRequest) -> HttpResponseBase:
        """Revoke all tokens of the filtered list, after a page that asks."""
        from .stored_tokens import drop_codes, live

        if not self.has_revoke_permission(request):
            raise PermissionDenied
        try:
            queryset = super().get_changelist_instance(request).queryset.filter(live())
        except IncorrectLookupParameters:
            return redirect(self._url("changelist"))
        if request.method != "POST":
            return self._ask(request, list(queryset))
        with transaction.atomic(using=router.db_for_write(get_access_token_model())):
            # Drop codes first, so that none becomes a token that the query below misses.
            if set(request.GET) <= {"user", "application"} and queryset.exists():
                drop_codes(**request.GET.dict())
            self._revoke(request, list(queryset))
        return redirect(self._url("changelist"))

    def _ask(self, request: HttpRequest, tokens: Collection[Any], chosen: Iterable[Any] = ()) -> HttpResponse:
        """Return the page that asks before tokens are revoked, with the number of tokens, users and applications."""
        listed = list(tokens)[:TOLD]
        _describe(listed)
        context = self.admin_site.each_context(request) | {
            "title": gettext("Remove access?"),
            "opts": self.opts,
            "tokens": listed,
            "count": len(tokens),
            "more": len(tokens) - len(listed),
            "users": len({token.user_id for token in tokens}),
            "applications": len({token.application_id for token in tokens}),
            "chosen": list(chosen),
            "list_url": self._url("changelist"),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "mcp_django/oauth/access_revoke.html", context)

    def _revoke(self, request: HttpRequest, tokens: Collection[Any]) -> None:
        """Revoke tokens, and write a ``LogEntry`` for each."""
        from .client_and_token_display import client_name
        from .stored_tokens import end_access

        user: Any = request.user
        kind = ContentType.objects.get_for_model(self.model, for_concrete_model=False).pk
        entries = [
            LogEntry(
                user_id=user.pk,
                content_type_id=kind,
                object_id=str(token.pk),
                object_repr=f"{_username(token)} · {client_name(token.application)}"[:200],
                action_flag=DELETION,
                change_message=plain(" ".join([token.scope, *(token.resource or ())]), 500),
            )
            for token in tokens
        ]
        with transaction.atomic(using=router.db_for_write(get_access_token_model())):
            end_access(tokens)
            LogEntry.objects.bulk_create(entries, batch_size=500)
        self.message_user(request, gettext("Access removed: %(count)s") % {"count": len(entries)})

    @admin.display(description=_("user"), ordering="user")
    def person(self, token: Any) -> str:
        if token.user is None:
            return ""
        return self._narrowing("user", token.user_id, token.user.get_username())

    @admin.display(description=_("application"), ordering="application")
    def client(self, token: Any) -> str:
        """Return the application of a token for the list: its name, a link to its tokens, and its host."""
        if token.application is None:
            return ""
        link = self._narrowing("application", token.application_id, token.client_name)
        home = _shown(token.targets if token.described is None else [token.described])
        if token.described is not None:
            home = format_html("{} {}", gettext("Described by"), home)
        return format_html("{} <div>{}</div>{}", link, home, _doubted(token.doubts))

    @admin.display(description=_("endpoint"))
    def endpoint(self, token: Any) -> str:
        return plain(" ".join(token.resource or ()), 500)

    @admin.display(description=_("records"))
    def records(self, token: Any) -> str:
        if token.labels is None:
            return gettext("all")
        return plain(", ".join(token.labels), 500) or gettext("nothing")

    def _narrowing(self, name: str, key: Any, text: str) -> str:
        return format_html('<a href="{}?{}={}"><bdi>{}</bdi></a>', self._url("changelist"), name, key, plain(text))

    def _name(self, page: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"

    def _url(self, page: str) -> str:
        return reverse(f"admin:{self._name(page)}", current_app=self.admin_site.name)


def _describe(tokens: Collection[Any]) -> None:
    """Set on each token what the columns show; ``kind`` says how the token was granted."""
    from ..models import LinkedIdentity
    from ..signin import FactName
    from .client_and_token_display import describe
    from .stored_tokens import CLIENT

    describe(tokens)
    linked = {token.facts[FactName.LINKED_IDENTITY] for token in tokens if FactName.LINKED_IDENTITY in token.facts}
    issuers = dict(LinkedIdentity._default_manager.filter(pk__in=linked).values_list("pk", "issuer"))
    for token in tokens:
        token.username = _username(token)
        name = plain(token.facts.get("name"))
        if FactName.SERVICE_ACCOUNT in token.facts:
            token.kind = f"{_('service account')}: {name}"
        elif FactName.LINKED_IDENTITY in token.facts:
            token.kind = plain(issuers.get(token.facts[FactName.LINKED_IDENTITY], ""), 255)
        elif token.application is not None and token.application.client_id == CLIENT:
            token.kind = f"{CLIENT}: {name}" if name else CLIENT
        else:
            token.kind = _("consent page")


def _username(token: Any) -> str:
    if token.user is None:
        return ""
    return plain(token.user.get_username(), 150)


def _doubted(doubts: Iterable[str]) -> str:
    return format_html_join("", "<div><strong>⚠ {}</strong></div>", ((doubt,) for doubt in doubts))


def _shown(targets: Iterable[Any]) -> str:
    parts = ((target.before, target.domain, target.after) for target in targets)
    return format_html_join(", ", "<bdi>{}<strong>{}</strong>{}</bdi>", parts)


class ApplicationAdmin(toolkit.ApplicationAdmin):
    """The applications, with their hosts and the number of users with tokens."""

    list_display = ("called", "lives_at", "client_id", "registration_source", "people", "last_token", "created")
    list_display_links = ("called", "client_id")
    search_fields = ("client_id", *toolkit.ApplicationAdmin.search_fields)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        field = get_access_token_model()._meta.get_field("application").related_query_name()
        counted = {"_people": Count(f"{field}__user", distinct=True), "_last_token": Max(f"{field}__created")}
        applications: QuerySet[Any] = super().get_queryset(request)
        return applications.annotate(**counted)

    def view_on_site(self, application: Any) -> str | None:
        """Return where "View on site" leads: to the toolkit's page, if the project mounts it."""
        try:
            return str(application.get_absolute_url())
        except NoReverseMatch:
            return None

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the link to what the application wrote, for those who may take it back in the console."""
        from ..models import CallEntry

        fields = super().get_readonly_fields(request, obj)
        console = self.admin_site._registry.get(CallEntry)
        url_of = getattr(console, "client_time_url", None) if obj is not None else None
        url = url_of(request, client=obj.client_id) if url_of is not None else ""
        if not url:
            return fields
        obj.client_time_url = url
        return [*fields, "written"]

    @admin.display(description=_("What it changed"))
    def written(self, application: Any) -> str:
        return format_html('<a href="{}">{}</a>', application.client_time_url, gettext("A client's time"))

    @admin.display(description=_("name"), ordering="name")
    def called(self, application: Any) -> str:
        from .client_and_token_display import client_name, name_doubts

        return format_html("<bdi>{}</bdi>{}", client_name(application), _doubted(name_doubts(application)))

    @admin.display(description=_("host"))
    def lives_at(self, application: Any) -> str:
        from .client_and_token_display import targets_of

        return _shown(targets_of(application))

    @admin.display(description=_("people"), ordering="_people")
    def people(self, application: Any) -> int:
        return int(application._people)

    @admin.display(description=_("last token"), ordering="_last_token")
    def last_token(self, application: Any) -> Any:
        return application._last_token
