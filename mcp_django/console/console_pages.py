"""The console's pages: their base class, titles, permissions and tabs.

The first request to a page imports its module, because ``migrate`` and the shell load the admin too, also in projects
without django-oauth-toolkit. The console belongs to the list of calls in the admin: the ModelAdmin of
:class:`~mcp_django.models.CallEntry` serves the other pages below its own URL.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit
from zoneinfo import ZoneInfo

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin
from django.contrib.auth import SESSION_KEY
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import DatabaseError, connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import get_template
from django.template.response import TemplateResponse
from django.templatetags.static import static
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import settings
from ..context.untrusted_text import plain

Response = TypeVar("Response", bound=HttpResponseBase)
READ: Final = ("GET", "HEAD")
# Maximum number of switches in the banner of each page.
MAX_TOLD: Final = 20
# The admin's templates that console pages extend.
AROUND: Final = ("admin/base.html", "admin/base_site.html", "admin/change_form.html", "admin/change_list.html")
# Name of the parameter and the cookie for the console's time zone, and the cookie's age in seconds.
ZONE: Final = "mcp_zone"
KEPT: Final = 365 * 24 * 3600


@dataclass(frozen=True)
class Page:
    """A page of the console.

    ``name`` is the last part of its URL. ``answer`` is the dotted name, within this package, of the function that takes
    page and request and returns the response. ``methods`` are the HTTP methods that it accepts. A page that
    ``is_local`` works without django-oauth-toolkit. One that ``makes_calls`` opens no transaction around them, whatever
    ``ATOMIC_REQUESTS`` says. ``home`` is the ModelAdmin of the calls.
    """

    name: str
    title: Any
    answer: str
    methods: tuple[str, ...] = (*READ, "POST")
    is_local: bool = False
    makes_calls: bool = False
    home: Any = None

    def may_open(self, request: HttpRequest) -> bool:
        """Return whether the user may open the page: by default, if they may view calls."""
        is_there = self.is_local or apps.is_installed("oauth2_provider")
        return is_there and bool(self.home.has_view_permission(request))

    def get_switches(self, request: HttpRequest) -> tuple[list[Any], list[Any]]:
        """Return what the banner of all pages shows: switches in force, and switches that ended lately."""
        return [], []

    def count(self, request: HttpRequest) -> int:
        """Return the number that the tab has, 0 for none."""
        return 0

    def respond(self, request: HttpRequest) -> HttpResponseBase:
        """Check permission and HTTP method, and return the response of the page's function.

        While settings are wrong, the page says only what is wrong.
        """
        if request.method not in self.methods:
            return HttpResponseNotAllowed(self.methods)
        try:
            settings.require_right()
        except ImproperlyConfigured as error:
            return self.render(request, {"fault": str(error)}, "wrong")
        response: HttpResponseBase = import_string(f"mcp_django.console.{self.answer}")(self, request)
        return response

    def render(self, request: HttpRequest, context: dict[str, Any], template: str = "") -> HttpResponse:
        """Render the page with its tabs and this context; ``template`` is another name than the page's."""
        request.current_app = self.home.admin_site.name
        shared = self.home.admin_site.each_context(request)
        own = {"title": self.title, "opts": self.home.opts, **self.home.get_context(request, self.name)}
        return TemplateResponse(request, f"mcp_django/console/{template or self.name}.html", shared | own | context)

    def view(self, request: HttpRequest) -> HttpResponseBase:
        """Answer users of the admin who may open the page; raise ``PermissionDenied`` for others."""
        if not self.may_open(request):
            raise PermissionDenied
        return with_policy(self.respond(request))

    @property
    def url_name(self) -> str:
        """The name of the page's URL pattern among the admin's."""
        return f"{self.home.opts.app_label}_console_{self.name}"

    @property
    def url(self) -> str:
        """The URL of the page."""
        return reverse(f"{self.home.admin_site.name}:{self.url_name}")


def with_policy(response: Response, frames: str = "'self'") -> Response:
    """Add a Content-Security-Policy to the response, unless the project has one; ``frames`` are sources of pages that
    may frame it.

    If the admin's templates are not Django's own, the policy allows any script, style and image: theirs are unknown.
    """
    if any("csp" in str(name).lower() for name in django_settings.MIDDLEWARE):
        return response
    policy = f"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors {frames}"
    if all(map(_is_djangos, AROUND)):
        parts = urlsplit(static("mcp_django/console.css"))
        own = f"'self' {parts.scheme or 'https'}://{parts.netloc}" if parts.netloc else "'self'"
        policy = f"default-src {own}; img-src {own} data:; {policy}"
    response.headers["Content-Security-Policy"] = policy
    return response


def _is_djangos(name: str) -> bool:
    template: Any = get_template(name)
    return Path(template.origin.name).is_relative_to(Path(admin.__file__).parent)


class AsUser(Page):
    """The tab "As this user", which is for superusers."""

    def may_open(self, request: HttpRequest) -> bool:
        """Return whether the user is a superuser."""
        return bool(getattr(request.user, "is_superuser", False)) and super().may_open(request)


class Switches(Page):
    """The tab "Switches". Users who may view switches can open it, and change them if they may."""

    def may_open(self, request: HttpRequest) -> bool:
        """Return whether the user may view or change switches."""
        user: Any = request.user
        return any(user.has_perm(f"mcp_django.{name}_switch") for name in ("view", "change"))

    def get_switches(self, request: HttpRequest) -> tuple[list[Any], list[Any]]:
        """Return the switches in force, and those that ended lately, newest first."""
        from ..operating.switches import newest  # the admin is loaded by every process

        return newest(MAX_TOLD)


class Tasks(Page):
    """The tab "Tasks". Users who may view tasks can open it, and cancel tasks if they may change them."""

    def may_open(self, request: HttpRequest) -> bool:
        """Return whether the user may view or change tasks."""
        user: Any = request.user
        return any(user.has_perm(f"mcp_django.{name}_task") for name in ("view", "change"))

    def count_open(self, request: HttpRequest) -> int:
        """Return how many tasks have not ended, by one query; 0 for users who may not open the page."""
        if not self.may_open(request):
            return 0
        from .task_list import OPEN, tasks  # the admin is loaded by every process

        return int(tasks().filter(OPEN).count())


def may_undo_others(user: Any) -> bool:
    """Return whether a user may take back changes of others, if they have the rights of their rows."""
    return bool(user.has_perm("mcp_django.undo_change"))


class ClientTimes(Page):
    """The page that takes back a client's time, for users who may take back changes of others."""

    def may_open(self, request: HttpRequest) -> bool:
        """Return whether the user may view calls, and take back changes of others."""
        return may_undo_others(request.user) and super().may_open(request)


class Approvals(Page):
    """The tab "Approvals", for everybody whom the admin lets in: each sees the requests that concern them.

    The person who has signed in decides there, and nobody else: not who comes with a token, nor a user whom middleware
    has found by other means. No page may frame it.
    """

    def may_open(self, request: HttpRequest) -> bool:
        """Return whether there can be requests: what a user sees of them, the queue decides."""
        return apps.is_installed("oauth2_provider")

    def count(self, request: HttpRequest) -> int:
        """Return the number of requests that the user may decide, by one query for all of a page of the admin; 0 while
        it cannot be read, because other pages of the admin have to work then too."""
        from ..approvals.queue import ApprovalQueue  # the admin is loaded by every process

        known: dict[str, Any] = request.__dict__
        if "mcp_to_decide" not in known:
            known["mcp_to_decide"] = 0
            queue = ApprovalQueue(request.user)
            # An error would end a transaction around the page.
            is_within = connections[queue.using].in_atomic_block
            with suppress(DatabaseError), transaction.atomic(using=queue.using) if is_within else nullcontext():
                known["mcp_to_decide"] = queue.count_mine()
        number: int = known["mcp_to_decide"]
        return number

    def concerns(self, request: HttpRequest) -> bool:
        """Return whether the user may view all requests, or has one to decide."""
        from ..approvals.queue import ApprovalQueue

        return self.may_open(request) and (ApprovalQueue(request.user).may_view or self.count(request) > 0)

    def view(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a user who has signed in in this browser; raise ``PermissionDenied`` for others."""
        is_bearer = request.META.get("HTTP_AUTHORIZATION", "").strip().lower().startswith("bearer")
        user: Any = request.user
        if is_bearer or request.session.get(SESSION_KEY) != user._meta.pk.value_to_string(user):
            raise PermissionDenied
        response = with_policy(self.respond(request), "'none'")
        response.headers["X-Frame-Options"] = "DENY"
        return response


APPROVALS: Final = Approvals("approvals", gettext_lazy("Approvals"), "approvals_page.respond", makes_calls=True)
TASKS: Final = Tasks("tasks", gettext_lazy("Tasks"), "tasks_page.respond", is_local=True)
CHANGES: Final = Page("changes", gettext_lazy("Changes"), "changes_page.show", READ, is_local=True)
# The pages in the order of their tabs.
PAGES: Final = (
    Page("overview", gettext_lazy("Overview"), "overview_charts.show", READ, is_local=True),
    CHANGES,
    Page("failures", gettext_lazy("Failures"), "failures_page.show", READ, is_local=True),
    Page("conversations", gettext_lazy("Conversations"), "conversations_page.show", READ, is_local=True),
    Page("clients", gettext_lazy("Clients"), "clients_page.show", READ),
    TASKS,
    APPROVALS,
    Switches("switches", gettext_lazy("Switches"), "switches_page.respond"),
    Page("health", gettext_lazy("Health"), "health_checks_page.respond"),
    AsUser("seen", gettext_lazy("As this user"), "visibility_page.show", READ),
    Page("try", gettext_lazy("Try it"), "try_tool_page.respond"),
    Page("connect", gettext_lazy("Connect"), "open_connections_page.set_up"),
)
# Sessions and streams, to which the page of clients leads.
CONNECTIONS: Final = Page("connections", gettext_lazy("Connections"), "open_connections_page.respond")
# The page of one call, which has no tab of its own.
CALL: Final = Page("call", gettext_lazy("Call"), "call_page.show", READ, is_local=True)
# The page that takes a change back, which has no tab either.
UNDO: Final = Page("undo", gettext_lazy("Take back"), "undo_page.respond", is_local=True)

# The page that takes back what a client wrote in a time: likewise.
CLIENT_TIME: Final = ClientTimes("client_time", gettext_lazy("A client's time"), "client_time_page.respond")


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[type-arg]
    """A ModelAdmin whose rows nobody can add, change or delete."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_add_permission = has_change_permission
    has_delete_permission = has_change_permission


class Home(ModelAdmin):  # type: ignore[type-arg]
    """A ModelAdmin that serves ``pages`` below its URL, in the order of the tabs."""

    def __init__(self, model: Any, admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.pages = [replace(page, home=self) for page in PAGES]
        # Keep the admin index of a project that has its own.
        admin_site.index_template = admin_site.index_template or "mcp_django/console/admin_index.html"
        self._add_to_histories(admin_site)

    def get_urls(self) -> list[URLPattern]:
        """Return a URL pattern for each page, before those of rows."""
        pages = [*self.pages, *(replace(page, home=self) for page in (CONNECTIONS, UNDO, CLIENT_TIME))]
        own = [path(f"{page.name}/", self.admin_site.admin_view(page.view), name=page.url_name) for page in pages]
        urls: list[URLPattern] = [*own, *super().get_urls()]
        for each in urls:
            each.callback = self.in_zone(each.callback)
        for page, pattern in zip(pages, own, strict=True):
            for alias in connections if page.makes_calls else ():
                pattern.callback = transaction.non_atomic_requests(using=alias)(pattern.callback)
        return urls

    def _add_to_histories(self, admin_site: admin.AdminSite) -> None:
        """Show what can be taken back on the history pages of the admin site.

        A site has no template for them, and those that a project or another package has must stay. So the view is
        wrapped, and what it renders is extended, whatever template that is.
        """
        admin_view = admin_site.admin_view
        if getattr(admin_view, "has_changes", False):
            return

        def admin_view_of(view: Callable[..., Any], cacheable: bool = False) -> Any:
            if getattr(view, "__name__", "") != "history_view":
                return admin_view(view, cacheable)

            @wraps(view)
            def history_view(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                extended = import_string("mcp_django.console.object_history.with_changes")
                return extended(self, request, view(request, *args, **kwargs))

            return admin_view(history_view, cacheable)

        admin_view_of.has_changes = True  # type: ignore[attr-defined]
        admin_site.admin_view = admin_view_of  # type: ignore[method-assign]

    def client_time_url(self, request: HttpRequest, **filled_in: str) -> str:
        """Return the URL of the page of a client's time with what is filled in, "" if the user may not open it."""
        page = replace(CLIENT_TIME, home=self)
        return f"{page.url}?{urlencode(filled_in)}" if page.may_open(request) else ""

    def find_zone(self, name: str) -> ZoneInfo | None:
        """Return the time zone of this name, None if there is no such zone."""
        try:
            return ZoneInfo(name) if name else None
        except (ValueError, OSError, KeyError):
            return None

    def in_zone(self, view: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a view, so that its times, and those of its page, are in the zone that the operator chose.

        The page is rendered here, while the zone is active. Choosing a zone redirects a user of the admin to the same
        page. Anybody else has to log in first, which leads back here with the choice.
        """

        @wraps(view)
        def viewed(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if ZONE in request.GET and self.admin_site.has_permission(request):
                return self._choose(request)
            default = timezone.get_current_timezone()
            # Without USE_TZ, the times in the database are in TIME_ZONE and cannot be converted.
            chosen = self.find_zone(request.COOKIES.get(ZONE, "")) if django_settings.USE_TZ else None
            with timezone.override(chosen or default):
                request.mcp_zone = {"name": str(chosen or default), "default": str(default)}  # type: ignore[attr-defined]
                try:
                    response = view(request, *args, **kwargs)
                    if isinstance(response, TemplateResponse):
                        return response.render()
                    return response
                except DatabaseError as error:
                    answer = self.respond_not_migrated(request, error)
                    if answer is None:
                        raise
                    return answer

        return viewed

    def _choose(self, request: HttpRequest) -> HttpResponse:
        """Store the time zone that the request names in a cookie ("" for the project's), and redirect to the page."""
        query = request.GET.copy()
        name = query.pop(ZONE)[-1]
        response = HttpResponseRedirect(f"{request.path}?{query.urlencode()}" if query else request.path)
        if self.find_zone(name) is not None:
            response.set_cookie(ZONE, name, KEPT, httponly=True, samesite="Lax", secure=request.is_secure())
        elif name:
            messages.warning(request, _("There is no time zone %(name)s.") % {"name": plain(name)})
        else:
            response.delete_cookie(ZONE)
        return response

    def respond_not_migrated(self, request: HttpRequest, error: DatabaseError) -> HttpResponseBase | None:
        """Render the page that names missing migrations, in place of any other page.

        Return None if they do not explain the error.
        """
        from ..runtime.missing_migrations import MissingTables  # the admin is loaded by every process

        missing = MissingTables(error).migrations()
        if not missing:
            return None
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "title": self.opts.verbose_name_plural,
            "opts": self.opts,
            "tabs": self.get_tabs(request, "", has_tables=False),
            "calls_url": self.calls_url,
            "has_breadcrumb_list": django.VERSION >= (6, 1),
            "missing": _("Not migrated: %(names)s") % {"names": missing},
            "remedy": MissingTables.REMEDY,
        }
        response = TemplateResponse(request, "mcp_django/console/wrong.html", context)
        return with_policy(response.render())

    @property
    def calls_url(self) -> str:
        """The URL of the list of calls."""
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def get_context(self, request: HttpRequest, current: str) -> dict[str, Any]:
        """Return what the template of every page needs beside its own values."""
        tabs = self.get_tabs(request, current)
        has_list = django.VERSION >= (6, 1)
        return {"tabs": tabs, "calls_url": self.calls_url, "has_breadcrumb_list": has_list}

    def get_tabs(self, request: HttpRequest, current: str, *, has_tables: bool = True) -> list[dict[str, Any]]:
        """Return the tabs that the user may open, each with its title, its URL, and whether it is open.

        Without the app's tables there are no switches to tell.
        """
        tabs = []
        for page in self.pages:
            if page.may_open(request):
                switches = page.get_switches(request) if has_tables else ([], [])
                is_current = page.name == current
                count = page.count(request) if has_tables else 0
                tab = {"title": page.title, "url": page.url, "is_current": is_current, "switches": switches}
                tabs.append({**tab, "count": count})
        if not self.has_view_permission(request):
            return tabs
        calls = {"title": _("Calls"), "url": self.calls_url, "is_current": current == "calls"}
        return [*tabs[:1], calls, *tabs[1:]]
