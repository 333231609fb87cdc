"""Forms that come with a ``confirm_token``: only what a preview has asked for, or shown, is confirmed."""

from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import include, path

from mcp_django import MCPSite
from mcp_django.context.confirmation import REFUSED
from mcp_django.emulation.action_calls import UNUSED_FORM
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.question_rounds import ELICITS
from tests.testapp.models import Author

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]

PAGE = """<form method="post">{% for row in rows %}
<input type="hidden" name="_selected_action" value="{{ row.pk }}">{% endfor %}
<input type="hidden" name="action" value="discount">{{ form }}<input type="submit" name="apply" value="Go"></form>"""
FORM = {"percent": 90}


class DiscountForm(forms.Form):
    percent = forms.IntegerField(min_value=1, max_value=99)


class AuthorAdmin(admin.ModelAdmin):
    actions = ["discount", "raise_prices", "archive", "archive_step_by_step", "ask_in_the_middle"]

    def discount(self, request: Any, queryset: Any) -> Any:
        form = DiscountForm(request.POST if "apply" in request.POST else None)
        if form.is_valid():
            queryset.update(name=str(form.cleaned_data["percent"]))
            return None
        template = engines["django"].from_string(PAGE)  # type: ignore[attr-defined]
        return TemplateResponse(request, template, {"title": "Authors", "rows": queryset, "form": form})

    def raise_prices(self, request: Any, queryset: Any) -> None:
        queryset.update(name="raised")

    def archive(self, request: Any, queryset: Any) -> Any:
        queryset.update(name="archived")

    def archive_step_by_step(self, request: Any, queryset: Any) -> Any:
        queryset.update(name="archived")

    archive_step_by_step.mcp_atomic = False  # type: ignore[attr-defined]

    def ask_in_the_middle(self, request: Any, queryset: Any) -> Any:
        queryset.update(name=str(request.mcp.ask("How many percent?", int, key="percent")))


admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
own = MCPSite("own", admin_site=admin_site)


def burn(request: Any, what: str) -> str:
    """Burn something, which nobody has declared harmless."""
    return "ashes"


own.add_tool(burn)
urlpatterns = [path("mcp", own.urls), path("", include("mcp_django.oauth.urls"))]


class Call:
    """Calls of one action on one row, by a client that cannot ask its user."""

    def __init__(self, action: str) -> None:
        self.row = make_author("A1")
        self.arguments = {"model": "testapp.author", "action": action, "pks": [self.row.pk]}
        self.user = make_superuser()
        self.client = MCPClient(self.user)

    def run(self, **more: Any) -> Any:
        return self.client.call("run_action", **self.arguments, **more)

    def preview(self, **more: Any) -> Any:
        shown = self.run(**more).structured
        assert shown["confirmation_required"]
        assert self.name == "A1"
        return shown

    @property
    def name(self) -> str:
        return Author.objects.get(pk=self.row.pk).name


def test_a_token_for_rows_does_not_confirm_a_form_that_no_preview_has_shown() -> None:
    call = Call("discount")
    first = call.preview()
    assert not {"form", "filled_in"} & first.keys()
    shown = call.preview(form=FORM, confirm_token=first["confirm_token"])
    assert shown["filled_in"] == FORM
    assert "Its page says" in shown["message"]
    # The new token is for exactly this form.
    other = call.run(form={"percent": 5}, confirm_token=shown["confirm_token"])
    assert (other.is_error, other.text, call.name) == (True, REFUSED, "A1")
    assert call.run(form=FORM, confirm_token=shown["confirm_token"]).structured["done"]
    assert call.name == "90"


def test_a_wrong_form_with_a_token_for_rows_is_asked_for() -> None:
    call = Call("discount")
    shown = call.preview(form={"percnt": 90}, confirm_token=call.preview()["confirm_token"])
    assert shown["errors"][0].startswith("Unknown field 'percnt'.")
    assert shown["form"]["required"] == ["percent"]
    call.run(form=FORM, confirm_token=shown["confirm_token"])
    assert call.name == "90"


def test_a_preview_that_asks_for_the_form_takes_its_answers() -> None:
    call = Call("discount")
    asked = call.preview(confirm_token=call.preview()["confirm_token"])
    assert asked["form"]["required"] == ["percent"]
    call.run(form=FORM, confirm_token=asked["confirm_token"])
    assert call.name == "90"


def test_a_question_of_the_code_is_asked_before_its_answer_counts() -> None:
    call = Call("ask_in_the_middle")
    asked = call.preview(form=FORM, confirm_token=call.preview()["confirm_token"])
    assert list(asked["form"]["properties"]) == ["percent"]
    call.run(form=FORM, confirm_token=asked["confirm_token"])
    assert call.name == "90"


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("raise_prices", "raise_prices has no form. Nothing was changed. Leave form out."),
        ("archive", "archive asks nothing for these rows. Nothing was changed. Leave form out."),
    ],
)
def test_an_action_without_a_page_takes_no_form(action: str, error: str) -> None:
    call = Call(action)
    token = call.preview()["confirm_token"]
    result = call.run(form=FORM, confirm_token=token)
    assert (result.is_error, result.text, call.name) == (True, error, "A1")
    assert call.run(confirm_token=call.preview()["confirm_token"]).structured["done"]
    assert call.name != "A1"


def test_a_form_that_was_shown_is_not_dropped_by_an_action_without_a_page() -> None:
    call = Call("archive")
    shown = call.preview(form=FORM)
    assert shown["filled_in"] == FORM
    assert call.run(form=FORM, confirm_token=shown["confirm_token"]).is_error
    assert call.name == "A1"


def test_what_cannot_be_undone_tells_that_its_form_was_not_used() -> None:
    call = Call("archive_step_by_step")
    result = call.run(form=FORM, confirm_token=call.preview()["confirm_token"])
    assert (result.structured["note"], call.name) == (UNUSED_FORM, "archived")


@pytest.mark.parametrize("tool", ["run_action", "delete_record", "burn"])
def test_a_token_of_a_client_that_cannot_ask_is_not_taken_from_one_that_can(tool: str) -> None:
    call = Call("raise_prices")
    deleted = {"model": "testapp.author", "pk": call.row.pk}
    arguments: Any = {"run_action": call.arguments, "delete_record": deleted, "burn": {"what": "letters"}}[tool]
    token = call.client.call(tool, **arguments).structured["confirm_token"]
    asking = MCPClient(call.user, capabilities=ELICITS)
    asking.headers["Authorization"] = call.client.headers["Authorization"]
    answer = asking.request("tools/call", name=tool, arguments={**arguments, "confirm_token": token})
    assert answer["isError"]
    assert "belongs to another call" in answer["content"][0]["text"]
    assert call.name == "A1"
    assert not call.client.call(tool, **arguments, confirm_token=token).is_error
