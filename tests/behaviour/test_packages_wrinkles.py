"""What other people's admins do that a plain one does not, each by itself and without the package that does it."""

from typing import Any

import pytest
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.template import engines
from django.urls import include, path
from django.utils.translation import gettext_lazy

from mcp_django import MCPSite
from mcp_django.emulation.action_responses import own_view
from mcp_django.emulation.admin_actions import takes_selection
from mcp_django.emulation.history_model import LABEL as HISTORY
from mcp_django.orm.access import access_of
from mcp_django.scopes import Scope
from mcp_django.subscriptions.model_signals import connect_models
from mcp_django.tools.action_tools import RunAction
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db, pytest.mark.urls(__name__)]

PAGE = """<form method="post" action="/admin/testapp/author/{target}/">{% csrf_token %}
<input type="hidden" name="items" value="{{ items }}">
<select name="format" required><option value="">---<option value="0">csv<option value="1">json</select>
<input type="submit" value="Go"></form>
<form method="post" action="/admin/logout/"><button>Log out</button></form>"""


class MovingForm(forms.ModelForm):
    """A form that asks for more than the model has."""

    position = forms.ChoiceField(choices=[("first", "First"), ("last", "Last")])
    new_token = forms.CharField(required=False)

    class Meta:
        model = Author
        fields = ["name"]

    def save(self, commit: bool = True) -> Any:
        self.instance.email = f"{self.cleaned_data['position']}@example.com"
        return super().save(commit)


class AuthorAdmin(admin.ModelAdmin):
    form = MovingForm
    fields = ["name", "position", "new_token", "gone", "broken"]
    list_display = ["name", "email"]
    search_fields = ["name", "^secret_token", "secret_token__icontains"]
    readonly_fields = ["gone", "broken"]
    actions = ["export", "export_elsewhere", "export_by_django", "purge", "for_two"]

    def gone(self, author):
        raise ObjectDoesNotExist

    def broken(self, author):
        return author.nobody.name

    def _asked(self, queryset, target):
        template = engines["django"].from_string(PAGE.replace("{target}", target))
        return HttpResponse(template.render({"items": ",".join(str(row.pk) for row in queryset)}))

    @admin.action(permissions=["view"])
    def export(self, request, queryset):
        return self._asked(queryset, "export")

    @admin.action(permissions=["view"])
    def export_elsewhere(self, request, queryset):
        return self._asked(queryset, "../tag/export")

    @admin.action(permissions=["view"])
    def export_by_django(self, request, queryset):
        return self._asked(queryset, "add")

    @admin.action(permissions=["delete"])
    def purge(self, request, queryset):
        queryset.delete()

    def for_two(self, request, files, folders):
        raise AssertionError("is not for the list")

    def get_urls(self):
        own = path("export/", self.admin_site.admin_view(self.export_view), name="testapp_author_export")
        return [own, path("import/<int:pk>/", self.export_view, name="testapp_author_import"), *super().get_urls()]

    def export_view(self, request, pk=None):
        if not self.has_change_permission(request):
            raise PermissionDenied
        if request.POST["format"] == "1":
            messages.error(request, "There is no JSON today.")
            return redirect("..")
        rows = self.get_queryset(request).filter(pk__in=request.POST["items"].split(","))
        lines = "".join(f"{row.name}\n" for row in rows.order_by("name"))
        return HttpResponse(
            lines, content_type="text/csv", headers={"Content-Disposition": "attachment; filename=a.csv"}
        )


class TagAdmin(admin.ModelAdmin):
    def get_urls(self):
        own = path("export/", lambda request: HttpResponse("no"), name="testapp_tag_export")
        return [own, *super().get_urls()]


class SettingsPage:
    """What is registered as a model, and is none."""

    class _meta:
        app_label = "testapp"
        model_name = "settingspage"
        object_name = "SettingsPage"
        verbose_name_plural = gettext_lazy("settings")
        abstract = swapped = is_composite_pk = False


admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
admin_site.register(Tag, TagAdmin)
admin_site._registry[SettingsPage] = admin.ModelAdmin(SettingsPage, admin_site)  # type: ignore[index,type-var]
site = MCPSite("wrinkles", admin_site=admin_site)
urlpatterns = [path("admin/", admin_site.urls), path("i18n/", include("django.conf.urls.i18n"))]
RUN = RunAction()


@pytest.fixture
def root():
    return request_of(make_superuser(), site, scopes=frozenset({Scope.READ, Scope.WRITE}))


def run(request, action, *rows, **more):
    arguments = {"model": "testapp.author", "action": action, "pks": [row.pk for row in rows], **more}
    return RUN.call(request, arguments)


def test_a_page_of_settings_that_poses_as_a_model_is_not_exposed():
    assert [model for model, exposure in site.exposures.items() if exposure.label != HISTORY] == [Author, Tag]
    connect_models()


# Forms that ask for more than the model has


def test_a_field_of_the_form_alone_is_written_and_never_read(root):
    told = call(DescribeModel(), root, model="testapp.author", detail=True)
    assert told["write_only_fields"]["position"]["enum"] == ["first", "last"]
    made = call(CreateRecord(), root, model="testapp.author", values={"name": "Ada", "position": "last"})
    assert made["fields"]["email"] == "last@example.com"
    assert "position" not in made["fields"]
    assert "'position'" in refusal(QueryRecords(), root, model="testapp.author", fields=["position"])
    # A browser posts the first option of a select that has no empty one.
    assert call(CreateRecord(), root, model="testapp.author", values={"name": "Bob"})["fields"]["email"] == (
        "first@example.com"
    )


def test_row_129_a_field_of_the_form_alone_may_be_a_secret(root):
    values = {"name": "Ada", "position": "last", "new_token": "x"}
    assert "'new_token'" in refusal(CreateRecord(), root, model="testapp.author", values=values)
    author = make_author("Ada")
    assert "'new_token'" in refusal(UpdateRecord(), root, model="testapp.author", pk=author.pk, values=values)


def test_a_value_that_the_admin_shows_as_none_is_null_and_no_failure(root, caplog):
    author = make_author("Ada")
    shown = call(GetRecord(), root, model="testapp.author", pk=author.pk)
    assert (shown["fields"]["gone"], shown["fields"]["broken"]) == (None, None)
    assert "hint" not in shown
    assert not caplog.records


def test_row_129_a_secret_cannot_be_guessed_by_searching_for_its_letters(root):
    make_author("Ada", secret_token="s3cret")
    query = {"model": "testapp.author", "fields": ["name"]}
    assert len(call(QueryRecords(), root, **query, search="Ad")["rows"]) == 1
    for letters in ("s", "s3", "3cr", "s3cret"):
        assert call(QueryRecords(), root, **query, search=letters)["rows"] == []


# Actions


def test_what_cannot_be_called_as_an_action_is_none(root):
    assert set(site.exposures[Author].get_actions(root)) == {"export", "export_elsewhere", "export_by_django", "purge"}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda admin, request, rows: None, True),
        (lambda *args: None, True),
        (lambda admin, request, rows, more=None: None, True),
        (lambda admin, request: None, False),
        (lambda admin, request, files, folders: None, False),
        (lambda admin, request, rows, *, more: None, False),
    ],
    ids=["plain", "any", "default", "two", "four", "keyword"],
)
def test_an_action_takes_the_admin_the_request_and_the_rows(function, expected):
    assert takes_selection(function) is expected


def test_H140_an_action_that_needs_the_permission_to_delete_asks_first(root):
    author = make_author("Ada")
    asked = run(root, "purge", author).structured
    assert asked["confirmation_required"]
    assert Author.objects.filter(pk=author.pk).exists()
    run(root, "purge", author, confirm_token=asked["confirm_token"])
    assert not Author.objects.filter(pk=author.pk).exists()


def test_a_page_that_is_posted_to_a_view_of_its_own_is_asked_and_answered_there(root):
    rows = make_author("Ada"), make_author("Bob")
    make_author("Eve")
    asked = run(root, "export", *rows).structured
    question = asked["form"]["properties"]["format"]
    assert (question["enum"], question["description"]) == (["0", "1"], "0: csv; 1: json")
    done = run(root, "export", *rows, form={"format": "0"}, confirm_token=asked["confirm_token"]).structured
    assert (done["file"]["name"], done["file"]["text"]) == ("a.csv", "Ada\nBob\n")


def test_what_that_view_says_is_told(root):
    author = make_author("Ada")
    token = run(root, "export", author).structured["confirm_token"]
    done = run(root, "export", author, form={"format": "1"}, confirm_token=token)
    assert "There is no JSON today." in done.structured["messages"][0]["text"]
    assert done.is_error


def test_H136_that_view_decides_who_may_do_it():
    viewer, author = request_of(make_user("viewer", "testapp.view_author"), site), make_author("Ada")
    token = run(viewer, "export", author).structured["confirm_token"]
    arguments = {"model": "testapp.author", "action": "export", "pks": [author.pk]}
    told = refusal(RUN, viewer, **arguments, form={"format": "0"}, confirm_token=token)
    assert "Ada" not in told


@pytest.mark.parametrize("action", ["export_elsewhere", "export_by_django"])
def test_a_page_of_another_model_or_of_the_admin_itself_is_not_answered(root, action):
    done = run(root, action, make_author("Ada"))
    assert "form" not in done.structured
    assert "confirm_token" not in done.structured


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("/admin/testapp/author/export/", True),
        ("/admin/testapp/author/import/3/", True),
        ("/admin/testapp/tag/export/", False),
        ("/admin/testapp/author/add/", False),
        ("/admin/testapp/author/1/change/", False),
        ("/admin/testapp/author/1/delete/", False),
        ("/admin/testapp/author/", False),
        ("/admin/logout/", False),
        ("/i18n/setlang/", False),
        ("/nowhere/", False),
    ],
)
def test_only_a_view_that_the_admin_of_the_model_adds_is_its_own(root, target, found):
    from mcp_django.emulation.page_requests import changelist_request

    posting = changelist_request(access_of(root)[site.exposures[Author]], [])
    assert (own_view(posting, target) is not None) is found
