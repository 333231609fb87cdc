"""Questions that nobody answered: clients that cannot show a form, and accept it for their user."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import call_command
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import include, path

from mcp_django import MCPSite
from mcp_django.context.confirmation import NOT_FILLED_IN
from mcp_django.functions.asked_parameters import Ask
from mcp_django.testing import MCPClient
from mcp_django.transports.http.streamable_http import as_application
from tests.factories import make_author, make_superuser
from tests.question_rounds import ELICITS
from tests.session_client import SessionClient
from tests.testapp.models import Author

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]

PAGE = """<form method="post">{% for row in rows %}
<input type="hidden" name="_selected_action" value="{{ row.pk }}">{% endfor %}
<input type="hidden" name="action" value="{{ action }}">{{ form }}{{ more|safe }}
<input type="submit" name="apply" value="Go"></form>"""
SELECT = '<select name="reason"><option>duplicate<option>fraud</select>'
EMPTY = [{"action": "accept", "content": {}}, {"action": "accept"}, {"action": "accept", "content": {"note": "x"}}]
IDS = ["nothing", "no content", "without the required field"]


class RefundForm(forms.Form):
    reason = forms.ChoiceField(choices=[("duplicate", "Duplicate"), ("fraud", "Fraud")], initial="duplicate")
    note = forms.CharField(required=False)


class AmountForm(forms.Form):
    amount = forms.IntegerField(min_value=1, max_value=5)


class OptionalForm(forms.Form):
    note = forms.CharField(required=False, initial="as usual")


class AuthorAdmin(admin.ModelAdmin):
    actions = ["refund", "refund_by_html", "pay", "remark", "pay_for_good", "erase"]

    def done(self, request: Any, queryset: Any, value: Any) -> None:
        queryset.update(name=str(value))

    def ask(self, request: Any, name: str, rows: Any, form: Any = "", more: str = "") -> Any:
        template = engines["django"].from_string(PAGE)  # type: ignore[attr-defined]
        context = {"title": "Authors", "rows": rows, "action": name, "form": form, "more": more}
        return TemplateResponse(request, template, context)

    def by_form(self, request: Any, queryset: Any, kind: Any, name: str) -> Any:
        form = kind(request.POST if "apply" in request.POST else None)
        if not form.is_valid():
            return self.ask(request, name, queryset, form)
        return self.done(request, queryset, next(iter(form.cleaned_data.values())))

    def refund(self, request: Any, queryset: Any) -> Any:
        return self.by_form(request, queryset, RefundForm, "refund")

    def pay(self, request: Any, queryset: Any) -> Any:
        return self.by_form(request, queryset, AmountForm, "pay")

    def pay_for_good(self, request: Any, queryset: Any) -> Any:
        return self.by_form(request, queryset, AmountForm, "pay_for_good")

    pay_for_good.mcp_form = AmountForm  # type: ignore[attr-defined]

    def erase(self, request: Any, queryset: Any) -> None:
        queryset.delete()

    def remark(self, request: Any, queryset: Any) -> Any:
        return self.by_form(request, queryset, OptionalForm, "remark")

    def refund_by_html(self, request: Any, queryset: Any) -> Any:
        if "apply" in request.POST:
            return self.done(request, queryset, request.POST["reason"])
        return self.ask(request, "refund_by_html", queryset, more=SELECT + '<input name="note">')


for harmless in ("refund", "refund_by_html", "pay", "remark"):
    getattr(AuthorAdmin, harmless).mcp_destructive = False

admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
own = MCPSite("own", admin_site=admin_site)
shipped: list[Any] = []


@dataclass
class Parcel:
    carrier: str
    weight: int
    note: str = ""


def burn(request: Any, what: str) -> str:
    """Burn something, which nobody has declared harmless."""
    shipped.append(what)
    return "ashes"


def ship(request: Any, parcel: Annotated[Parcel, Ask("Which parcel?")]) -> str:
    """Ship a parcel."""
    shipped.append(parcel)
    return f"{parcel.carrier} {parcel.weight}"


own.add_tool(ship, destructive=False)
own.add_tool(burn)
urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]
ACTIONS = ["refund", "refund_by_html", "pay", "remark"]
FORMS: dict[str, dict[str, Any]] = {
    "refund": {"reason": "fraud"},
    "refund_by_html": {"reason": "fraud"},
    "pay": {"amount": 3},
    "remark": {"note": "fraud"},
}


@pytest.fixture
def pks() -> list[int]:
    shipped.clear()
    return [make_author("A1").pk, make_author("A2").pk]


def names() -> list[str]:
    return list(Author.objects.order_by("pk").values_list("name", flat=True))


def text_of(result: Any) -> str:
    text: str = result["content"][0]["text"]
    return text


def picked(action: str, pks: list[int]) -> dict[str, Any]:
    return {"model": "testapp.author", "action": action, "pks": pks}


class Program:
    """A client of either era that answers each question with the same result, as Codex does."""

    def __init__(self, version: str, answer: Any, name: str = "codex-mcp-client") -> None:
        self.modern, self.answer = version == "2026-07-28", answer
        self.asked: list[Any] = []
        user = User.objects.filter(username="root").first() or make_superuser("root")
        self.client = MCPClient(user, version=version, capabilities=ELICITS, name=name)
        self.session = SessionClient(
            self.client.headers["Authorization"],
            version=version,
            capabilities=ELICITS,
            application=as_application(own),
            name=name,
        )

    def call(self, tool: str, **arguments: Any) -> Any:
        """Return the result of the call."""
        if self.modern:
            return self.call_modern({"name": tool, "arguments": arguments})
        return async_to_sync(self.call_session)(tool, arguments)

    def call_modern(self, params: dict[str, Any]) -> Any:
        more: dict[str, Any] = {}
        while len(self.asked) < 10:
            result = self.client.request("tools/call", **params, **more)
            if result["resultType"] == "complete":
                return result
            self.asked += [question["params"] for question in result["inputRequests"].values()]
            answers = dict.fromkeys(result["inputRequests"], self.answer)
            more = {"inputResponses": answers, "requestState": result["requestState"]}
        raise AssertionError("The call asks without end")

    async def call_session(self, tool: str, arguments: dict[str, Any]) -> Any:
        if self.session.session is None:
            await self.session.initialize()
        stream = await self.session.call(tool, **arguments)
        if stream.headers["content-type"] == "application/json":
            return json.loads((await stream.exchange.next())["body"])["result"]
        while len(self.asked) < 10:
            message = await stream.message()
            if "result" in message:
                return message["result"]
            self.asked.append(message["params"])
            await self.session.answer(message["id"], self.answer)
        raise AssertionError("The call asks without end")


VERSIONS = pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])


@VERSIONS
@pytest.mark.parametrize("answer", EMPTY, ids=IDS)
@pytest.mark.parametrize("action", ["refund", "refund_by_html", "pay"])
def test_a_form_that_was_accepted_unfilled_runs_nothing(pks: Any, version: str, answer: Any, action: str) -> None:
    program = Program(version, answer)
    asked = program.call("run_action", **picked(action, pks))["structuredContent"]
    assert names() == ["A1", "A2"]
    assert len(program.asked) == 2
    assert "This field is required." in program.asked[1]["message"]
    assert asked["confirmation_required"] is True
    assert asked["form"]["required"] == list(FORMS[action])
    # Who cannot show a form goes on as a client that cannot ask at all.
    program.call("run_action", **picked(action, pks), form=FORMS[action], confirm_token=asked["confirm_token"])
    assert len(set(names())) == 1
    assert len(program.asked) == 2


@VERSIONS
@pytest.mark.parametrize("answer", [*EMPTY[:2], {"action": "accept", "content": {"note": "fraud"}}])
def test_a_form_in_which_nothing_is_required_needs_a_yes(pks: Any, version: str, answer: Any) -> None:
    program = Program(version, answer)
    result = program.call("run_action", **picked("remark", pks))
    assert names() == ["A1", "A2"]
    assert (text_of(result), len(program.asked)) == (DECLINED, 1)
    program = Program(version, {"action": "accept", "content": {"note": "fraud", "_confirm": "yes"}})
    program.call("run_action", **picked("remark", pks))
    assert names() == ["fraud", "fraud"]


MISFIT = "Confirm: Give one value, not a list or an object."
DECLINED = "The user declined. Nothing was changed."
# One call of each kind that is confirmed, by the name of a tool.
CONFIRMED: dict[str, Any] = {
    "delete_record": lambda pks: {"model": "testapp.author", "pk": pks[0]},
    "delete_record of several": lambda pks: {"model": "testapp.author", "pks": pks},
    "update_record of several": lambda pks: {"model": "testapp.author", "pks": pks, "values": {"name": "x"}},
    "run_action": lambda pks: picked("erase", pks),
    "run_action of a query": lambda pks: {"model": "testapp.author", "action": "refund", "all": True},
    "erase_testapp_author": lambda pks: {"pks": pks},
    "burn": lambda pks: {"what": "letters"},
}
# What clients answer by themselves, and what a person may answer who does not want it.
NO = [*EMPTY, {"action": "accept", "content": {"_confirm": "no"}}, {"action": "accept", "content": {"_confirm": ""}}]


@VERSIONS
@pytest.mark.parametrize("answer", [*NO, {"action": "decline"}])
@pytest.mark.parametrize("kind", CONFIRMED)
def test_78_nothing_but_a_yes_is_a_yes(pks: Any, version: str, answer: Any, kind: str) -> None:
    program = Program(version, answer)
    result = program.call(kind.partition(" ")[0], **CONFIRMED[kind](pks))
    assert (text_of(result), result["isError"]) == (DECLINED, True)
    assert (names(), shipped) == (["A1", "A2"], [])
    [asked] = program.asked
    field = {"type": "string", "title": "Confirm", "enum": ["yes", "no"]}
    assert asked["requestedSchema"] == {"type": "object", "properties": {"_confirm": field}, "required": ["_confirm"]}


@VERSIONS
@pytest.mark.parametrize("kind", CONFIRMED)
def test_77_a_yes_is_enough(pks: Any, version: str, kind: str) -> None:
    program = Program(version, {"action": "accept", "content": {"_confirm": "yes"}})
    result = program.call(kind.partition(" ")[0], **CONFIRMED[kind](pks))
    if "refund" in str(CONFIRMED[kind](pks)):
        # Its page has a question of its own.
        assert len(program.asked) > 1
        return
    assert (result.get("isError", False), len(program.asked)) == (False, 1)
    assert (names(), shipped) != (["A1", "A2"], [])


@VERSIONS
@pytest.mark.parametrize("kind", CONFIRMED)
def test_78_a_client_that_can_ask_gets_no_token_for_one_that_is_not_valid(pks: Any, version: str, kind: str) -> None:
    program = Program(version, {"action": "decline"})
    result = program.call(kind.partition(" ")[0], **CONFIRMED[kind](pks), confirm_token="x:y:z")
    assert result["isError"]
    assert "confirm_token" not in (result.get("structuredContent") or {})
    assert (names(), shipped) == (["A1", "A2"], [])


@VERSIONS
@pytest.mark.parametrize("answer", EMPTY, ids=IDS)
def test_78_the_form_of_a_destructive_action_is_not_left_to_the_model(pks: Any, version: str, answer: Any) -> None:
    program = Program(version, answer)
    result = program.call("run_action", **picked("pay_for_good", pks))
    assert (result["isError"], len(program.asked)) == (True, 2)
    assert text_of(result) == NOT_FILLED_IN
    assert names() == ["A1", "A2"]


@pytest.mark.parametrize("kind", ["burn", "run_action"])
@pytest.mark.parametrize(
    ("version", "value"),
    [("2025-06-18", ["yes"]), ("2025-06-18", {"a": 1}), ("2025-11-25", {"a": 1})],
)
def test_an_answer_of_the_wrong_type_is_told_plainly(pks: Any, kind: str, version: str, value: Any) -> None:
    program = Program(version, {"action": "accept", "content": {"_confirm": value}})
    result = program.call(kind, **CONFIRMED[kind](pks))
    assert program.asked[1]["message"].startswith(f"{MISFIT}\n\n")
    told = f"The client's answer is not valid. {MISFIT} Nothing was changed."
    assert (text_of(result), result["isError"], len(program.asked)) == (told, True, 2)
    assert names() == ["A1", "A2"]


@VERSIONS
@pytest.mark.parametrize("action", ["cancel", "decline"])
def test_a_refusal_tells_the_model_no_way_round_and_the_operator_one(
    pks: Any, version: str, action: str, caplog: Any
) -> None:
    caplog.set_level("INFO", "mcp_django")
    program = Program(version, {"action": action})
    result = program.call("delete_record", model="testapp.author", pk=pks[0])
    assert text_of(result) in (DECLINED, "The user dismissed the question. Nothing was changed.")
    assert "mcp_token --confirm-by-token" in caplog.text
    assert Author.objects.count() == 2


@VERSIONS
def test_a_token_for_programs_without_a_person_is_confirmed_by_token(pks: Any, version: str, capsys: Any) -> None:
    program = Program(version, {"action": "cancel"})
    call_command("mcp_token", "root", "--confirm-by-token")
    program.client.headers["Authorization"] = program.session.token = f"Bearer {capsys.readouterr().out.strip()}"
    arguments = {"model": "testapp.author", "pk": pks[0]}
    preview = program.call("delete_record", **arguments)["structuredContent"]
    assert preview["confirmation_required"]
    assert Author.objects.count() == 2
    assert program.call("delete_record", **arguments, confirm_token=preview["confirm_token"])["structuredContent"][
        "deleted"
    ]
    asked = program.call("ship")["structuredContent"]
    parcel = {"answers": {"parcel": {"carrier": "dhl", "weight": 3}}, "confirm_token": asked["confirm_token"]}
    assert program.call("ship", **parcel)["content"][0]["text"] == "dhl 3"
    asked = program.call("run_action", **picked("refund", pks[1:]))["structuredContent"]
    confirmed = {"form": FORMS["refund"], "confirm_token": asked["confirm_token"]}
    program.call("run_action", **picked("refund", pks[1:]), **confirmed)
    assert names() == ["fraud"]
    assert program.asked == []


@pytest.mark.parametrize("action", ["refund", "refund_by_html", "pay"])
@pytest.mark.parametrize("form", [{}, None, {"note": "x"}, {"reason": ""}, {"reason": None, "amount": ""}])
def test_a_token_without_the_required_fields_runs_nothing(pks: Any, action: str, form: Any) -> None:
    client = MCPClient(make_superuser())
    token = client.call("run_action", **picked(action, pks)).structured["confirm_token"]
    arguments = {"form": form} if form is not None else {}
    result = client.call("run_action", **picked(action, pks), **arguments, confirm_token=token)
    assert names() == ["A1", "A2"]
    assert result.structured["form"]["required"] == list(FORMS[action])
    client.call(
        "run_action", **picked(action, pks), form=FORMS[action], confirm_token=result.structured["confirm_token"]
    )
    assert len(set(names())) == 1


def test_a_choice_that_the_page_does_not_have_is_refused(pks: Any) -> None:
    client = MCPClient(make_superuser())
    token = client.call("run_action", **picked("refund_by_html", pks)).structured["confirm_token"]
    form = {"reason": "whim"}
    result = client.call("run_action", **picked("refund_by_html", pks), form=form, confirm_token=token)
    assert result.structured["errors"] == ["reason: choose one of duplicate, fraud."]
    assert names() == ["A1", "A2"]


@VERSIONS
@pytest.mark.parametrize("answer", [*EMPTY, {"action": "accept", "content": {"carrier": "dhl"}}])
def test_a_tool_gets_no_answer_that_nobody_gave(pks: Any, version: str, answer: Any) -> None:
    program = Program(version, answer)
    asked = program.call("ship")["structuredContent"]
    assert (shipped, len(program.asked)) == ([], 2)
    assert asked["input_required"] is True
    wrong = program.call("ship", answers={"parcel": {"carrier": "dhl"}}, confirm_token=asked["confirm_token"])
    assert (shipped, len(program.asked)) == ([], 2)
    token = wrong["structuredContent"]["confirm_token"]
    result = program.call("ship", answers={"parcel": {"carrier": "dhl", "weight": 3}}, confirm_token=token)
    assert result["content"][0]["text"] == "dhl 3"
    assert len(program.asked) == 2


@VERSIONS
@pytest.mark.parametrize("name", ["codex-mcp-client", "another"])
def test_numbers_are_asked_for_as_texts_where_a_client_cannot_show_them(pks: Any, version: str, name: str) -> None:
    program = Program(version, {"action": "accept", "content": {"amount": "3"}}, name)
    program.call("run_action", **picked("pay", pks))
    asked = program.asked[0]["requestedSchema"]["properties"]["amount"]
    if name == "another":
        assert asked == {"type": "integer", "minimum": 1, "maximum": 5, "title": "Amount"}
    else:
        words = "(whole number from 1 to 5)"
        assert asked == {"type": "string", "title": "Amount", "description": words, "pattern": "^-?[0-9]+$"}
    assert names() == ["3", "3"]
