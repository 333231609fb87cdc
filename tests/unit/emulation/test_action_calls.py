import json
import re
from typing import Any

import pytest
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models.functions import Lower
from django.http import HttpResponse, HttpResponseRedirect
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import include, path
from django.utils.html import format_html
from django.utils.safestring import mark_safe

from mcp_django import MCPSite, ToolError
from mcp_django.context.confirmation import REFUSED, Confirmation
from mcp_django.context.questions import Answers
from mcp_django.emulation.page_requests import UNREADABLE
from mcp_django.exceptions import Cancelled, Declined, InputRequired
from mcp_django.orm.row_finder import RowFinder
from mcp_django.protocol.errors import InvalidParams
from mcp_django.schema.consent import ConsentForm
from mcp_django.testing import MCPClient
from mcp_django.tools.action_tools import RunAction
from tests.factories import make_author, make_superuser, make_user
from tests.question_rounds import CANCEL, DECLINE, ELICITS, YES, accept
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, history_page, refusal, request_of, result_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

RUN = RunAction()
PAGE = """{% extends "admin/base_site.html" %}
{% block content %}<form method="post">{% csrf_token %}
<p>Rename {{ rows|length }} authors:</p><ul>{% for row in rows %}<li>{{ row }}</li>
<input type="hidden" name="_selected_action" value="{{ row.pk }}">{% endfor %}</ul>
{{ form.as_p }}
<input type="hidden" name="action" value="{{ action }}">{{ more|safe }}
<input type="submit" name="apply" value="Rename"> <input type="submit" name="cancel" value="Cancel">
</form>{% endblock %}"""


class RenameForm(forms.Form):
    name = forms.CharField(max_length=20, help_text="The new name.")
    style = forms.ChoiceField(choices=[("plain", "As it is"), ("loud", "In capitals")])
    when = forms.SplitDateTimeField(required=False)
    secret = forms.CharField(widget=forms.HiddenInput, initial="kept")

    def clean_name(self):
        if self.cleaned_data["name"] == "nobody":
            raise ValidationError("Nobody is nobody.")
        if self.cleaned_data["name"] == "everybody":
            raise ValidationError("Nobody is everybody. " * 200)
        return self.cleaned_data["name"]


class AuthorAdmin(admin.ModelAdmin):
    """One action of each kind."""

    search_fields = ["name"]
    actions = [
        *["shout", "whisper", "fail_at_seven", "refuse", "forbid", "rename", "clear", "ask_raw", "wizard", "elsewhere"],
        *["report", "destroy", "reports", "loud_progress", "own_transactions", "change_page"],
        *["step_by_step", "complain", "half_well", "to_first", "listed", "rename_plain", "destroy_plainly"],
        "adorn",
    ]
    seen: Any = None

    def has_change_permission(self, request, obj=None):
        return super().has_change_permission(request, obj) and (obj is None or obj.name != "locked")

    def shout(self, request, queryset):
        for author in queryset:
            Author.objects.filter(pk=author.pk).update(name=author.name.upper())
        self.message_user(request, "Shouted.", messages.SUCCESS)
        messages.warning(request, format_html('<a href="/admin/{}/">{} &amp; more</a>', "x", "<b>"))

    @admin.action(permissions=["view"])
    def whisper(self, request, queryset):
        type(self).seen = request
        request.session["last"] = queryset.count()
        request.session.save()

    def fail_at_seven(self, request, queryset):
        for number, author in enumerate(queryset.order_by("pk"), 1):
            if number == 7:
                raise RuntimeError("row seven: SELECT secret")
            Author.objects.filter(pk=author.pk).update(name="changed")

    def refuse(self, request, queryset):
        queryset.update(name="changed")
        raise ValidationError(["No more.", "Not today."])

    def forbid(self, request, queryset):
        queryset.update(name="changed")
        raise PermissionDenied("because of 42")

    def rename(self, request, queryset):
        if not queryset.exclude(name="done"):
            self.message_user(request, "Nobody to rename.", messages.ERROR)
            return None
        if "apply" in request.POST:
            form = RenameForm(request.POST)
            if form.is_valid():
                assert form.cleaned_data["secret"] == "kept"
                type(self).seen = request
                name = form.cleaned_data["name"]
                queryset.update(name=name.upper() if form.cleaned_data["style"] == "loud" else name)
                self.message_user(request, f"Renamed {queryset.count()}.")
                return None
        else:
            form = RenameForm()
        return self.page(request, "rename", queryset.exclude(name="done"), form=form)

    def rename_plain(self, request, queryset):
        """As by ``render()``: the response does not have the form."""
        response = self.rename(request, queryset)
        return response and HttpResponse(response.render().content)

    def page(self, request, name, rows, template=PAGE, **context):
        context |= {**admin.site.each_context(request), "title": "Authors", "rows": rows, "action": name}
        return TemplateResponse(request, engines["django"].from_string(template), context)

    def clear(self, request, queryset):
        """As the admin's own deletion asks: a page without a form, and a hidden answer."""
        if request.POST.get("post"):
            queryset.update(name="")
            return None
        return self.page(request, "clear", queryset, more='<input type="hidden" name="post" value="yes">')

    def ask_raw(self, request, queryset):
        if request.POST.get("decision"):
            queryset.update(name=f"{request.POST['decision']} {request.POST['reason']} {request.POST['colour']}")
            return None
        more = """<input name="reason" required><select name="colour"><option>red<option selected>blue</select>
            <button name="decision" value="approve">Approve it</button>
            <button name="decision" value="reject">No</button>"""
        return self.page(request, "ask_raw", queryset, template=PAGE.replace('name="apply"', ""), more=more)

    def wizard(self, request, queryset):
        queryset.update(name="half")
        return self.page(request, "wizard", queryset)

    def elsewhere(self, request, queryset):
        queryset.update(name="half")
        return self.page(request, "x", queryset, template=PAGE.replace("<form", '<form action="/admin/other/"'))

    def report(self, request, queryset):
        return HttpResponse("<html><body><h1>Report</h1><p>Two  authors</p><script>x</script></body></html>")

    @admin.action(description="Delete everything")
    def destroy(self, request, queryset):
        queryset.delete()

    destroy.mcp_destructive = True  # type: ignore[attr-defined]

    def adorn(self, request, queryset):
        queryset.update(name="adorned")
        self.message_user(request, mark_safe("<a" * 3000))

    def destroy_plainly(self, request, queryset) -> None:
        queryset.delete()

    def reports(self, request, queryset):
        queryset.update(name="changed")
        return HttpResponseRedirect("/admin/reports/?secret=1")

    def loud_progress(self, request, queryset):
        for done, author in enumerate(queryset, 1):
            author.name = "changed"
            author.save()
            request.mcp.progress(done, len(queryset))

    def step_by_step(self, request, queryset):
        rows = list(queryset)
        for done, author in enumerate(rows, 1):
            Author.objects.filter(pk=author.pk).update(name="changed")
            yield done, len(rows), f"{author}"
        self.message_user(request, "Stepped.")
        return {"steps": len(rows)}

    def complain(self, request, queryset):
        queryset.update(name="changed")
        messages.error(request, "No good.")

    def half_well(self, request, queryset):
        messages.error(request, "One failed.")
        messages.success(request, "One did not.")

    def to_first(self, request, queryset):
        return HttpResponseRedirect(f"/admin/testapp/author/{queryset.order_by('pk')[0].pk}/change/")

    @admin.action(permissions=["view"])
    def listed(self, request, queryset):
        return [author.name for author in queryset]

    listed.mcp_read_only = True  # type: ignore[attr-defined]

    def own_transactions(self, request, queryset):
        queryset.filter(name="A1").update(name="kept")
        raise ToolError("Stopped after the first.")

    own_transactions.mcp_atomic = False  # type: ignore[attr-defined]

    def change_page(self, request, queryset):
        if "apply" in request.POST:
            type(self).seen = request.POST
            return None
        queryset.update(name="changed before asking")
        transaction.on_commit(lambda: pytest.fail("a question was committed"))
        return self.page(request, "change_page", queryset[:1])


for harmless in {*AuthorAdmin.actions} - {"destroy", "destroy_plainly"}:
    getattr(AuthorAdmin, harmless).mcp_destructive = False

admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
own = MCPSite("own", admin_site=admin_site)
urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]


@pytest.fixture
def root():
    AuthorAdmin.seen = None
    return request_of(make_superuser(), own)


def authors(count=2):
    return [make_author(f"A{number}").pk for number in range(1, count + 1)]


def names():
    return list(Author.objects.order_by("pk").values_list("name", flat=True))


def run(request, action, pks, **more):
    return call(RUN, request, model="testapp.author", action=action, pks=pks, **more)


def refused(request, action, pks, **more):
    return refusal(RUN, request, model="testapp.author", action=action, pks=pks, **more)


# Running


def test_an_action_runs_at_once_and_its_messages_come_back(root):
    result = run(root, "shout", authors()[:1])
    assert names() == ["A1", "A2"]
    assert result == {
        "action": "shout",
        "model": "testapp.author",
        "done": True,
        "rows": 1,
        "messages": [{"level": "success", "text": "Shouted."}, {"level": "warning", "text": "<b> & more"}],
    }


def test_a_message_of_too_much_markup_undoes_nothing(root):
    result = run(root, "adorn", authors())
    assert result["messages"] == [{"level": "info", "text": UNREADABLE}]
    assert names() == ["adorned", "adorned"]


def test_keys_may_be_text_and_may_be_repeated(root):
    one, two = authors()
    assert run(root, "shout", [str(one), two, one])["rows"] == 2
    assert run(root, "shout", json.dumps([one]))["rows"] == 1


def test_H142_an_action_is_in_the_history_of_each_row_that_it_touched(root, client):
    pks, loud = [make_author(f"a{number}").pk for number in range(3)], make_author("LOUD")
    run(root, "shout", [*pks, loud.pk])
    entries = LogEntry.objects.order_by("pk")
    assert {(entry.action_flag, entry.object_id, entry.user) for entry in entries} == {
        (CHANGE, str(pk), root.user) for pk in pks
    }
    page = history_page(client, root.user, Author.objects.get(pk=pks[0]))
    assert "Changed Name: a0 → A0. Changed via MCP: Claude (client-1), shout." in page


def test_an_action_that_only_takes_the_view_permission_is_not_in_the_history(root):
    run(root, "whisper", authors())
    assert not LogEntry.objects.exists()


def test_G124_a_row_that_is_not_there_for_the_caller_stops_all(root):
    pks = authors()
    for extra in (10**9, "x", f"0{pks[0]}", f"{pks[0]} "):
        assert refused(root, "shout", [*pks, extra]) == RowFinder.NOT_FOUND
    assert not LogEntry.objects.exists()


def test_H137_one_row_that_the_caller_may_not_change_stops_all(root):
    pks = [*authors(), make_author("locked").pk]
    text = refused(root, "shout", pks)
    assert text.startswith(f"You may not run shout on 1 of these rows of testapp.author: “{pks[-1]}: locked”. ")
    assert run(root, "whisper", pks)["done"]


def test_H138_an_action_without_permissions_needs_the_permission_to_change():
    viewer = request_of(make_user("viewer", "testapp.view_author"), own)
    pks = authors()
    text = refused(viewer, "shout", pks)
    assert text == refused(viewer, "nothing", pks) == "testapp.author has no such action. Valid: whisper, listed."
    assert run(viewer, "whisper", pks)["done"]


def test_H143_a_failure_at_row_seven_undoes_all(root):
    pks = authors(10)
    before = names()
    with pytest.raises(RuntimeError):
        RUN.call(root, {"model": "testapp.author", "action": "fail_at_seven", "pks": pks})
    assert names() == before
    assert not LogEntry.objects.exists()


def test_H154_a_client_that_goes_undoes_all(root):
    pks = authors()

    def gone(method, params):
        root.mcp.cancelled = True

    root.mcp.notify, root.mcp.progress_token = gone, "t"
    with pytest.raises(Cancelled):
        RUN.call(root, {"model": "testapp.author", "action": "loud_progress", "pks": pks})
    assert names() == ["A1", "A2"]
    assert not LogEntry.objects.exists()


def test_progress_reaches_the_client(root):
    sent = []
    root.mcp.notify, root.mcp.progress_token = lambda method, params: sent.append(params["progress"]), "t"
    run(root, "loud_progress", authors(1))
    assert sent == [1]


def test_what_an_action_refuses_is_told_and_undone(root):
    pks = authors()
    assert refused(root, "refuse", pks) == "Refused, nothing was changed: “No more. Not today.”"
    assert refused(root, "forbid", pks) == "Permission denied. Nothing was changed."
    assert names() == ["A1", "A2"]
    assert not LogEntry.objects.exists()


def test_an_action_may_manage_its_own_transactions(root):
    assert refused(root, "own_transactions", authors()) == "Stopped after the first."
    assert names() == ["kept", "A2"]


def test_H144_a_redirect_to_another_page_is_told_without_its_address(root):
    result = run(root, "reports", authors())
    assert result["note"] == "The action redirected to another admin page, which was not opened."
    assert "/admin" not in json.dumps(result)
    assert names() == ["changed", "changed"]


def test_H144_a_page_that_asks_nothing_is_told_as_text(root):
    assert run(root, "report", authors())["text"] == "Report Two authors"


def test_H145_messages_and_session_are_gone_with_the_call(root):
    pks = authors()
    run(root, "shout", pks)
    assert run(root, "whisper", pks)["messages"] == []
    assert AuthorAdmin.seen.session["last"] == 2
    assert "session" not in vars(root)
    assert "_messages" not in vars(root)
    assert not Session.objects.exists()


def test_an_action_may_yield_its_progress(root):
    sent = []

    def notify(method, params):
        sent.append((params["progress"], params["total"], params["message"]))
        root.mcp.told_at = 0.0

    root.mcp.notify, root.mcp.progress_token = notify, "t"
    result = run(root, "step_by_step", authors())
    assert sent == [(1, 2, "A1"), (2, 2, "A2")]
    assert result["result"] == {"steps": 2}
    assert result["messages"] == [{"level": "info", "text": "Stepped."}]
    assert names() == ["changed", "changed"]


def test_H154_an_action_ends_at_the_yield_after_its_client_has_gone_and_is_undone(root):
    pks = authors()
    root.mcp.notify, root.mcp.progress_token = lambda method, params: setattr(root.mcp, "cancelled", True), "t"
    with pytest.raises(Cancelled):
        RUN.call(root, {"model": "testapp.author", "action": "step_by_step", "pks": pks})
    assert names() == ["A1", "A2"]
    assert not LogEntry.objects.exists()


def test_H154_an_action_that_never_looks_up_is_undone_when_its_time_is_over(root, monkeypatch):
    pks = authors()
    monkeypatch.setattr(AuthorAdmin, "message_user", lambda *args: setattr(root.mcp, "cancelled", True))
    with pytest.raises(Cancelled):
        RUN.call(root, {"model": "testapp.author", "action": "shout", "pks": pks})
    assert names() == ["A1", "A2"]


def test_messages_that_only_tell_of_errors_make_an_error_of_the_result(root, settings):
    settings.MESSAGE_TAGS = {messages.ERROR: "danger"}
    arguments = {"model": "testapp.author", "pks": authors()}
    result = result_of(RUN, root, **arguments, action="complain")
    assert result.is_error
    assert result.structured["messages"] == [{"level": "error", "text": "No good."}]
    assert "has been kept" in result.structured["note"]
    # As in the admin, where a message undoes nothing.
    assert names() == ["changed", "changed"]
    assert not result_of(RUN, root, **arguments, action="half_well").is_error


def test_a_redirect_to_a_row_is_the_row(root):
    one, two = authors()
    result = result_of(RUN, root, model="testapp.author", action="to_first", pks=[two, one])
    uri = f"django://testapp/author/{one}"
    assert result.structured["record"] == {"model": "testapp.author", "pk": one, "label": "A1", "uri": uri}
    assert result.to_wire()["content"][1] == {"type": "resource_link", "uri": uri, "name": "A1"}
    assert "/admin" not in json.dumps(result.structured)


# All rows of a query


def test_D77_rows_of_a_query_are_shown_before_an_action_touches_them(root):
    authors(25)
    arguments = {"model": "testapp.author", "action": "shout", "search": "A2"}
    question = call(RUN, root, **arguments)
    assert question["message"] == "Shout: Confirm it for all 7 rows that match."
    assert (question["rows"], question["objects"][:2]) == (7, ["A2", "A20"])
    assert names()[1] == "A2"
    Author.objects.update(name=Lower("name"))
    token = call(RUN, root, **arguments)["confirm_token"]
    assert call(RUN, root, **arguments, confirm_token=token)["rows"] == 7
    assert LogEntry.objects.count() == 7


def test_D74_rows_that_were_not_shown_are_not_touched_and_what_there_is_now_is_shown(root):
    authors()
    arguments = {"model": "testapp.author", "action": "destroy", "all": True}
    token = call(RUN, root, **arguments)["confirm_token"]
    make_author("A3")
    again = result_of(RUN, root, **arguments, confirm_token=token)
    assert again.is_error
    assert again.structured["errors"] == [Confirmation.CHANGED]
    assert again.structured["objects"] == ["A1", "A2", "A3"]
    assert names() == ["A1", "A2", "A3"]
    assert call(RUN, root, **arguments, confirm_token=again.structured["confirm_token"])["rows"] == 3
    assert names() == []


def test_a_token_for_these_very_rows_is_good_however_they_were_picked(root):
    pks = authors()
    token = call(RUN, root, model="testapp.author", action="destroy", all=True)["confirm_token"]
    assert run(root, "destroy", pks, confirm_token=token)["done"]


def test_H137_one_row_of_a_query_that_the_caller_may_not_change_stops_all(root):
    make_author("locked")
    authors()
    text = refusal(RUN, root, model="testapp.author", action="shout", all=True)
    assert re.search(r"on 1 of these rows of testapp\.author: “\d+: locked”", text)


def test_an_action_that_takes_the_view_permission_alone_runs_on_a_query_at_once(root):
    authors(3)
    assert run(root, "whisper", None, all=True)["rows"] == 3


@pytest.mark.parametrize(("count", "which"), [(1, "the one row that matches"), (2, "all 2 rows that match")])
def test_a_question_counts_its_rows(root, count, which):
    authors(count)
    assert run(root, "shout", None, all=True)["message"] == f"Shout: Confirm it for {which}."
    assert f"for {'this row' if count == 1 else 'these rows'}." in run(root, "destroy", authors(count))["message"]


def test_an_action_that_only_reads_runs_on_a_query_at_once(root):
    authors()
    arguments = {"model": "testapp.author", "action": "listed", "all": True}
    assert call(RUN, root, **arguments)["result"] == ["A1", "A2"]


def test_a_page_is_asked_after_the_rows_of_a_query_were_confirmed(root):
    authors()
    arguments = {"model": "testapp.author", "action": "rename", "all": True}
    token = call(RUN, root, **arguments)["confirm_token"]
    question = call(RUN, root, **arguments, confirm_token=token)
    assert question["form"]["required"] == ["name", "style"]
    assert "errors" not in question
    form = {"name": "Ada", "style": "plain"}
    assert call(RUN, root, **arguments, form=form, confirm_token=question["confirm_token"])["done"]
    assert names() == ["Ada", "Ada"]


def test_a_page_that_speaks_for_all_pages_of_the_list_speaks_for_the_picked_rows(root, monkeypatch):
    pks = authors()
    make_author("other")
    page = PAGE.replace("</form>", '<input type="hidden" name="select_across" value="1"></form>')
    original = AuthorAdmin.page
    monkeypatch.setattr(
        AuthorAdmin, "page", lambda self, *args, **more: original(self, *args, **{**more, "template": page})
    )
    token = run(root, "rename", pks)["confirm_token"]
    run(root, "rename", pks, form={"name": "Ada", "style": "plain"}, confirm_token=token)
    assert names() == ["Ada", "Ada", "other"]
    assert AuthorAdmin.seen.POST.getlist("select_across") == ["0"]


def test_only_the_rows_that_a_page_kept_are_in_the_history(root):
    pks = [*authors(), make_author("done").pk]
    token = run(root, "rename", pks)["confirm_token"]
    result = run(root, "rename", pks, confirm_token=token, form={"name": "Ada", "style": "plain"})
    assert result["rows"] == 2
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(pk) for pk in pks[:2]}


def test_a_page_may_list_as_many_rows_as_a_call_may_pick(root):
    Author.objects.bulk_create(Author(name=f"A{number}") for number in range(1000))
    pks = list(Author.objects.values_list("pk", flat=True))
    token = run(root, "clear", pks)["confirm_token"]
    assert run(root, "clear", pks, confirm_token=token)["rows"] == 1000
    assert set(names()) == {""}


# Confirming


def test_D77_a_destructive_action_shows_its_rows_and_waits(root):
    pks = authors(25)
    question = run(root, "destroy", pks)
    assert question["confirmation_required"] is True
    assert question["message"].startswith("Delete everything")
    assert (question["rows"], len(question["objects"]), question["objects"][:2]) == (25, 20, ["A1", "A2"])
    assert "form" not in question
    assert Author.objects.count() == 25
    assert run(root, "destroy", pks[::-1], confirm_token=question["confirm_token"])["done"] is True
    assert not Author.objects.exists()


def test_D74_a_confirmation_is_for_the_very_rows_and_the_very_action(root):
    one, two = authors()
    token = run(root, "destroy", [one])["confirm_token"]
    assert refused(root, "destroy", [one, two], confirm_token=token) == REFUSED
    assert refused(root, "destroy", [two], confirm_token=token) == REFUSED
    assert refused(root, "rename", [one], confirm_token=token) == REFUSED
    assert refused(request_of(make_superuser("other"), own), "destroy", [one], confirm_token=token) == REFUSED
    run(root, "destroy", [one], confirm_token=token)
    make_author("A3")
    assert refused(root, "destroy", [two], confirm_token=token) == REFUSED
    assert names() == ["A2", "A3"]


def test_H137_a_permission_lost_before_the_confirmation_is_missed():
    user = make_user("editor", "testapp.view_author", "testapp.change_author")
    pks = authors()
    token = run(request_of(user, own), "destroy", pks)["confirm_token"]
    user.user_permissions.remove(Permission.objects.get(codename="change_author"))
    again = request_of(User.objects.get(pk=user.pk), own)
    assert "no such action" in refused(again, "destroy", pks, confirm_token=token)
    assert Author.objects.count() == 2


# Pages


def test_a_page_becomes_a_question_and_changes_nothing(root):
    pks = authors()
    question = run(root, "rename", pks)
    assert question["confirmation_required"] is True
    assert question["message"] == (
        "Rename: Confirm it for these rows.\nIts page says: “Authors: Rename 2 authors: A1 A2”"
    )
    assert set(question["form"]["properties"]) == {"name", "style", "when"}
    assert question["form"]["required"] == ["name", "style"]
    assert question["objects"] == ["A1", "A2"]
    assert names() == ["A1", "A2"]
    assert not LogEntry.objects.exists()


def test_a_question_is_rolled_back_even_where_the_action_wrote_before_it(root, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        question = run(root, "change_page", authors())
    assert question["confirmation_required"]
    assert names() == ["A1", "A2"]


def test_the_answer_is_posted_as_a_browser_would(root):
    pks = authors()
    token = run(root, "rename", pks)["confirm_token"]
    result = run(root, "rename", pks, confirm_token=token, form={"name": "Ada", "style": "loud"})
    assert result["messages"] == [{"level": "info", "text": "Renamed 2."}]
    assert names() == ["ADA", "ADA"]
    assert LogEntry.objects.count() == 2
    post = AuthorAdmin.seen.POST
    assert {name: post.getlist(name) for name in post} == {
        "_selected_action": [str(pk) for pk in pks],
        "name": ["Ada"],
        "style": ["loud"],
        "when_0": [""],
        "when_1": [""],
        "secret": ["kept"],
        "action": ["rename"],
        "apply": ["Rename"],
    }


def test_the_page_may_narrow_the_rows(root):
    pks = [*authors(), make_author("done").pk]
    token = run(root, "rename", pks)["confirm_token"]
    run(root, "rename", pks, confirm_token=token, form={"name": "Ada", "style": "plain"})
    assert names() == ["Ada", "Ada", "done"]


def test_wrong_answers_are_told_with_a_new_token(root):
    pks = authors()
    token = run(root, "rename", pks)["confirm_token"]
    for form, error in (
        ({"name": "nobody", "style": "plain"}, ["name: Nobody is nobody."]),
        ({"style": "plain"}, ["name: This field is required."]),
        ({"name": "Ada", "style": "x"},
         ["style: Select a valid choice. x is not one of the available choices. (valid: plain, loud)"]),
        ({"name": "Ada", "style": "loud", "nam": 1},
         ["Unknown field 'nam'. Did you mean name? Valid: name, style, when."]),
        ({"name": ["a"], "style": "loud"}, ["name: Give one value, not a list or an object."]),
    ):  # fmt: skip
        arguments = {"model": "testapp.author", "action": "rename", "pks": pks, "form": form}
        result = result_of(RUN, root, **arguments, confirm_token=token)
        assert result.is_error
        assert result.structured["errors"] == error
        assert refused(root, "rename", pks, form=form, confirm_token=token) == REFUSED
        token = result.structured["confirm_token"]
    assert names() == ["A1", "A2"]
    assert not LogEntry.objects.exists()
    run(root, "rename", pks, form={"name": "Ada", "style": "loud"}, confirm_token=token)
    assert names() == ["ADA", "ADA"]


def test_a_form_that_is_filled_in_at_once_is_shown_and_then_posted(root):
    pks, form = authors(), {"name": "Ada", "style": "loud"}
    preview = run(root, "rename", pks, form=form)
    assert (preview["confirmation_required"], preview["filled_in"]) == (True, form)
    assert "Show this to the user" in preview["next"]
    assert names() == ["A1", "A2"]
    # The token is for exactly this form.
    other = {"name": "Bob", "style": "loud"}
    assert refused(root, "rename", pks, form=other, confirm_token=preview["confirm_token"]) == REFUSED
    assert run(root, "rename", pks, form=form, confirm_token=preview["confirm_token"])["done"]
    assert names() == ["ADA", "ADA"]


def test_a_form_that_is_filled_in_wrongly_at_once_is_asked_for(root):
    arguments = {"model": "testapp.author", "action": "rename", "pks": authors(), "form": {"name": "nobody"}}
    result = result_of(RUN, root, **arguments)
    assert result.structured["errors"] == ["style: This field is required."]
    assert names() == ["A1", "A2"]


def test_a_form_for_a_confirmed_action_is_shown_with_its_rows(root):
    pks = authors()
    assert refused(root, "destroy_plainly", pks, form={"name": "Ada"}) == (
        "destroy_plainly has no form. Nothing was changed. Leave form out."
    )
    preview = run(root, "destroy", pks, form={"name": "Ada"})
    assert (preview["filled_in"], preview["objects"]) == ({"name": "Ada"}, ["A1", "A2"])
    assert names() == ["A1", "A2"]


def test_a_page_that_is_no_longer_shown_is_not_answered(root):
    pks = authors()
    token = run(root, "rename", pks)["confirm_token"]
    Author.objects.update(name="done")
    arguments = {"model": "testapp.author", "action": "rename", "pks": pks, "form": {"name": "Ada", "style": "loud"}}
    result = result_of(RUN, root, **arguments, confirm_token=token)
    assert result.structured["messages"] == [{"level": "error", "text": "Nobody to rename."}]
    assert result.is_error
    assert names() == ["done", "done"]


def test_a_page_without_a_form_needs_its_token_alone(root):
    pks = authors()
    question = run(root, "clear", pks)
    assert "form" not in question
    assert names() == ["A1", "A2"]
    assert run(root, "clear", pks, confirm_token=question["confirm_token"])["done"]
    assert names() == ["", ""]


def test_controls_and_buttons_of_plain_html_are_asked_too(root):
    pks = authors(1)
    question = run(root, "ask_raw", pks)
    properties = question["form"]["properties"]
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert properties["_button"]["enum"] == ["decision=approve", "decision=reject"]
    assert "Approve it" in properties["_button"]["description"]
    assert question["form"]["required"] == ["reason", "_button"]
    arguments = {"model": "testapp.author", "action": "ask_raw", "pks": pks, "form": {"reason": "late"}}
    result = result_of(RUN, root, **arguments, confirm_token=question["confirm_token"])
    assert result.structured["errors"] == ["_button: choose one of decision=approve, decision=reject."]
    form = {"reason": "late", "_button": "decision=reject"}
    run(root, "ask_raw", pks, form=form, confirm_token=result.structured["confirm_token"])
    assert names() == ["reject late blue"]


def test_a_page_that_was_rendered_without_its_form_says_what_is_wrong(root):
    pks = authors()
    token = run(root, "rename_plain", pks)["confirm_token"]
    arguments = {"model": "testapp.author", "action": "rename_plain", "pks": pks}
    result = result_of(RUN, root, **arguments, form={"name": "nobody", "style": "plain"}, confirm_token=token)
    assert result.structured["errors"] == ["Nobody is nobody."]
    token = result.structured["confirm_token"]
    result = result_of(RUN, root, **arguments, form={"name": "everybody", "style": "plain"}, confirm_token=token)
    [error] = result.structured["errors"]
    assert error == f"{('Nobody is everybody. ' * 200)[:1000]}…"
    assert names() == ["A1", "A2"]
    token = result.structured["confirm_token"]
    assert run(root, "rename_plain", pks, form={"name": "Ada", "style": "plain"}, confirm_token=token)["done"]
    assert names() == ["Ada", "Ada"]


def test_an_action_with_several_pages_is_refused_and_undone(root):
    pks = authors()
    token = run(root, "wizard", pks)["confirm_token"]
    assert "more than one page" in refused(root, "wizard", pks, confirm_token=token)
    assert names() == ["A1", "A2"]


def test_a_page_that_posts_elsewhere_is_refused_and_undone(root):
    assert "a page of its own" in refused(root, "elsewhere", authors())
    assert names() == ["A1", "A2"]


def test_H144_no_markup_token_or_address_of_a_page_reaches_the_client(root):
    pks = authors()
    wire = result_of(RUN, root, model="testapp.author", action="rename", pks=pks).to_wire()
    text = wire["content"][0]["text"]
    assert not any(word in text.lower() for word in ("csrf", "<", "/admin", "cookie", "logout"))
    assert len(wire["content"]) == 1


def test_rows_of_another_model_are_not_picked_by_their_key(root):
    Tag.objects.create(name="x")
    assert not Book.objects.exists()
    assert refused(root, "shout", [Tag.objects.get().pk + 10**6]) == RowFinder.NOT_FOUND


def test_a_selection_on_the_page_beyond_the_picked_rows_is_not_followed(root, monkeypatch):
    pks = authors()
    other = make_author("other").pk
    page = PAGE.replace("</form>", f'<input type="hidden" name="{ACTION_CHECKBOX_NAME}" value="{other}"></form>')
    original = AuthorAdmin.page
    monkeypatch.setattr(
        AuthorAdmin, "page", lambda self, *args, **more: original(self, *args, **{**more, "template": page})
    )
    token = run(root, "rename", pks)["confirm_token"]
    run(root, "rename", pks, form={"name": "Ada", "style": "plain"}, confirm_token=token)
    assert names() == ["Ada", "Ada", "other"]


def test_a_control_is_not_taken_for_part_of_a_field_by_its_name_alone(root, monkeypatch):
    pks = authors(1)
    page = PAGE.replace("</form>", '<input name="name_of_pet" value="Rex"></form>')
    original = AuthorAdmin.page
    monkeypatch.setattr(
        AuthorAdmin, "page", lambda self, *args, **more: original(self, *args, **{**more, "template": page})
    )
    question = run(root, "rename", pks)
    assert "name_of_pet" in question["form"]["properties"]
    form = {"name": "Ada", "style": "plain", "name_of_pet": "Tom", "when": "2030-01-02T03:04"}
    run(root, "rename", pks, form=form, confirm_token=question["confirm_token"])
    post = AuthorAdmin.seen.POST
    assert (post.getlist("name_of_pet"), post.getlist("when_0"), post.getlist("when_1")) == (
        ["Tom"],
        ["2030-01-02"],
        ["03:04:00"],
    )


# Asking the client's user


class Rounds:
    """The rounds of one call of an action, by a client that can ask its user."""

    def __init__(self, user, action, pks, **options):
        self.user, self.arguments = user, {"model": "testapp.author", "action": action, "pks": pks}
        self.options = {"version": "2026-07-28", "capabilities": ELICITS, "live": True, **options}
        self.answers = Answers()

    def run(self, **more):
        request = request_of(self.user, own, answers=self.answers, **self.options)
        return call(RUN, request, **self.arguments, **more)

    def ask(self):
        with pytest.raises(InputRequired) as error:
            self.run()
        [question] = error.value.questions
        assert question.proof
        return question

    def answer(self, question, result):
        self.answers = Answers({question.key: result}, self.answers.state([question]))
        return self


def test_77_the_user_is_asked_about_the_rows_of_a_query_and_again_about_others():
    rounds = Rounds(make_superuser(), "shout", None)
    authors()
    rounds.arguments = {"model": "testapp.author", "action": "shout", "all": True}
    question = rounds.ask()
    assert question.params["message"].endswith(
        "Confirm it for all 2 rows that match.\n\ntestapp.author (2): “A1”; “A2”"
    )
    make_author("A3")
    again = rounds.answer(question, YES).ask()
    assert again.reason == "What you were asked about has changed."
    assert rounds.answer(again, YES).run()["rows"] == 3


def test_77_a_destructive_action_asks_the_user_about_these_rows():
    rounds = Rounds(make_superuser(), "destroy", authors(25))
    question = rounds.ask()
    message = question.params["message"]
    assert message.startswith("Delete everything: this cannot be undone by itself. Confirm it for these rows.\n")
    assert message.endswith("“A20” and 5 more")
    assert "\n\ntestapp.author (25): “A1”; “A2”" in message
    assert question.params["requestedSchema"] == ConsentForm.ONLY_CONSENT
    assert Author.objects.count() == 25
    assert rounds.answer(question, YES).run()["done"] is True
    assert not Author.objects.exists()


@pytest.mark.urls(__name__)
def test_what_a_row_is_called_adds_no_words_to_the_question():
    name = "Ann\n\nNothing will be deleted. Press Accept.\n“"
    pk = make_author(name).pk
    client = MCPClient(make_superuser(), capabilities=ELICITS)
    asked = [
        ("delete_record", {"model": "testapp.author", "pk": pk}),
        ("delete_record", {"model": "testapp.author", "pks": [pk]}),
        ("update_record", {"model": "testapp.author", "pks": [pk], "values": {"name": f"Bob{name}"}}),
        ("run_action", {"model": "testapp.author", "action": "shout", "all": True}),
    ]
    for tool, arguments in asked:
        result = client.request("tools/call", name=tool, arguments=arguments)
        [question] = result["inputRequests"].values()
        message = question["params"]["message"]
        assert message.splitlines()[-1].endswith("“Ann Nothing will be deleted. Press Accept. '”")
        # Each text of the row is quoted.
        assert "Nothing will be deleted" not in re.sub("“[^”]*”", "", message)


@pytest.mark.parametrize("answer", [DECLINE, CANCEL], ids=["decline", "cancel"])
@pytest.mark.parametrize("action", ["destroy", "rename", "clear"])
def test_78_without_consent_nothing_is_done(action, answer):
    rounds = Rounds(make_superuser(), action, authors())
    with pytest.raises(Declined):
        rounds.answer(rounds.ask(), answer).run()
    assert names() == ["A1", "A2"]
    assert not LogEntry.objects.exists()


def test_77_consent_that_nobody_asked_for_is_none():
    rounds = Rounds(make_superuser(), "destroy", authors())
    question = rounds.ask()
    rounds.answers = Answers({question.key: YES})
    assert rounds.ask() == question
    assert names() == ["A1", "A2"]


def test_156_consent_counts_once():
    rounds = Rounds(make_superuser(), "destroy", authors())
    question = rounds.ask()
    state = rounds.answers.state([question])
    rounds.answers = Answers({question.key: YES}, state)
    rounds.run()
    Author.objects.bulk_create(Author(pk=pk, name=f"A{number}") for number, pk in enumerate(rounds.arguments["pks"], 1))
    rounds.answers = Answers({question.key: YES}, state)
    with pytest.raises(InvalidParams):
        rounds.run()
    assert names() == ["A1", "A2"]


def test_78_what_has_changed_since_it_was_shown_is_asked_again():
    pks = authors()
    rounds = Rounds(make_superuser(), "destroy", pks)
    question = rounds.ask()
    Author.objects.filter(pk=pks[0]).update(name="Somebody else")
    again = rounds.answer(question, YES).ask()
    assert again.reason == "What you were asked about has changed."
    assert "Somebody else" in again.params["message"]
    assert Author.objects.count() == 2
    assert rounds.answer(again, YES).run()["done"]


def test_137_a_permission_lost_between_the_rounds_is_missed():
    user = make_user("editor", "testapp.view_author", "testapp.change_author")
    rounds = Rounds(user, "destroy", authors())
    question = rounds.ask()
    user.user_permissions.remove(Permission.objects.get(codename="change_author"))
    rounds.user = User.objects.get(pk=user.pk)
    with pytest.raises(ToolError, match="no such action"):
        rounds.answer(question, YES).run()
    assert Author.objects.count() == 2


def test_a_page_becomes_a_question_with_its_fields():
    rounds = Rounds(make_superuser(), "rename", authors())
    question = rounds.ask()
    assert question.params["message"].startswith(
        "Rename: Confirm it for these rows.\nIts page says: “Authors: Rename 2 authors: A1 A2”\n\n"
    )
    schema = question.params["requestedSchema"]
    assert schema["properties"] == {
        "name": {"type": "string", "maxLength": 20, "title": "Name", "description": "The new name."},
        "style": {"type": "string", "title": "Style", "oneOf": [{"const": "plain", "title": "As it is"},
                                                                {"const": "loud", "title": "In capitals"}]},
        "when": {"type": "string", "format": "date-time", "title": "When"},
    }  # fmt: skip
    assert schema["required"] == ["name", "style"]
    assert not LogEntry.objects.exists()
    result = rounds.answer(question, accept(name="Ada", style="loud", when="2030-01-02T03:04:00Z")).run()
    assert result["messages"] == [{"level": "info", "text": "Renamed 2."}]
    assert names() == ["ADA", "ADA"]
    assert LogEntry.objects.count() == 2
    assert AuthorAdmin.seen.POST.getlist("when_0") == ["2030-01-02"]


def test_78_what_the_page_refuses_is_asked_again_with_its_words():
    rounds = Rounds(make_superuser(), "rename", authors())
    question = rounds.ask()
    for content, reason in (
        ({"name": "nobody", "style": "plain"}, "name: Nobody is nobody."),
        ({"style": "plain"}, "Name: This field is required."),
        ({"name": "Ada", "style": "x"}, "style: Select a valid choice."),
        ({"name": ["a"], "style": "loud"}, "name: Give one value"),
    ):
        again = rounds.answer(question, accept(**content)).ask()
        assert again.reason.startswith(reason)
        assert again.digest == question.digest
    assert names() == ["A1", "A2"]
    rounds.answer(question, accept(name="Ada", style="plain")).run()
    assert names() == ["Ada", "Ada"]


def test_a_page_without_a_form_asks_for_consent():
    rounds = Rounds(make_superuser(), "clear", authors())
    question = rounds.ask()
    assert question.params["requestedSchema"] == ConsentForm.ONLY_CONSENT
    assert rounds.answer(question, YES).run()["done"]
    assert names() == ["", ""]


def test_controls_and_buttons_of_plain_html_are_fields_of_the_question():
    rounds = Rounds(make_superuser(), "ask_raw", authors(1))
    question = rounds.ask()
    properties = question.params["requestedSchema"]["properties"]
    assert properties["colour"] == {"type": "string", "enum": ["red", "blue"], "title": "Colour"}
    assert properties["_button"]["oneOf"] == [
        {"const": "decision=approve", "title": "Approve it"},
        {"const": "decision=reject", "title": "No"},
    ]
    assert rounds.answer(question, accept(reason="late")).ask().reason == "Go on with: This field is required."
    rounds.answer(question, accept(reason="late", _button="decision=reject")).run()
    assert names() == ["reject late blue"]


def test_an_action_with_several_pages_is_refused_and_undone_after_its_question():
    rounds = Rounds(make_superuser(), "wizard", authors())
    with pytest.raises(ToolError, match="more than one page"):
        rounds.answer(rounds.ask(), YES).run()
    assert names() == ["A1", "A2"]


def test_a_page_that_no_client_can_show_is_asked_by_a_token(monkeypatch):
    monkeypatch.setitem(RenameForm.base_fields, "pin", forms.CharField(widget=forms.PasswordInput))
    rounds = Rounds(make_superuser(), "rename", authors())
    question = rounds.run()
    assert question["confirmation_required"] is True
    assert "pin" in question["form"]["properties"]
    form = {"name": "Ada", "style": "plain", "pin": "1"}
    assert rounds.run(form=form, confirm_token=question["confirm_token"])["done"]


def test_a_token_that_needed_no_user_confirms_nothing_where_the_client_can_ask(root):
    pks = authors()
    token = run(root, "destroy", pks)["confirm_token"]
    with pytest.raises(ToolError) as error:
        Rounds(root.user, "destroy", pks).run(confirm_token=token)
    assert error.value.message == REFUSED
    assert names() == ["A1", "A2"]
    # It is still good for the client that got it.
    assert run(root, "destroy", pks, confirm_token=token)["done"]


def test_77_the_user_is_not_asked_by_a_call_that_cannot_wait():
    assert Rounds(make_superuser(), "destroy", authors(), live=False).run()["confirmation_required"]
