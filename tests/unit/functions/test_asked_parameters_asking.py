"""Parameters that are asked for."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured

from mcp_django import MCPSite
from mcp_django.context.questions import Answers
from mcp_django.context.request import MCPContext
from mcp_django.context.sampling_and_roots import Root, Sampled
from mcp_django.exceptions import Cancelled, Declined, InputRequired
from mcp_django.functions.asked_parameters import (
    Ask,
    AskedParameters,
    Roots,
    Sample,
    finished,
)
from mcp_django.schema.annotations import Param
from tests.question_rounds import DECLINE, EVERYTHING, accept, sampled
from tests.testapp.models import Author
from tests.tool_calls import request_of

type_alias = Annotated[str, Ask("Which?")]


class ShippingForm(forms.Form):
    city = forms.CharField(max_length=5)


@dataclass
class Size:
    width: int


def ship(
    request: Any,
    order: int,
    carrier: Annotated[Literal["dhl", "ups"], Ask("Which carrier?")],
    details: Annotated[dict, Ask(lambda request, order: f"Where does {order} go?", form=ShippingForm)],  # type: ignore[type-arg]
    size: "Annotated[Size, Ask('How large?')]",
    note: Annotated[str, Sample("Write a note.", max_tokens=9, system="Be brief.")],
    full: Annotated[Sampled, Sample("Write another.")],
    roots: Annotated[list, Roots()],  # type: ignore[type-arg]
    pieces: Annotated[int, Param("Pieces", minimum=1), Ask("How many?")] = 1,
) -> str:
    """Ship an order."""
    return ""


ANSWERS: dict[str, Any] = {
    "carrier": accept(carrier="dhl"),
    "details": accept(city="Rome"),
    "size": accept(width=3),
    "note": sampled("A note."),
    "full": sampled("Another."),
    "roots": {"roots": [{"uri": "file:///a"}]},
    "pieces": accept(pieces=2),
}


def request_with(given: Any) -> Any:
    context = MCPContext(site=MCPSite(), version="2026-07-28", capabilities=EVERYTHING, live=True)
    context.answers = Answers(given)
    return SimpleNamespace(mcp=context)


def values(given: Any, function: Any = ship, **arguments: Any) -> dict[str, Any]:
    asked = AskedParameters.of(function, ("request",))
    return asked.answers(request_with(given), arguments or {"order": 7})


def questions(given: Any, function: Any = ship) -> dict[str, Any]:
    with pytest.raises(InputRequired) as error:
        values(given, function)
    return {question.key: question for question in error.value.questions}


def test_all_that_is_missing_is_asked_in_one_round() -> None:
    found = questions({})
    assert list(found) == list(ANSWERS)
    assert found["details"].params["message"] == "Where does 7 go?"
    assert found["note"].params["systemPrompt"] == "Be brief."
    assert found["note"].params["maxTokens"] == 9
    assert found["pieces"].params["requestedSchema"]["properties"]["pieces"] == {
        "type": "integer", "minimum": 1, "title": "Pieces", "description": "Pieces", "default": 1
    }  # fmt: skip
    assert list(questions({"carrier": ANSWERS["carrier"]})) == list(ANSWERS)[1:]


def test_answers_are_values_for_the_function() -> None:
    found = values(ANSWERS)
    assert {name: found[name] for name in ("carrier", "details", "size", "note", "pieces")} == {
        **{"carrier": "dhl", "details": {"city": "Rome"}, "size": Size(3), "note": "A note.", "pieces": 2}
    }
    assert (found["full"].text, found["roots"]) == ("Another.", [Root("file:///a")])


def test_a_default_stands_in_for_what_is_left_out() -> None:
    assert values({**ANSWERS, "pieces": accept()})["pieces"] == 1


def test_78_a_wrong_answer_asks_again_for_that_alone() -> None:
    [question] = questions({**ANSWERS, "details": accept(city="Washington")}).values()
    assert question.key == "details"
    assert question.reason.startswith("City: Ensure this value has at most 5")


def test_78_a_declined_question_ends_it() -> None:
    with pytest.raises(Declined):
        values({**ANSWERS, "carrier": DECLINE})


def test_a_form_may_depend_on_the_call() -> None:
    def pick(request: Any, order: int, size: Annotated[dict[str, Any], Ask("Size?", form=lambda request, order: make(order))]) -> None: ...  # fmt: skip # noqa: E501

    def make(order: int) -> ShippingForm:
        return ShippingForm(initial={"city": f"C{order}"})

    field = questions({}, pick)["size"].params["requestedSchema"]["properties"]["city"]
    assert field["default"] == "C7"


def test_what_is_not_asked_for_is_not_found() -> None:
    def plain(request: Any, a: int, b: Annotated[int, Param("B")], c=1, *, d: "Unknown" = None) -> None: ...  # type: ignore[name-defined,no-untyped-def] # noqa: F821 # fmt: skip

    assert AskedParameters.of(plain, ("request",)).items == ()


def test_an_alias_is_looked_through() -> None:
    def aliased(request: Any, which: type_alias) -> None: ...

    [asked] = AskedParameters.of(aliased, ("request",)).items
    assert (asked.name, asked.annotation) == ("which", str)


def bad_form(request: Any, size: Annotated[dict, Ask("?", form=int)]) -> None: ...  # type: ignore[type-arg]
def bad_type(request: Any, author: Annotated[Author, Ask("?")]) -> None: ...
def bad_name(request: Any, größe: Annotated[int, Ask("?")]) -> None: ...


@pytest.mark.parametrize("function", [bad_form, bad_type, bad_name], ids=lambda function: function.__name__)
def test_what_no_form_can_ask_is_a_mistake_of_the_project(function: Any) -> None:
    with pytest.raises(ImproperlyConfigured):
        AskedParameters.of(function, ("request",))


@pytest.fixture
def request_():
    request = request_of(None)
    request.sent = []
    request.mcp.progress_token = "t"

    def notify(method, params):
        request.sent.append(tuple(params[name] for name in ("progress", "total", "message") if name in params))
        # Reports that follow each other too quickly are left out.
        request.mcp.told_at = 0.0

    request.mcp.notify = notify
    return request


def test_what_is_no_generator_is_the_value_itself(request_):
    assert finished(request_, 5) == 5
    assert list(finished(request_, (number for number in (1, 2)))) == [1, 2]
    assert request_.sent == []


def test_each_yield_reports_and_the_return_value_is_the_result(request_):
    def work():
        yield 1, 4
        yield
        yield 2, 4, "half"
        yield "nearly"
        yield 4, 4
        return "done"

    assert finished(request_, work()) == "done"
    assert [report[0] for report in request_.sent] == sorted({report[0] for report in request_.sent})
    assert request_.sent[0] == (1, 4)
    assert request_.sent[1] == (2, 4, "half")
    assert request_.sent[2][-1] == "nearly"
    assert int(request_.sent[2][0]) == 2
    assert request_.sent[3] == (4, 4)


def test_texts_alone_are_counted(request_):
    def work():
        yield "first"
        yield "second"

    assert finished(request_, work()) is None
    assert request_.sent == [(1, "first"), (2, "second")]


@pytest.mark.parametrize("report", [{"a": 1}, [1], (1,), ("a", 2), (1, 2, "x", 4)], ids=repr)
def test_what_is_no_report_is_an_error_of_the_project(request_, report):
    def work():
        yield report

    with pytest.raises(TypeError, match="yields its progress"):
        finished(request_, work())


def test_H154_a_call_that_nobody_waits_for_ends_at_the_next_yield_and_cleans_up(request_):
    seen = []

    def work():
        try:
            yield 1, 2
            request_.mcp.cancelled = True
            yield
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    with pytest.raises(Cancelled):
        finished(request_, work())
    assert seen == ["cleaned up"]
