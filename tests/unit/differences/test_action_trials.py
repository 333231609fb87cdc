"""Actions and function tools that can be tried: they run, show what they would do, and leave nothing."""

from typing import Annotated, Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import send_mail
from django.db import connection, transaction
from django.http import HttpResponse
from django.template import engines
from django.urls import include, path

from mcp_django import Ask, MCPSite, ModelExposure, ToolError, action, tool
from mcp_django.differences.footprints import StoredDifference
from mcp_django.differences.kept_changes import KeptChange
from mcp_django.differences.restoring import Restoration
from mcp_django.models import Change
from mcp_django.scopes import Scope
from mcp_django.signals import call_finished
from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.action_tools import ActionTool, RunAction
from mcp_django.tools.function_tools import FunctionTool
from tests.confirming import page_of, say, signed_in
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.question_rounds import ELICITS, YES, again, calling, only, send
from tests.testapp.models import AudioBook, Author, Book, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls(__name__),
    # Django 6.1 has new ways to send mail, and warns of the others.
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning"),
]

RUN = RunAction()
NOT_TRIED = "Not tried: the author of this action does not say that it can be."
PAGE = """<form method="post">{{ form.as_p }}<input type="hidden" name="action" value="rename">
{% for row in rows %}<input type="hidden" name="_selected_action" value="{{ row.pk }}">{% endfor %}
<input type="submit" name="apply"></form>"""


class NameForm(forms.Form):
    name = forms.CharField()


class AuthorExposure(ModelExposure):
    fields = ["name", "born"]
    actions = [
        *["shout", "quietly", "reprice", "remove", "notify", "refuse", "unsaid", "own_transactions"],
        *["commits", "asks", "looks", "own_argument", "in_steps"],
    ]

    @action(dry_run=True)
    def shout(self, request, queryset, *, mark: str = "!"):
        for author in queryset:
            author.name = author.name.upper() + mark
            author.secret_token = "made"
            author.save()
        return f"{len(queryset)} shouted"

    @action(dry_run=True, destructive=False)
    def quietly(self, request, queryset):
        queryset.update(name="quiet")

    @action(dry_run=True)
    def reprice(self, request, queryset):
        Book.objects.filter(author__in=queryset).update(price=1)

    @action(dry_run=True, permissions=["delete"])
    def remove(self, request, queryset):
        queryset.delete()

    @action(dry_run=True, destructive=False)
    def notify(self, request, queryset):
        send_mail("Hello", "text", None, ["ada@example.com"])
        transaction.on_commit(after)

    @action(dry_run=True)
    def refuse(self, request, queryset):
        queryset.update(name="gone")
        raise ToolError("Not on a Sunday.")

    @action()
    def unsaid(self, request, queryset):
        queryset.update(name="unsaid")

    @action(dry_run=True)
    def commits(self, request, queryset):
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")

    @action(dry_run=True)
    def asks(self, request, queryset, *, name: Annotated[str, Ask("Which name?")]):
        queryset.update(name=name)

    @action(dry_run=True, read_only=True)
    def looks(self, request, queryset): ...

    @action(destructive=False)
    def own_argument(self, request, queryset, *, dry_run: bool):
        queryset.update(name=str(dry_run))

    @action(dry_run=True, destructive=False)
    def in_steps(self, request, queryset):
        yield 1, 2
        queryset.update(name="stepped")
        yield 2, 2

    @action(dry_run=True, atomic=False)
    def own_transactions(self, request, queryset):
        queryset.update(name="own")


def after():
    raise AssertionError("this runs after the commit only")


class AudioExposure(ModelExposure):
    fields = ["title", "narrator"]
    actions = ["read_again"]

    @action(dry_run=True, destructive=False)
    def read_again(self, request, queryset):
        queryset.update(title="Again", narrator="Zoe")


class TagAdmin(admin.ModelAdmin):
    actions = ["rename", "count", "whole"]

    def rename(self, request, queryset):
        form = NameForm(request.POST if "apply" in request.POST else None)
        if form.is_valid():
            queryset.update(name=form.cleaned_data["name"])
            self.message_user(request, "Renamed.")
            return None
        html = engines["django"].from_string(PAGE).render({"form": form, "rows": queryset}, request)
        return HttpResponse(html)

    rename.mcp_dry_run = True

    def count(self, request, queryset) -> None:
        self.message_user(request, f"{queryset.count()} tags")

    count.mcp_dry_run = True
    count.mcp_destructive = False

    def whole(self, request, queryset) -> HttpResponse:
        queryset.update(name="whole")
        return HttpResponse("a" * 10_000, content_type="text/csv")

    whole.mcp_dry_run = True


admin_site = admin.AdminSite(name="admin")
admin_site.register(Tag, TagAdmin)
own = MCPSite("tried", admin_site=admin_site)
own.register(Author, AuthorExposure)
own.register(Book, ModelExposure, fields=["title", "price"])
own.register(AudioBook, AudioExposure)


@tool(site=own, dry_run=True)
def merge(request, name: str) -> dict[str, int]:
    """Merge authors."""
    Author.objects.filter(name=name).update(born="2000-01-01")
    Tag.objects.create(name=name)
    send_mail("Hello", "text", None, ["ada@example.com"])
    transaction.on_commit(after)
    return {"tags": Tag.objects.count()}


@tool(site=own, destructive=False)
def plain(request, name: str) -> str:
    """Make a tag."""
    Tag.objects.create(name=name)
    return "made"


@tool(site=own, name="again", dry_run=True, destructive=False)
def make_tag(request, name: str) -> str:
    """Make a tag."""
    Tag.objects.create(name=name)
    return "made"


@tool(site=own, dry_run=True, destructive=False)
def tell(request, name: Annotated[str, Ask("Which name?")]) -> str:
    """Make a tag with a name that is asked for."""
    Tag.objects.create(name=name)
    return f"{name} made"


urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]


@pytest.fixture
def root():
    return request_of(make_superuser(), own)


@pytest.fixture
def ended():
    """The outcomes of the calls of tools that have ended, with the number of written rows of each."""
    found = []

    def note(sender, record, **kwargs):
        if record.method == "tools/call":
            found.append((record.outcome, record.rows_changed))

    call_finished.connect(note)
    yield found
    call_finished.disconnect(note)


def everything():
    return [list(model._base_manager.order_by("pk").values()) for model in (Author, Book, Tag, LogEntry, Change)]


def run(name: str, *pks: Any, **arguments: Any) -> dict[str, Any]:
    model = arguments.pop("model", "testapp.author")
    return {"model": model, "action": name, "pks": [str(pk) for pk in pks], **arguments}


def tried(request, *given, **arguments):
    before = everything()
    shown = call(RUN, request, dry_run=True, **run(*given, **arguments))
    assert everything() == before
    return shown


# Trying


def test_a_dry_run_of_an_action_shows_the_rows_before_and_after(root):
    ada, bob = make_author("Ada"), make_author("Bob")
    shown = tried(root, "shout", ada.pk, bob.pk, arguments={"mark": "?"})
    assert shown.pop("version").startswith("tried:")
    assert shown == {
        "dry_run": True,
        "action": "shout",
        "model": "testapp.author",
        "rows": 2,
        "summary": "2 authors: name",
        "counts": {"testapp.author": {"changed": 2}},
        "changed": {
            "testapp.author": [
                {"pk": ada.pk, "label": "Ada", "columns": {"name": ["Ada", "ADA?"]}},
                {"pk": bob.pk, "label": "Bob", "columns": {"name": ["Bob", "BOB?"]}},
            ]
        },
        "result": "2 shouted",
        "next": "The call itself will ask for confirmation.",
    }
    assert root.mcp.record.outcome == "tried"
    assert root.mcp.record.rows_changed == 2


def test_what_an_action_writes_elsewhere_is_named_and_is_not_taken_back(root):
    book = make_book("Dune")
    shown = tried(root, "reprice", book.author_id)
    assert shown["summary"] == "no difference"
    assert shown["also_written"] == ["testapp_book"]
    assert shown["cannot_undo"] == "What it did was not recorded row by row."
    # It counts all the same, as the call would.
    assert root.mcp.record.rows_changed == 1


def test_rows_that_an_action_deletes_are_shown_as_deleted(root):
    author = make_author("Ada")
    shown = tried(root, "remove", author.pk)
    assert shown["summary"] == "author Ada deleted"
    assert shown["deleted"] == {"testapp.author": [[author.pk, "Ada"]]}


def test_mail_and_callbacks_of_an_action_are_told_and_do_not_happen(root, mailoutbox):
    shown = tried(root, "notify", make_author("Ada").pk)
    assert shown["mails"] == ["a mail to 1"]
    assert shown["on_commit"] == [f"{__name__}.after"]
    assert "next" not in shown
    assert not mailoutbox


def test_what_an_action_refuses_is_refused_when_it_is_tried(root):
    author = make_author("Ada")
    before = everything()
    assert refusal(RUN, root, dry_run=True, **run("refuse", author.pk)) == "Not on a Sunday."
    assert everything() == before


def test_an_action_of_the_admin_is_tried_with_the_form_of_its_page(root):
    tag = Tag.objects.create(name="old")
    asked = refusal(RUN, root, dry_run=True, **run("rename", tag.pk, model="testapp.tag"))
    assert asked == "This action asks for name: give form with it. Nothing was changed."
    shown = tried(root, "rename", tag.pk, model="testapp.tag", form={"name": "new"})
    assert shown["summary"] == "tag old: name old -> new"
    assert shown["messages"] == [{"level": "info", "text": "Renamed."}]
    wrong = refusal(RUN, root, dry_run=True, **run("rename", tag.pk, model="testapp.tag", form={"other": "x"}))
    assert "Unknown field 'other'" in wrong


def test_messages_of_a_tried_action_are_told(root):
    tag = Tag.objects.create(name="old")
    shown = tried(root, "count", tag.pk, model="testapp.tag")
    assert shown["messages"] == [{"level": "info", "text": "1 tags"}]
    assert shown["summary"] == "no difference"


def test_a_file_of_a_tried_action_is_not_handed_out(root):
    tag = Tag.objects.create(name="old")
    shown = tried(root, "whole", tag.pk, model="testapp.tag")
    assert "file" not in shown
    assert shown["summary"] == "tag old: name old -> whole"


def test_an_action_whose_author_says_nothing_is_not_tried(root):
    author = make_author("Ada")
    for name in ("unsaid", "own_transactions", "looks"):
        assert refusal(RUN, root, dry_run=True, **run(name, author.pk)).startswith(NOT_TRIED)
    author.refresh_from_db()
    assert author.name == "Ada"


def test_an_argument_of_the_action_itself_is_its_own(root):
    author = make_author("Ada")
    own_tool = ActionTool(own.exposures[Author].get_actions(root)["own_argument"])
    assert call(own_tool, root, pks=[author.pk], dry_run=True)["done"] is True
    author.refresh_from_db()
    assert author.name == "True"


@pytest.mark.parametrize("kind", ["action", "tool"])
def test_what_can_be_tried_has_no_argument_of_this_name(root, kind):
    def both(self, request, queryset, *, dry_run: bool): ...

    def function(request, dry_run: bool): ...

    if kind == "tool":
        with pytest.raises(ImproperlyConfigured, match="cannot have a parameter named dry_run"):
            FunctionTool(function, dry_run=True)
        return
    site = MCPSite()
    members = {"fields": ["name"], "actions": ["both"], "both": action(dry_run=True)(both)}
    site.register(Tag, type("TagExposure", (ModelExposure,), members))
    with pytest.raises(ImproperlyConfigured, match="cannot have a parameter named dry_run"):
        ActionTool(site.exposures[Tag].get_actions(root)["both"])


def test_an_async_function_cannot_be_declared_to_be_tried():
    async def later(request): ...

    with pytest.raises(ImproperlyConfigured, match="later: an async function cannot be tried"):
        tool(later, site=MCPSite(), dry_run=True)


def test_a_question_of_an_action_is_answered_by_the_form_when_it_is_tried(root):
    author = make_author("Ada")
    text = refusal(RUN, root, dry_run=True, **run("asks", author.pk))
    assert text == "This action asks for name: give form with it. Nothing was changed."
    shown = tried(root, "asks", author.pk, form={"name": "Eve"})
    assert shown["summary"] == "author Ada: name Ada -> Eve"
    # The question of the call itself is not answered by that.
    assert "confirm_token" in call(RUN, root, **run("asks", author.pk))


def test_what_is_only_tried_tells_no_progress(root):
    told = []
    request = request_of(root.user, own, notify=told.append)
    shown = tried(request, "in_steps", make_author("Ada").pk)
    assert shown["summary"] == "author Ada: name Ada -> stepped"
    assert not told


def test_a_row_in_two_tables_is_one_row(root):
    audio = make_audio()
    shown = tried(root, "read_again", audio.pk, model="testapp.audiobook")
    assert shown["counts"] == {"testapp.audiobook": {"changed": 1}}
    [row] = shown["changed"]["testapp.audiobook"]
    assert row["columns"] == {"title": ["Dune", "Again"], "narrator": ["Ann", "Zoe"]}
    kept = change_of(call(RUN, root, **run("read_again", audio.pk, model="testapp.audiobook")))
    assert kept.change.cannot_undo == ""
    take_back(kept)
    audio.refresh_from_db()
    assert (audio.title, audio.narrator) == ("Dune", "Ann")


def make_audio() -> AudioBook:
    return AudioBook.objects.create(title="Dune", narrator="Ann", author=make_author(), isbn="1", price=1)


def test_only_actions_that_can_be_tried_have_the_argument(root):
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in MCPClient(root.user).tools()}
    having = {name for name, properties in tools.items() if "dry_run" in properties}
    assert {"shout_testapp_author", "rename_testapp_tag", "merge"} <= having
    assert not {"unsaid_testapp_author", "own_transactions_testapp_author", "plain", "run_action"} & having
    client = MCPClient(root.user)
    text = client.call("describe_model", models=["testapp.author"]).text
    assert "shout(mark) with dry_run" in text
    assert "unsaid with dry_run" not in text
    described = client.call("describe_model", models=["testapp.author"], detail=True).structured
    [found] = described.get("models", [described])
    assert {entry["name"] for entry in found["actions"] if "dry_run" in entry} == {
        *["shout", "quietly", "reprice", "remove", "notify", "refuse", "commits", "asks", "in_steps"]
    }


def test_rows_and_columns_that_are_hidden_stay_hidden_when_an_action_is_tried(root):
    book = make_book("Dune")
    shown = tried(root, "shout", book.author_id)
    assert "secret_token" not in str(shown)
    missing = refusal(RUN, root, dry_run=True, **run("shout", 10_000))
    assert missing == refusal(RUN, root, **run("shout", 10_000))


def test_who_may_not_run_an_action_may_not_try_it(root):
    author = make_author("Ada")
    viewer = request_of(make_user("viewer", "testapp.view_author", "testapp.change_book"), own)
    text = refusal(RUN, viewer, dry_run=True, **run("shout", author.pk))
    assert text == refusal(RUN, viewer, dry_run=True, **run("nothing", author.pk)).replace("'nothing'", "'shout'")
    with pytest.raises(MCPError):
        MCPClient(root.user, scopes=[Scope.READ]).call("shout_testapp_author", pks=[author.pk], dry_run=True)


@pytest.mark.parametrize(
    ("name", "given"),
    [("quietly_testapp_author", {"pks": ["1"]}), ("again", {"name": "x"})],
    ids=["action", "function"],
)
def test_a_dry_run_is_no_result_of_an_idempotency_key_and_is_logged_as_tried(root, ended, name, given):
    client = MCPClient(root.user)
    make_author("Ada", pk=1)
    for _ in range(2):
        assert client.call(name, dry_run=True, idempotency_key="k", **given).structured["dry_run"] is True
    assert not client.call(name, idempotency_key="k", **given).is_error
    assert (Author.objects.get().name == "quiet") is (name != "again")
    assert Tag.objects.exists() is (name == "again")
    assert ended == [("tried", 1), ("tried", 1), ("ok", int(name != "again"))]


def test_a_dry_run_leaves_a_confirmation_good(root):
    author = make_author("Ada")
    token = call(RUN, root, **run("shout", author.pk))["confirm_token"]
    tried(root, "shout", author.pk, confirm_token=token)
    assert call(RUN, root, **run("shout", author.pk, confirm_token=token))["done"] is True


# Asking


def test_the_preview_of_an_action_shows_its_difference(root):
    author = make_author("Ada")
    before = everything()
    preview = call(RUN, root, **run("shout", author.pk))
    assert everything() == before
    assert preview["difference"]["summary"] == "author Ada: name Ada -> ADA!"
    assert preview["message"].endswith("It can be taken back for 30 days.")
    assert root.mcp.record.outcome == "asked"
    done = call(RUN, root, **run("shout", author.pk, confirm_token=preview["confirm_token"]))
    assert done["result"] == "1 shouted"


def test_a_confirmation_holds_an_action_to_the_rows_that_were_shown(root):
    author = make_author("Ada")
    token = call(RUN, root, **run("shout", author.pk))["confirm_token"]
    Author.objects.filter(pk=author.pk).update(secret_token="other")
    assert "confirm_token is not valid" in refusal(RUN, root, **run("shout", author.pk, confirm_token=token))


def test_what_an_action_refuses_is_refused_in_place_of_a_question(root):
    assert refusal(RUN, root, **run("refuse", make_author("Ada").pk)) == "Not on a Sunday."


def test_an_action_that_asks_by_a_page_shows_its_difference_once_it_is_filled_in(root):
    tag = Tag.objects.create(name="old")
    asked = call(RUN, root, **run("rename", tag.pk, model="testapp.tag"))
    assert "difference" not in asked
    filled = call(RUN, root, **run("rename", tag.pk, model="testapp.tag", form={"name": "new"}))
    assert filled["difference"]["summary"] == "tag old: name old -> new"
    given = {"form": {"name": "new"}, "confirm_token": filled["confirm_token"]}
    assert call(RUN, root, **run("rename", tag.pk, model="testapp.tag", **given))["done"] is True
    tag.refresh_from_db()
    assert tag.name == "new"


def test_the_question_to_a_user_shows_the_difference(root):
    author = make_author("Ada")
    client = MCPClient(root.user, capabilities=ELICITS)
    params = calling("shout_testapp_author", pks=[author.pk])
    asked = send(client, params)
    assert "author “Ada”: name “Ada” -> “ADA!”" in only(asked)[1]["message"]
    done = again(client, params, asked, YES)
    assert done["structuredContent"]["done"] is True
    author.refresh_from_db()
    assert author.name == "ADA!"


def test_rows_that_a_query_picks_are_shown_with_the_difference(root):
    make_author("Ada")
    make_author("Bob")
    given = {"model": "testapp.author", "action": "quietly", "filters": {"name__startswith": "A"}}
    preview = call(RUN, root, **given)
    assert preview["difference"]["summary"] == "author Ada: name Ada -> quiet"
    assert call(RUN, root, **given, confirm_token=preview["confirm_token"])["done"] is True
    assert set(Author.objects.values_list("name", flat=True)) == {"quiet", "Bob"}


def test_a_preview_says_what_could_not_be_tried(root):
    preview = call(RUN, root, **run("commits", make_author("Ada").pk))
    assert preview["not_tried"] == ["the action"]
    assert "ends the transaction" in preview["message"]


def test_a_person_is_shown_the_difference_and_the_change_can_be_taken_back(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}
    author = make_author("Ada")
    client = MCPClient(root.user)
    given = {"pks": [author.pk]}
    page = page_of(client.call("shout_testapp_author", **given))
    change = Change.objects.get()
    assert (change.summary, change.cannot_undo) == ("author Ada: name Ada -> ADA!", "")
    person = signed_in(root.user)
    assert "ADA!" in person.get(page).content.decode()
    author.refresh_from_db()
    assert author.name == "Ada"
    say(person, page)
    done = client.call("shout_testapp_author", **given).structured
    assert (done["done"], done["change"]) == (True, change.pk)
    author.refresh_from_db()
    assert author.name == "ADA!"
    take_back(change_of(done))
    author.refresh_from_db()
    assert author.name == "Ada"
    assert Change.objects.count() == 1


def test_a_person_is_asked_again_if_the_rows_are_others(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONFIRM": "person"}
    author = make_author("Ada")
    page = page_of(MCPClient(root.user).call("shout_testapp_author", pks=[author.pk]))
    Author.objects.filter(pk=author.pk).update(secret_token="other")
    say(signed_in(root.user), page)
    assert Change.objects.get().state == "failed"
    author.refresh_from_db()
    assert author.name == "Ada"


# Keeping


def change_of(done: dict[str, Any]) -> KeptChange:
    return KeptChange(Change.objects.get(pk=done["change"]))


def take_back(kept: KeptChange) -> None:
    assert kept.footprint is not None
    with transaction.atomic():
        Restoration(StoredDifference.from_json(kept.footprint)).run()


def test_an_action_that_wrote_only_its_rows_can_be_taken_back(root):
    author = make_author("Ada")
    done = call(RUN, root, **run("quietly", author.pk))
    kept = change_of(done)
    assert (kept.change.state, kept.change.cannot_undo, kept.change.rows) == ("done", "", 1)
    assert kept.change.summary == "Quietly: 1 row of testapp.author"
    take_back(kept)
    author.refresh_from_db()
    assert author.name == "Ada"


def test_a_caller_takes_back_what_an_action_did(root):
    author = make_author("Ada")
    client = MCPClient(root.user)
    done = client.call("quietly_testapp_author", pks=[author.pk]).structured
    undone = client.call("undo_change", change=done["change"])
    assert not undone.is_error, undone.text
    author.refresh_from_db()
    assert author.name == "Ada"


def test_an_action_that_wrote_elsewhere_cannot_be_taken_back_and_says_why(root):
    book = make_book("Dune")
    token = call(RUN, root, **run("reprice", book.author_id))["confirm_token"]
    kept = change_of(call(RUN, root, **run("reprice", book.author_id, confirm_token=token)))
    assert kept.change.cannot_undo == "What it did was not recorded row by row."
    assert kept.footprint is None


def test_an_action_that_did_nothing_is_not_kept(root):
    done = call(RUN, root, **run("count", Tag.objects.create(name="a").pk, model="testapp.tag"))
    assert "change" not in done
    assert not Change.objects.exists()


def test_other_actions_are_not_kept(root):
    author = make_author("Ada")
    token = call(RUN, root, **run("unsaid", author.pk))["confirm_token"]
    assert "change" not in call(RUN, root, **run("unsaid", author.pk, confirm_token=token))


# Function tools


def test_a_dry_run_of_a_function_tells_what_else_happens_and_its_result(root, ended, mailoutbox):
    make_author("Ada")
    before = everything()
    client = MCPClient(root.user)
    shown = client.call("merge", name="Ada", dry_run=True).structured
    assert everything() == before
    assert shown == {
        "dry_run": True,
        "summary": "writes to testapp_author, testapp_tag; 1 mail; 1 function after the commit",
        "also_written": ["testapp_author", "testapp_tag"],
        "on_commit": [f"{__name__}.after"],
        "mails": ["a mail to 1"],
        "result": {"tags": 1},
        "next": "The call itself will ask for confirmation.",
    }
    assert not mailoutbox
    assert ended == [("tried", 1)]


def test_a_question_of_a_function_is_asked_and_its_answer_tried(root):
    client = MCPClient(root.user, answers={"name": {"name": "Ada"}})
    shown = client.call("tell", dry_run=True).structured
    assert (shown["result"], shown["also_written"]) == ("Ada made", ["testapp_tag"])
    assert not Tag.objects.exists()


def test_a_function_that_can_be_tried_announces_no_schema_and_answers_as_before(root):
    tools = {one["name"]: one for one in MCPClient(root.user).tools()}
    assert "outputSchema" not in tools["merge"]
    token = MCPClient(root.user).call("merge", name="Ada").structured["confirm_token"]
    assert MCPClient(root.user).call("merge", name="Ada", confirm_token=token).structured == {"tags": 1}


def test_a_function_whose_author_says_nothing_is_not_tried(root):
    answer = MCPClient(root.user).call("plain", name="x", dry_run=True)
    assert answer.is_error
    assert answer.text.startswith("Not tried: the author of this tool does not say that it can be.")
    assert not Tag.objects.exists()


def test_what_the_database_refuses_of_a_function_is_told(root):
    Tag.objects.create(name="Ada")
    answer = MCPClient(root.user).call("merge", name="Ada", dry_run=True)
    assert answer.is_error
    assert answer.text == "Nothing was changed: the values break a constraint of the database."
