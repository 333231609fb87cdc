from dataclasses import replace
from functools import partial

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AbstractUser, Group, Permission
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import F
from django.db.models.functions import Lower, Random
from django.http import HttpResponse
from django.test import override_settings
from django.test.utils import isolate_apps
from django.urls import path
from django.utils.crypto import get_random_string
from django_filters import FilterSet
from rest_framework.serializers import ModelSerializer

from mcp_django import MCPSite, ModelExposure, action, site, task
from mcp_django.checks import declarations
from mcp_django.checks.declarations import (
    _check_hooks,
    check_completions,
    check_destructive,
    check_exposures,
    check_functions,
    check_modules,
    check_orders,
    check_random,
    check_registries,
    check_tools,
    check_tried_actions,
    check_tried_hooks,
    check_undeclared,
)
from mcp_django.checks.settings import CHECKS, DEPLOYMENT_CHECKS
from mcp_django.models import CallEntry
from tests.line_counts import steps_of
from tests.testapp.models import AudioBook, Author, Book, Loan, Tag

# Django's checks of JSON fields ask the database, once in a process.
pytestmark = pytest.mark.django_db

own = MCPSite("own")
urlpatterns = [path("mcp", own.urls)]


class Named(ModelSerializer):
    class Meta:
        model = Author
        fields = ["name"]


class LoanInline(admin.TabularInline):
    model = Loan


@pytest.fixture
def exposed():
    """Register an exposure on a mounted site while a test runs."""
    with override_settings(ROOT_URLCONF=__name__):
        yield lambda exposure, **options: own.register(Author, exposure, **options)
    own._registry.clear()
    own._forget()
    own.prompts = {}


def ids(messages):
    return [message.id for message in messages]


@pytest.mark.parametrize(("ttl", "expected"), [(60_000, []), (-1, ["mcp_django.E018"]), (10**9, ["mcp_django.W018"])])
def test_194_a_time_to_keep_what_is_read_is_checked(exposed, ttl, expected):
    exposed(ModelExposure, fields=["name"], cache_ttl_ms=ttl)
    assert ids([one for one in check_exposures() if one.obj is not None and "018" in one.id]) == expected


@pytest.mark.parametrize("field", ["testapp.author.nosuch", "testapp.nosuch.name", "testapp.book.title"])
def test_a_field_that_completes_an_argument_must_be_exposed(exposed, field):
    exposed(ModelExposure, fields=["name"])
    own.add_prompt(lambda request, word: "", name="prompt", complete={"word": field})
    assert ids(check_completions()) == ["mcp_django.E019"]


def test_a_field_that_is_exposed_completes_an_argument(exposed):
    exposed(ModelExposure, fields=["name"])
    own.add_prompt(lambda request, word: "", name="prompt", complete={"word": "testapp.Author.name"})
    assert check_completions() == []


def test_D82_an_action_whose_tool_has_the_name_of_another_is_an_error():
    def clash(request) -> str:
        """Clash."""
        return ""

    site.add_tool(clash, name="publish_testapp_book")
    try:
        assert ids(check_tools()) == ["mcp_django.E005"]
    finally:
        site.remove_tool("publish_testapp_book")


def test_a_field_that_does_not_exist_is_an_error(exposed):
    exposed(ModelExposure, fields=["name", "nam"])
    assert ids(check_exposures()) == ["mcp_django.E010"]


def test_G130_an_exposure_without_fields_or_with_all_of_them_is_warned_about(exposed):
    exposed(ModelExposure)
    assert ids(check_exposures()) == ["mcp_django.W011"]
    own.unregister(Author)
    exposed(ModelExposure, fields="__all__")
    assert ids(check_exposures()) == ["mcp_django.W012"]


def test_G129_a_secret_that_is_exposed_on_purpose_is_warned_about(exposed):
    exposed(ModelExposure, fields=["name", "secret_token"])
    assert ids(check_exposures()) == ["mcp_django.W013"]


def test_an_action_that_is_not_marked_is_an_error(exposed):
    exposed(ModelExposure, fields=["name"], actions=["get_queryset"])
    assert ids(check_exposures()) == ["mcp_django.E014"]


class ByName(ModelExposure):
    fields = ("name",)
    ordering = ("-name",)


class ByKey(ModelExposure):
    fields = ("name",)
    ordering = ("-pk",)


def test_an_order_that_no_index_serves_is_named_with_the_index(exposed):
    exposed(ByName)
    (message,) = [message for message in check_orders() if "testapp.author, -name, -id" in message.msg]
    assert (message.id, message.level, message.obj) == ("mcp_django.I021", checks.INFO, Author)
    assert "Add models.Index(fields=['-name', '-id'], name=...)" in message.hint


@pytest.mark.parametrize(
    ("entry", "is_told"),
    [("?", True), (Random(), True), ("books__title", True), (F("books__title").asc(), True), (Lower("name"), False)],
    ids=str,
)
def test_an_order_that_no_page_can_follow_is_named(exposed, entry, is_told):
    exposed(ModelExposure, fields=["name"], ordering=[entry])
    found = [message for message in check_orders() if message.id == "mcp_django.I038" and message.obj is Author]
    assert bool(found) is is_told
    assert all(str(entry).split("(")[0] in message.msg for message in found)


def test_an_order_that_an_index_serves_is_no_matter(exposed):
    exposed(ByKey)
    assert not [message for message in check_orders() if "testapp.author, -id" in message.msg]


def test_an_order_through_a_relation_has_no_index_to_add(exposed):
    class ByProfile(ModelExposure):
        fields = ("name",)
        ordering = ("profile__website",)

    exposed(ByProfile)
    (message,) = [message for message in check_orders() if "profile__website" in message.msg]
    assert message.hint == "No index can serve an order through a relation: set another ordering on the exposure."


def test_an_order_by_a_column_of_the_parent_has_no_index_to_add():
    (message,) = [found for found in check_orders() if found.obj is AudioBook]
    assert message.hint.startswith("No index can serve an order through a relation")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("inlines", ["LoanInline"], ["admin.E104"]),
        ("inlines", [Author], ["admin.E104"]),
        ("inlines", [LoanInline], ["admin.E202"]),
        ("form", Author, ["admin.E016"]),
        ("list_per_page", "20", ["admin.E118"]),
        ("list_per_page", 20, []),
    ],
)
def test_options_that_an_admin_has_are_checked_as_its_are(exposed, option, value, expected):
    exposed(ModelExposure, fields=["name"], **{option: value})
    found = [message for message in check_exposures() if message.id.startswith("admin.")]
    assert ids(found) == expected
    assert all(message.obj.__name__ in ("ModelExposure", "LoanInline") for message in found)
    assert check_undeclared() == []


def test_orders_are_checked_for_a_deployment_alone():
    assert "mcp_django.I021" not in ids(checks.run_checks())
    assert "mcp_django.I021" in ids(checks.run_checks(include_deployment_checks=True))


def test_columns_that_look_random_are_told_of_for_a_deployment_alone(exposed):
    with isolate_apps("tests.testapp"):

        class Ticket(models.Model):
            title = models.CharField(max_length=100, unique=True)
            reference = models.CharField(max_length=40, default=partial(get_random_string, 20))
            door_code = models.CharField(max_length=40, unique=True)
            short_code = models.CharField(max_length=6, unique=True)
            api_key = models.CharField(max_length=40, default=partial(get_random_string, 20))

            class Meta:
                app_label = "testapp"

    def names(**options):
        own._registry.clear()
        own.register(Ticket, ModelExposure, **options)
        found = [message for message in check_random() if message.obj is Ticket]
        assert {message.id for message in found} <= {"mcp_django.I159"}
        return [message.msg.split("'")[1] for message in found]

    assert names(fields="__all__") == ["reference", "door_code"]
    assert names(fields="__all__", exclude=["reference"]) == ["door_code"]
    assert names(fields=["reference"]) == []
    deployment, always = ([check.__name__ for check in group] for group in (DEPLOYMENT_CHECKS, CHECKS))
    assert check_random.__name__ in deployment
    assert check_random.__name__ not in always


class LoanInline(admin.TabularInline):
    model = Loan

    def get_queryset(self, request):
        return super().get_queryset(request)


class SilentAdmin(admin.ModelAdmin):
    inlines = [LoanInline]
    actions = ["ask", "work"]

    def ask(self, request, queryset):
        return HttpResponse()

    def work(self, request, queryset) -> None: ...

    def has_view_permission(self, request, obj=None):
        return True


def test_what_code_may_do_and_does_not_say_is_told_of_for_a_deployment_alone(monkeypatch):
    admin_site = admin.AdminSite("silent")
    admin_site.register(Book, SilentAdmin)
    silent = MCPSite("silent", admin_site=admin_site)
    monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [silent])
    found = check_undeclared()
    assert {(message.id, message.obj) for message in found} == {("mcp_django.I162", Book)}
    assert [message.msg for message in found] == [
        "SilentAdmin may decide for each row who sees testapp.book, so admin.logentry leaves it out.",
        "The rows of LoanInline are not exposed, because its get_queryset may need the page.",
        "Actions of testapp.book may show a page that asks for something: ask.",
    ]
    monkeypatch.setattr(SilentAdmin, "mcp_history", True, raising=False)
    monkeypatch.setattr(LoanInline, "mcp_readable", False, raising=False)
    monkeypatch.setattr(SilentAdmin.ask, "mcp_form", None, raising=False)
    assert check_undeclared() == []
    assert "mcp_django.I162" not in ids(checks.run_checks())


def test_actions_that_do_not_say_what_they_can_destroy_are_named_for_a_deployment_alone(monkeypatch):
    class Actions(admin.ModelAdmin):
        actions = ["purge", "safe", "known", "reads", "looks"]

        def purge(self, request, queryset) -> None: ...
        def safe(self, request, queryset) -> None: ...
        def known(self, request, queryset) -> None: ...
        def reads(self, request, queryset) -> None: ...

        @admin.action(permissions=["view"])
        def looks(self, request, queryset) -> None: ...

        safe.mcp_destructive = False
        known.mcp_destructive = True
        reads.mcp_read_only = True

    admin_site = admin.AdminSite("actions")
    admin_site.register(Book, Actions)
    made = MCPSite("actions", admin_site=admin_site)
    monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [made])
    [message] = check_destructive()
    assert (message.id, message.obj) == ("mcp_django.I163", Book)
    assert message.msg == "Actions of testapp.book ask for confirmation on each call: purge."
    assert "mcp_destructive" in message.hint
    assert check_destructive.__name__ in [check.__name__ for check in DEPLOYMENT_CHECKS]
    assert check_destructive.__name__ not in [check.__name__ for check in CHECKS]


def test_hooks_that_say_nothing_about_being_tried_are_named_once_for_a_deployment_alone(monkeypatch):
    class Paying(admin.ModelAdmin):
        def save_model(self, request, obj, form, change): ...
        def delete_queryset(self, request, queryset): ...

    class Tags(ModelExposure):
        fields = ["name"]

        def delete_model(self, request, obj): ...

    def found():
        admin_site = admin.AdminSite("tried")
        admin_site.register(Book, Paying)
        admin_site.register(Author, admin.ModelAdmin)
        made = MCPSite("tried", admin_site=admin_site)
        made.register(Tag, Tags)
        monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [made, made])
        return {message.obj: message for message in check_tried_hooks()}

    messages = found()
    assert set(messages) == {Book, Tag}
    assert {message.id for message in messages.values()} == {"mcp_django.I169"}
    told = "run once more, rolled back, when a write is tried or shown to be confirmed"
    assert messages[Book].msg == f"Hooks of testapp.book {told}: save_model, delete_queryset."
    assert messages[Tag].msg == f"Hooks of testapp.tag {told}: delete_model."
    assert "mcp_dry_run" in messages[Book].hint
    assert "mcp_dry_run" not in messages[Tag].hint
    assert len(check_tried_hooks()) == 2
    monkeypatch.setattr(Paying, "mcp_dry_run", False, raising=False)
    monkeypatch.setattr(Tags, "dry_run", True, raising=False)
    assert found() == {}
    assert check_tried_hooks.__name__ in [check.__name__ for check in DEPLOYMENT_CHECKS]
    assert check_tried_hooks.__name__ not in [check.__name__ for check in CHECKS]


def test_actions_that_can_be_tried_have_to_run_in_one_transaction(monkeypatch):
    class Actions(admin.ModelAdmin):
        actions = ["whole", "parts"]

        def whole(self, request, queryset) -> None: ...
        def parts(self, request, queryset) -> None: ...

        whole.mcp_dry_run = parts.mcp_dry_run = True
        parts.mcp_atomic = False

    class Tags(ModelExposure):
        fields = ["name"]
        actions = ["whole", "parts", "nothing"]

        @action(dry_run=True)
        def whole(self, request, queryset): ...

        @action(dry_run=True, atomic=False)
        def parts(self, request, queryset): ...

    admin_site = admin.AdminSite("tried")
    admin_site.register(Book, Actions)
    made = MCPSite("tried", admin_site=admin_site)
    made.register(Tag, Tags)
    monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [made])
    found = check_tried_actions()
    assert {(message.id, message.msg) for message in found} == {
        ("mcp_django.W170", f"testapp.{name}/parts says that it can be tried, but manages its own transactions.")
        for name in ("book", "tag")
    }


def test_actions_of_an_admin_that_declare_no_task_in_its_place_are_named(monkeypatch):
    class Working(admin.ModelAdmin):
        actions = ("late", "whole", "well")

        def late(self, request, queryset) -> None: ...
        def whole(self, request, queryset) -> None: ...
        def well(self, request, queryset) -> None: ...

        late.mcp_task = "yes"
        whole.mcp_task, whole.mcp_atomic = task(atomic=True), False
        well.mcp_task = task(atomic=True)

    admin_site = admin.AdminSite("working")
    admin_site.register(Book, Working)
    made = MCPSite("working", admin_site=admin_site)
    monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [made])
    found = [message for message in check_exposures() if message.id == "mcp_django.E023"]
    assert [message.msg.partition(": ")[0] for message in found] == [
        f"The action testapp.book/{name}" for name in ("late", "whole")
    ]
    assert "True, False or mcp.task(...), not 'yes'" in found[0].msg


# Options of exposures


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fields": "__al__"}, ["E023"]),
        ({"fields": "name"}, ["E023"]),
        ({"fields": ["name"], "search_fields": "name"}, ["E023"]),
        ({"fields": ["name"], "search_terms": "writers"}, ["E023"]),
        ({"fields": ["name"], "actions": "publish"}, ["E023"]),
        ({"fields": ["name"], "undo": "no"}, ["E023"]),
        ({"fields": ["name"], "dry_run": 0}, ["E023"]),
        ({"fields": ["name"], "undo": False, "dry_run": False}, []),
        ({"fields": ["name"], "confirm": "user"}, ["E023"]),
        ({"fields": ["name"], "confirm": {"rows": "many"}}, ["E023"]),
        ({"fields": ["name"], "confirm": {"delete": "person", "rows": 50}}, []),
        ({"fields": ["name"], "filter_fields": ["name"]}, ["E023"]),
        ({"fields": ["name"], "filter_fields": {"name": "exact"}}, ["E023"]),
        ({"fields": ["name", "delete"]}, ["E010"]),
        ({"fields": ["name"], "filter_fields": {"nam": ["exact"]}}, ["E010"]),
        ({"fields": ["name"], "filter_fields": {"profile__nosuch": ["exact"]}}, ["E010"]),
        ({"fields": ["name"], "filter_fields": {"name": ["exakt"]}}, ["E010"]),
        ({"fields": ["name"], "filter_fields": {"books__data__city": ["exact"]}}, ["E010"]),
        ({"fields": ["name"], "filter_fields": {"books__data__city__name": ["exact"]}}, ["E010"]),
        ({"fields": ["name"], "filter_fields": {"name__icontains": ["exact"]}}, ["E010"]),
        ({"fields": ["name"], "search_fields": ["nam"]}, ["E010"]),
        ({"fields": ["name"], "ordering": ["-nam"]}, ["E010"]),
        ({"fields": ["name"], "sortable_by": ["nam"]}, ["E010"]),
        ({"fields": ["name"], "label_field": "nam"}, ["E010"]),
        ({"fields": ["name"], "serializer_class": Author}, ["E023"]),
        ({"fields": ["name"], "serializer_class": "shop.AuthorSerializer"}, ["E023"]),
        ({"fields": ["name"], "serializer_class": Named()}, ["E023"]),
        ({"fields": ["name"], "serializer_class": Named}, []),
        ({"fields": ["name"], "filterset_class": Author}, ["E023"]),
        ({"fields": ["name"], "filterset_class": FilterSet}, []),
        ({"fields": ["name"], "serach_fields": ["name"]}, ["W024"]),
        ({"fields": ["name"], "get_querysett": lambda self, request: None}, ["W024"]),
        ({"fields": ["name"], "filter_fields": {"name": ["exact", "regex"], "profile__website": ["exact"]}}, []),
        ({"fields": ["name"], "search_fields": ["^name", "=profile__website", "name__iexact", "pk"]}, []),
        ({"fields": ["name"], "ordering": ["?"], "sortable_by": ["pk", "profile__website", "books"]}, []),
        ({"fields": ["name", "orderings"], "orderings": lambda self, row: 1}, []),
    ],
)
def test_an_option_that_leads_nowhere_is_named(exposed, options, expected):
    exposed(ModelExposure, **options)
    assert ids(check_exposures()) == [f"mcp_django.{one}" for one in expected]


HOOKS = [name for name, value in vars(ModelExposure).items() if callable(value) and not name.startswith("_")]


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_without_the_arguments_of_its_calls_is_named_with_what_to_write(exposed, name):
    exposed(ModelExposure, fields=["name"], **{name: lambda self: None})
    (message,) = check_exposures()
    assert (message.id, message.obj) == ("mcp_django.E037", own.exposures[Author].__class__)
    start = f"Write def {name}(self, "
    assert message.hint.startswith(start)
    written = {}
    exec(message.hint.removeprefix("Write ").removesuffix(".") + ": ...", written)
    own.unregister(Author)
    exposed(ModelExposure, fields=["name"], **{name: written[name]})
    assert check_exposures() == []


def test_the_hooks_of_an_exposure_that_has_none_of_its_own_are_not_read():
    exposure = site.exposures[Book]
    assert steps_of(lambda: list(_check_hooks(exposure))) < 1_000


@pytest.mark.parametrize(
    ("name", "hook", "hint"),
    [
        ("get_fields", lambda self, request: [], "Write def get_fields(self, request, obj=None)."),
        ("get_queryset", [], "Write def get_queryset(self, request)."),
        ("has_add_permission", True, "Write def has_add_permission(self, request)."),
        ("has_view_permission", lambda self, obj=None: True, "Write def has_view_permission(self, request, obj=None)."),
        ("get_form", lambda self, request, obj=None, **options: None, None),
        ("get_fields", lambda self, *arguments: [], None),
        ("get_fields", lambda self, request, row=None: [], None),
        ("get_queryset", staticmethod(lambda request: None), None),
        ("get_queryset", classmethod(lambda cls, request, using=None: None), None),
    ],
)
def test_a_hook_is_called_with_what_the_app_gives_it(exposed, name, hook, hint):
    exposed(ModelExposure, fields=["name"], **{name: hook})
    assert [message.hint for message in check_exposures()] == ([hint] if hint else [])


def test_columns_of_a_queryset_of_the_projects_own_can_be_named(exposed):
    class Counted(ModelExposure):
        fields = ("name",)
        ordering = ("-count",)

        def get_queryset(self, request):
            return super().get_queryset(request)

    exposed(Counted)
    assert check_exposures() == []


def test_what_was_meant_is_said(exposed):
    exposed(ModelExposure, fields=["name"], search_fields=["nmae"], filter_fields={"name": ["icontain"]})
    assert [message.hint.partition("?")[0] for message in check_exposures()] == [
        "Did you mean 'icontains'",
        "Did you mean 'name'",
    ]


class Publishing(ModelExposure):
    fields = ("name",)

    @action(permissions=["publsh_author"])
    def publish(self, request, queryset) -> str:
        """Publish."""
        return ""


@pytest.mark.parametrize(
    ("actions", "permissions", "expected"),
    [
        (["publish"], ("chagne",), ["W026"]),
        (["publish"], ("testapp.veiw_author",), ["W026"]),
        (["publish"], ("change",), []),
        (["publish"], ("testapp.view_author",), []),
        (["publish"], ("made_by_code",), []),
        (["publsh"], ("change",), ["E014", "I028"]),
        ([], ("change",), ["I028"]),
    ],
)
def test_an_action_that_nobody_can_run_is_named(exposed, monkeypatch, actions, permissions, expected):
    options = replace(Publishing.publish.mcp_action, permissions=permissions)
    monkeypatch.setattr(Publishing.publish, "mcp_action", options)
    exposed(Publishing, actions=actions)
    assert ids(check_exposures()) == [f"mcp_django.{one}" for one in expected]


# Tools, modules and empty sites


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"description": ""}, ["W022"]),
        ({"description": "Sums.", "permissions": ["testapp.veiw_author"]}, ["W026"]),
        ({"description": "Sums.", "permissions": ["testapp.view_author"]}, []),
        ({"description": "Sums.", "permissions": ["made.by_code"]}, []),
    ],
)
def test_a_tool_that_says_nothing_or_that_nobody_can_call_is_named(tools, options, expected):
    def revenue(request, year: int) -> int:
        return year

    before = ids(check_functions())
    tools(revenue, **options)
    assert ids(check_functions()) == before + [f"mcp_django.{one}" for one in expected]


def test_what_django_and_the_app_bring_along_is_nothing_until_it_is_registered(monkeypatch):
    admin_site = AdminSite("brought")
    for model in (LogEntry, Group, Permission, CallEntry):
        admin_site.register(model, ModelAdmin)
    mounted = MCPSite("brought", admin_site=admin_site)
    monkeypatch.setattr(declarations, "mounted", lambda: [mounted])
    assert mounted.exposures
    assert ids(check_registries()) == ["mcp_django.W031"]
    mounted.register(Group, ModelExposure, fields=["name"])
    assert check_registries() == []
    another = MCPSite("models", admin_site=admin_site)
    admin_site.register(Author, ModelAdmin)
    monkeypatch.setattr(declarations, "mounted", lambda: [another])
    assert check_registries() == []


def test_an_endpoint_with_nothing_behind_it_is_warned_about(exposed):
    assert ids(check_registries()) == ["mcp_django.W031"]
    exposed(ModelExposure, fields=["name"])
    assert check_registries() == []


def test_an_endpoint_with_a_function_alone_is_not_warned_about(exposed):
    def revenue(request, year: int) -> int:
        return year

    own.add_tool(revenue, description="The revenue of a year.", permissions=[])
    try:
        assert check_registries() == []
    finally:
        own.remove_tool("revenue")


@pytest.mark.parametrize(
    ("name", "expected"), [("mpc.py", 1), ("MCP.py", 1), ("mcps.py", 1), ("mcp.py", 0), ("map.py", 0)]
)
def test_a_module_that_is_meant_for_mcp_py_is_found(monkeypatch, tmp_path, name, expected):
    (tmp_path / name).write_text("import mcp_django as mcp")
    (tmp_path / "cmp.py").write_text("import functools")
    monkeypatch.setattr(apps.get_app_config("testapp"), "path", str(tmp_path))
    assert len(check_modules()) == expected


# What cannot be registered


@pytest.mark.parametrize("model", ["testapp.Author", ["testapp.Author"], [5], ModelExposure])
def test_what_is_no_model_is_refused_in_words(model):
    with pytest.raises(ImproperlyConfigured, match="is not a model"):
        own.register(model)


def test_an_abstract_model_is_refused_in_words():
    with pytest.raises(ImproperlyConfigured, match="abstract"):
        own.register(AbstractUser)
