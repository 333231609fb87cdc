"""Questions to the client's user about rows."""

import pytest

from mcp_django.context.confirmation import Confirmation, DirectAnswers, quoted
from mcp_django.context.questions import Answers
from mcp_django.exceptions import Declined, InputRequired, NotConfirmed
from tests.factories import make_author, make_user
from tests.question_rounds import DECLINE, ELICITS, YES, accept
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    return make_user("ann")


def asker(user, answers=None, **options):
    options = {"version": "2026-07-28", "capabilities": ELICITS, "live": True, **options}
    return request_of(user, answers=answers or Answers(), **options)


def test_77_only_who_can_ask_its_user_is_asked(user):
    assert asker(user).mcp.can("elicitation")
    assert not asker(user, capabilities={}).mcp.can("elicitation")
    assert not asker(user, capabilities={"elicitation": {"url": {}}}).mcp.can("elicitation")
    assert not asker(user, version="2025-03-26").mcp.can("elicitation")
    assert not asker(user, live=False).mcp.can("elicitation")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\r\n\r\nof\u2028text", "“two lines of text”"),
        ("he said “yes” and „no”", "“he said 'yes' and 'no'”"),
        ("\u202eDNE\u202c \x1b[2J\x00a\u200bb", r"“\u202eDNE\u202c \x1b[2J\x00a\u200bb”"),
        ("x" * 1_000, f"“{'x' * 100}…”"),
        ("", "“”"),
        (5, "“5”"),
    ],
)
def test_what_rows_hold_is_quoted_in_one_line(text, shown):
    assert quoted(text) == shown


def rows_question(rows, message="?", *schema, key="k"):
    return Confirmation(None, "tool", {}, rows).question(key, message, *schema)


def test_a_question_is_about_its_rows_in_any_order():
    one, two = make_author(), make_author()
    digests = {rows_question(rows).digest for rows in ([one, two], [two, one])}
    assert len(digests) == 1
    assert rows_question([one]).digest not in digests
    assert rows_question([one, two], "!").digest not in digests
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert rows_question([one, two], "?", schema).digest not in digests


def test_a_long_message_is_cut():
    message = rows_question([], "x" * 10_000).params["message"]
    assert len(message) == 4_001
    assert message.endswith("…")


def go_on(request):
    return Confirmation(request, "tool", {}, [1]).ask("Go on?")


def test_78_consent_is_given_or_not(user):
    request = asker(user)
    with pytest.raises(InputRequired) as error:
        go_on(request)
    [question] = error.value.questions
    state = request.mcp.answers.state([question])
    assert go_on(asker(user, Answers({"_confirm": YES}, state))) is None
    for answers in (Answers({"_confirm": YES}), Answers({}, state)):
        with pytest.raises(InputRequired):
            go_on(asker(user, answers))
    with pytest.raises(Declined):
        go_on(asker(user, Answers({"_confirm": DECLINE}, request.mcp.answers.state([question]))))


def test_what_was_entered_is_the_answer(user):
    question = rows_question([], "?", {"type": "object", "properties": {"a": {"type": "string"}}})
    answers = Answers({"k": accept(a="x", _confirm="yes")}, Answers().state([question]))
    assert Confirmation(asker(user, answers), "tool", {}, []).settle(question) == {"a": "x"}


def test_a_form_that_nobody_filled_in_confirms_nothing_where_a_person_can_be_asked(user):
    DirectAnswers(asker(user, capabilities={}), []).check()
    with pytest.raises(NotConfirmed) as error:
        DirectAnswers(asker(user), []).check()
    assert "Nobody filled in the form" in error.value.message


def test_an_answer_with_values_that_no_form_has_is_no_yes_of_the_model(user):
    request = asker(user)
    question = Confirmation(request, "delete", {}, []).question("sure", "Delete it?")
    misfit = question.because("Confirm: Give one value.", is_misfit=True)
    with pytest.raises(NotConfirmed, match=r"not valid\. Confirm: Give one value\. Nothing was changed\."):
        DirectAnswers(request, [misfit]).check()
