import functools
from typing import Annotated

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse

from mcp_django import MCPSite, ModelExposure, ToolResult, action
from mcp_django.context.confirmation import REFUSED
from mcp_django.context.questions import Answers
from mcp_django.emulation.admin_actions import AdminAction
from mcp_django.emulation.downloads import Download
from mcp_django.exceptions import Declined, InputRequired
from mcp_django.functions.asked_parameters import Ask, Sample
from mcp_django.protocol.content import Text
from mcp_django.tools.action_tools import ActionTool, RunAction
from tests.factories import make_book, make_superuser, make_user
from tests.question_rounds import DECLINE, ELICITS, EVERYTHING, YES, accept, sampled
from tests.testapp.models import Book, Tag
from tests.tool_calls import call, refusal, request_of, result_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

RUN = RunAction()


class TagExposure(ModelExposure):
    fields = ["name"]
    actions = ["append", "drop", "look", "polish", "raw", "odd"]

    def has_polish_permission(self, request, obj=None):
        return obj is None or obj.name != "rusty"

    @action(destructive=False)
    def append(self, request, queryset, *, text: str, times: int = 1):
        """Append a text to names.

        Args:
            text: what to append
        """
        for tag in queryset:
            tag.name += text * times
            tag.save()
        return {"appended": times, "path": request.path}

    @action(permissions=["delete"], description="Drop the tags")
    def drop(self, request, queryset):
        queryset.delete()

    @action(permissions=["view"], destructive=False, read_only=True)
    def look(self, request, queryset):
        return [tag.name for tag in queryset]

    @action(permissions=["polish", "testapp.publish_book"], destructive=False)
    def polish(self, request, queryset):
        pass

    @action(destructive=False)
    def raw(self, request, queryset):
        return ToolResult(content=[Text("as it is")])

    @action(destructive=False)
    def odd(self, request, queryset):
        return HttpResponse(b"\xff", content_type="application/pdf")


class PriceForm(admin.helpers.ActionForm):
    factor = forms.DecimalField(min_value=1, required=False)
    kind = forms.ChoiceField(choices=[("net", "Net"), ("gross", "Gross")], initial="net")


class PricedBookAdmin(admin.ModelAdmin):
    action_form = PriceForm
    actions = ["reprice", "erase", "peek"]

    def reprice(self, request, queryset):
        factor, kind = request.POST["factor"], request.POST["kind"]
        queryset.update(title=f"{factor or 'none'} {kind}")

    reprice.mcp_destructive = False  # type: ignore[attr-defined]

    @action(permissions=["delete"], description="Erase")
    def erase(self, request, queryset):
        queryset.delete()

    def peek(self, request, queryset):
        self.message_user(request, ",".join(request.POST.getlist("_selected_action")))

    peek.mcp_read_only = True  # type: ignore[attr-defined]
    peek.short_description = "Peek at %(verbose_name_plural)s"  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def own():
    admin_site = admin.AdminSite(name="admin")
    admin_site.register(Book, PricedBookAdmin)
    own = MCPSite("own", admin_site=admin_site)
    own.register(Tag, TagExposure)
    return own


@pytest.fixture
def root(own):
    return request_of(make_superuser(), own)


def tool_of(request, model, name):
    return ActionTool(request.mcp.site.exposures[model].get_actions(request)[name])


def tags(*names):
    return [Tag.objects.create(name=name).pk for name in names or ("a", "b")]


# Actions of exposures


def test_a_method_runs_with_its_own_arguments(root):
    result = call(tool_of(root, Tag, "append"), root, pks=tags(), text="!", times="2")
    assert sorted(Tag.objects.values_list("name", flat=True)) == ["a!!", "b!!"]
    assert result["result"]["appended"] == 2
    assert LogEntry.objects.count() == 2


def test_D85_arguments_of_a_method_are_validated_before_it_runs(root):
    tool, pks = tool_of(root, Tag, "append"), tags()
    for arguments in ({}, {"text": ["!"]}, {"text": "!", "times": "x"}, {"text": None}, {"text": "!", "more": 1}):
        refusal(tool, root, pks=pks, **arguments)
        refusal(RUN, root, model="testapp.tag", action="append", pks=pks, arguments=arguments)
    assert sorted(Tag.objects.values_list("name", flat=True)) == ["a", "b"]


@pytest.mark.parametrize("pks", [[], "1", 1, None, {}, [None], [True], [1.5], [{}], list(range(1001))])
def test_keys_that_are_no_list_of_keys_are_refused(root, pks):
    assert "pks" in refusal(tool_of(root, Tag, "append"), root, pks=pks, text="!")


def test_a_destructive_method_waits_for_its_confirmation(root):
    pks = tags()
    tool = tool_of(root, Tag, "drop")
    question = call(tool, root, pks=pks)
    assert question["message"].startswith("Drop the tags")
    assert Tag.objects.count() == 2
    # The token is the action's, whichever of the two tools asked.
    arguments = {"model": "testapp.tag", "action": "drop", "pks": pks}
    assert call(RUN, root, **arguments, confirm_token=question["confirm_token"])["done"]
    assert not Tag.objects.exists()


def test_a_reading_action_is_not_in_the_history_and_is_hinted_so(root):
    tool = tool_of(root, Tag, "look")
    assert call(tool, root, pks=tags("a"))["result"] == ["a"]
    assert not LogEntry.objects.exists()
    assert tool.definition()["annotations"]["readOnlyHint"] is True


def test_what_a_method_returns_may_be_a_result_or_a_response(root):
    pks = tags("a")
    assert result_of(tool_of(root, Tag, "raw"), root, pks=pks).content == [Text("as it is")]
    result = result_of(tool_of(root, Tag, "odd"), root, pks=pks)
    assert result.structured["file"] == {"name": "result", "mime_type": "application/pdf", "bytes": 1}
    assert result.content[0].body == b"\xff"


def test_a_permission_of_its_own_is_asked_for_each_row(root, own):
    pks = tags("new", "rusty")
    tool = tool_of(root, Tag, "polish")
    assert call(tool, root, pks=pks)["done"], "superusers have testapp.publish_book"
    viewer = request_of(make_user("viewer", "testapp.view_tag"), own)
    assert call(tool, viewer, pks=pks[:1])["done"]
    assert f"“{pks[1]}: rusty”" in refusal(tool, viewer, pks=pks)


# Actions of a ModelAdmin


def test_fields_of_the_action_form_are_arguments(root):
    pks = [make_book().pk]
    tool = tool_of(root, Book, "reprice")
    assert {"factor", "kind"} < tool.input_schema["properties"].keys()
    call(tool, root, pks=pks)
    assert Book.objects.get().title == "none net"
    call(RUN, root, model="testapp.book", action="reprice", pks=pks, arguments={"factor": 1.5, "kind": "gross"})
    assert Book.objects.get().title == "1.5 gross"
    assert "factor: Ensure this value" in refusal(tool, root, pks=pks, factor=0)
    assert "factor: Give one value" in refusal(tool, root, pks=pks, factor={"a": 1})
    assert "(valid: net, gross)" in refusal(tool, root, pks=pks, kind="x")
    assert Book.objects.get().title == "1.5 gross"


def test_an_admin_action_may_be_declared_as_an_action_of_ours(root):
    book = make_book()
    question = call(tool_of(root, Book, "erase"), root, pks=[book.pk])
    assert question["confirmation_required"]
    assert Book.objects.exists()


def test_an_admin_action_gets_what_the_admins_list_posts(root):
    pks = [make_book().pk, make_book().pk]
    tool = tool_of(root, Book, "peek")
    assert call(tool, root, pks=pks)["messages"] == [{"level": "info", "text": f"{pks[0]},{pks[1]}"}]
    assert tool.title == "Peek at books (testapp.book)"
    assert tool.definition()["annotations"]["readOnlyHint"] is True


def test_an_admin_action_takes_no_arguments_but_those_of_its_form(root):
    arguments = {"model": "testapp.book", "action": "peek", "pks": [make_book().pk]}
    assert "Unknown argument 'x'" in refusal(RUN, root, **arguments, arguments={"x": 1})


def test_H138_permissions_declared_in_the_admin_are_kept():
    publisher = make_user("publisher", "testapp.view_book", "testapp.publish_book")
    book = make_book()
    request = request_of(publisher)
    result = call(RUN, request, model="testapp.book", action="publish", pks=[book.pk])
    assert result["messages"] == [{"level": "success", "text": "1 published."}]
    assert "no such action" in refusal(RUN, request, model="testapp.book", action="withdraw", pks=[book.pk])


def test_H137_the_change_permission_is_asked_for_each_row():
    user = make_user("seller", "testapp.view_book", "testapp.change_book")
    mine, shared = make_book("Mine", owner=user), make_book("Shared")
    text = refusal(RUN, request_of(user), model="testapp.book", action="withdraw", pks=[mine.pk, shared.pk])
    assert f"on 1 of these rows of testapp.book: “{shared.pk}: Shared”" in text
    assert not Book.objects.filter(status="withdrawn").exists()


def test_H144_a_text_file_comes_once_in_the_result():
    book = make_book("Dune", isbn="1")
    result = result_of(RUN, request_of(make_superuser()), model="testapp.book", action="export", pks=[book.pk])
    assert result.structured["file"] == {
        "name": "books.csv",
        "mime_type": "text/csv",
        "bytes": 7,
        "text": "1,Dune\n",
    }
    assert [block["type"] for block in result.to_wire()["content"]] == ["text"]


def test_H144_a_long_text_file_comes_as_a_link():
    for number in range(40):
        make_book("x" * 190, isbn=str(number))
    request = request_of(make_superuser())
    question = call(RUN, request, model="testapp.book", action="export", all=True)
    token = {"confirm_token": question["confirm_token"]} if "confirm_token" in question else {}
    result = result_of(RUN, request, model="testapp.book", action="export", all=True, **token)
    text, link = result.to_wire()["content"]
    assert "xxx" not in text["text"]
    assert link == {"type": "resource_link", "uri": link["uri"], "name": "books.csv", "mimeType": "text/csv"}
    assert link["uri"] == result.structured["file"]["uri"]
    assert Download.kept(request, link["uri"]).body.count("\n") == 40


def test_an_admin_action_needs_the_admin(own):
    outsider = request_of(make_user("outsider", "testapp.change_book", staff=False), own)
    reprice = AdminAction(own.exposures[Book], "reprice", PricedBookAdmin.reprice, "Reprice")
    assert not reprice.has_permission(outsider)


# Actions that ask


class Suffix(forms.Form):
    text = forms.CharField(max_length=3)
    twice = forms.BooleanField(required=False)


class AskingExposure(ModelExposure):
    fields = ["name"]
    actions = ["mark", "wipe", "talk", "compose"]

    @action(destructive=False)
    def mark(self, request, queryset, *, sign: str, suffix: Annotated[dict, Ask("Which suffix?", form=Suffix)]):
        queryset.update(name=sign + suffix["text"] * (1 + suffix["twice"]))

    @action
    def wipe(self, request, queryset, *, why: Annotated[str, Ask("Why?")]):
        queryset.update(name=why)

    @action(destructive=False, asks=True)
    def talk(self, request, queryset):
        queryset.update(name="half")
        first = request.mcp.ask("First?", str, key="first")
        if request.mcp.ask(f"{first}, really?", None, key="really", proof=True):
            queryset.update(name=first)

    @action(destructive=False)
    def compose(self, request, queryset, *, text: Annotated[str, Sample("Write.")]):
        queryset.update(name=text)


@pytest.fixture(scope="module")
def asking_site():
    made = MCPSite("asking")
    made.register(Tag, AskingExposure)
    return made


class Asking:
    """Calls of one action of the asking site on one tag."""

    def __init__(self, made, name, capabilities=None, **arguments):
        self.user, self.made, self.name = make_superuser(), made, name
        self.capabilities, self.answers = capabilities or {}, Answers()
        self.arguments = {"pks": tags("a"), **arguments}

    def request(self):
        options = {"version": "2026-07-28", "capabilities": self.capabilities, "live": True}
        return request_of(self.user, self.made, answers=self.answers, **options)

    def call(self, **more):
        request = self.request()
        return result_of(tool_of(request, Tag, self.name), request, **self.arguments, **more).structured

    def refusal(self, **more):
        request = self.request()
        return refusal(tool_of(request, Tag, self.name), request, **self.arguments, **more)

    def questions(self):
        with pytest.raises(InputRequired) as error:
            self.call()
        return error.value.questions

    def answer(self, asked, **results):
        self.answers = Answers(results, self.answers.state(asked))
        return self

    @property
    def named(self):
        return Tag.objects.get().name


def test_an_action_asks_for_its_parameters(asking_site):
    asking = Asking(asking_site, "mark", ELICITS, sign="!")
    schema = tool_of(asking.request(), Tag, "mark").input_schema
    assert schema["properties"].keys() > {"pks", "sign", "form", "confirm_token"}
    [question] = asked = asking.questions()
    assert (question.key, question.proof) == ("suffix", False)
    [again] = asking.answer(asked, suffix=accept(text="long")).questions()
    assert again.reason.startswith("Text: Ensure this value has at most 3")
    assert asking.answer(asked, suffix=accept(text="ab", twice=True)).call()["done"]
    assert asking.named == "!abab"


def test_77_consent_and_parameters_are_asked_in_one_round(asking_site):
    asking = Asking(asking_site, "wipe", ELICITS)
    asked = asking.questions()
    assert [(question.key, question.proof) for question in asked] == [("why", False), ("_confirm", True)]
    [missing] = asking.answer(asked, why=accept(why="old")).questions()
    assert missing.key == "_confirm"
    with pytest.raises(Declined):
        asking.answer(asked, why=accept(why="old"), _confirm=DECLINE).call()
    assert asking.named == "a"
    assert asking.answer(asked, why=accept(why="old"), _confirm=YES).call()["done"]
    assert asking.named == "old"


def test_what_an_action_asks_on_its_way_is_asked_in_rounds_and_changes_nothing_before(asking_site):
    asking = Asking(asking_site, "talk", ELICITS)
    asked = asking.questions()
    second = asking.answer(asked, first=accept(first="Ada")).questions()
    assert (second[0].key, asking.named) == ("really", "a")
    asking.answer(second, really=YES).call()
    assert asking.named == "Ada"


def test_an_action_may_ask_the_clients_model(asking_site):
    asking = Asking(asking_site, "compose", EVERYTHING)
    asked = asking.questions()
    asking.answer(asked, text=sampled("a poem")).call()
    assert asking.named == "a poem"


def test_77_a_client_that_cannot_ask_answers_with_form_and_token(asking_site):
    asking = Asking(asking_site, "mark", sign="!")
    question = asking.call()
    assert question["confirmation_required"] is True
    assert question["message"] == "Which suffix?"
    assert list(question["form"]["properties"]["suffix"]["properties"]) == ["text", "twice"]
    wrong = asking.call(form={"suffix": {"text": "long"}}, confirm_token=question["confirm_token"])
    assert wrong["errors"] == ["Text: Ensure this value has at most 3 characters (it has 4)."]
    assert asking.call(form={"suffix": {"text": "ab"}}, confirm_token=wrong["confirm_token"])["done"]
    assert asking.named == "!ab"
    assert asking.refusal(form={"suffix": {"text": "c"}}, confirm_token=wrong["confirm_token"]) == REFUSED


def test_77_one_token_is_for_consent_and_answers(asking_site):
    asking = Asking(asking_site, "wipe")
    question = asking.call()
    assert question["message"].endswith("Confirm it for this row.\nWhy?")
    again = asking.call(confirm_token=question["confirm_token"])
    assert list(again["form"]["properties"]) == ["why"]
    first = asking.call(form={"why": "old"})
    assert (first["filled_in"], asking.named) == ({"why": "old"}, "a")
    assert asking.call(form={"why": "old"}, confirm_token=again["confirm_token"])["done"]
    assert asking.named == "old"


def test_questions_on_the_way_are_repeated_with_their_answers(asking_site):
    asking = Asking(asking_site, "talk")
    token = asking.call()["confirm_token"]
    second = asking.call(form={"first": "Ada"}, confirm_token=token)
    assert (list(second["form"]["properties"]), asking.named) == (["first", "really"], "a")
    assert asking.call(form={"first": "Ada", "really": True}, confirm_token=second["confirm_token"])["done"]
    assert asking.named == "Ada"


def test_77_a_model_cannot_stand_in_for_the_clients_own(asking_site):
    with pytest.raises(InputRequired):
        Asking(asking_site, "compose").call()


def test_an_action_that_asks_is_reached_by_run_action_too(asking_site):
    request = Asking(asking_site, "mark").request()
    arguments = {"model": "testapp.tag", "action": "mark", "pks": [Tag.objects.get().pk], "arguments": {"sign": "!"}}
    token = call(RUN, request, **arguments)["confirm_token"]
    assert call(RUN, request, **arguments, form={"suffix": {"text": "x"}}, confirm_token=token)["done"]


# What an action says of its page


class ReasonForm(forms.Form):
    reason = forms.CharField()


class Pages:
    def silent(self, request, queryset):
        return HttpResponse()

    def asks(self, request, queryset):
        return HttpResponse()

    asks.mcp_form = ReasonForm

    def declared(self, request, queryset): ...

    declared.mcp_form = None

    def annotated(self, request, queryset) -> None: ...

    def quoted(self, request, queryset) -> "None": ...

    def answers(self, request, queryset) -> HttpResponse: ...


def admin_action(function):
    return AdminAction(MCPSite(admin_site=admin.site).exposures[Book], "act", function, "Act")


@pytest.mark.parametrize(
    ("name", "has_form", "may_show_a_page"),
    [
        ("silent", True, True),
        ("answers", True, True),
        ("asks", True, False),
        ("declared", False, False),
        ("annotated", False, False),
        ("quoted", False, False),
    ],
)
def test_an_action_may_say_that_it_shows_no_page(name, has_form, may_show_a_page):
    for function in (getattr(Pages, name), getattr(Pages(), name)):
        made = admin_action(function)
        assert (made.has_form, made.may_show_a_page) == (has_form, may_show_a_page)


@pytest.mark.parametrize("function", [functools.partial(len, []), type("Callable", (), {"__call__": len})(), dict])
def test_what_says_nothing_may_show_a_page(function):
    assert admin_action(function).has_form


def test_the_fields_of_a_page_are_those_of_its_declared_form():
    assert list(admin_action(Pages().asks).fields) == ["reason"]
    assert admin_action(Pages().silent).fields == {}
