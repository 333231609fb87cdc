"""Questions and answers, apart from any call."""

from typing import Any

import pytest
from django.core.cache import cache

from mcp_django.context.questions import (
    STATE_ERROR,
    Answers,
    Question,
    answer_schema,
    use_up,
)
from mcp_django.exceptions import Declined, InputRequired, ToolError
from mcp_django.protocol.client_requests import ClientRequest
from mcp_django.protocol.errors import InvalidParams
from mcp_django.schema.consent import ConsentForm

VERSION = "2026-07-28"


def question(key: str = "name", message: str = "Your name?", *names: str, **options: Any) -> Question:
    properties = {name: {"type": "string"} for name in (names or ("value",))}
    params = {"message": message, "requestedSchema": {"type": "object", "properties": properties}}
    return Question(key=key, method=ClientRequest.ELICITATION, params=params, **options)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def settle(answers: Answers, asked: Question, read: Any = dict) -> Any:
    return answers.settle(asked, VERSION, read)


def asks(answers: Answers, asked: Question, read: Any = dict) -> Question:
    with pytest.raises(InputRequired) as error:
        settle(answers, asked, read)
    [found] = error.value.questions
    return found


# Questions


def test_questions_differ_by_what_they_ask_and_not_by_why_they_are_asked_again() -> None:
    one = question()
    assert one.digest == question(key="other").digest == one.because("Too long.").digest
    others = [question(message="?"), question("name", "Your name?", "b"), question(proof=True), question(about="1")]
    assert len({one.digest, *(other.digest for other in others)}) == 5


def test_the_reason_stands_before_the_message() -> None:
    wire = question().because("Too long.").to_wire(VERSION)
    assert wire["method"] == ClientRequest.ELICITATION
    assert wire["params"]["message"] == "Too long.\n\nYour name?"
    assert question().to_wire(VERSION)["params"]["message"] == "Your name?"


def test_a_reason_is_bounded_and_left_out_where_there_is_no_message() -> None:
    assert len(question().because("x" * 5000).to_wire(VERSION)["params"]["message"]) < 1100
    roots = Question(key="r", method=ClientRequest.ROOTS, params={}, reason="Again.")
    assert roots.to_wire(VERSION) == {"method": ClientRequest.ROOTS, "params": {}}


# Answers


def test_an_answer_is_found_by_its_key() -> None:
    assert settle(Answers({"name": accept(value="Ada"), "more": 1}), question()) == {"value": "Ada"}


@pytest.mark.parametrize("given", [{}, {"other": accept(value="Ada")}, {"name": None}], ids=["none", "other", "null"])
def test_78_a_missing_answer_asks(given: Any) -> None:
    assert asks(Answers(given), question()) == question()


@pytest.mark.parametrize(
    "result", [12345, "Ada", [], {}, {"action": "yes"}, {"action": "accept", "content": 5}, {"content": {}}], ids=repr
)
def test_78_what_is_no_result_asks_again(result: Any) -> None:
    found = asks(Answers({"name": result}), question())
    assert found.reason
    assert found.digest == question().digest


def test_78_an_answer_that_does_not_fit_asks_again_with_the_reason() -> None:
    def read(content: Any) -> Any:
        raise ValueError("Too short.")

    assert asks(Answers({"name": accept(value="A")}), question(), read).reason == "Too short."


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_78_a_user_who_does_not_want_to_answer_ends_the_call(action: str) -> None:
    with pytest.raises(Declined, match="Nothing was changed") as error:
        settle(Answers({"name": {"action": action}}), question())
    assert error.value.action == action


def test_a_client_that_failed_to_ask_ends_the_call() -> None:
    with pytest.raises(ToolError, match="The client returned an error to our question"):
        settle(Answers({"name": {"error": {"code": -1, "message": "User rejected"}}}), question())


def test_answers_of_other_kinds_are_results_as_they_are() -> None:
    result = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
    asked = Question(key="s", method=ClientRequest.SAMPLING, params={"messages": [], "maxTokens": 1})
    assert settle(Answers({"s": result}), asked)["content"]["text"] == "Paris"


def test_two_questions_with_one_key_are_a_mistake_of_the_project() -> None:
    answers = Answers({"name": accept(value="Ada")})
    settle(answers, question())
    assert settle(answers, question()) == {"value": "Ada"}
    with pytest.raises(ValueError, match="have the key 'name'"):
        settle(answers, question(message="Another?"))


def test_keys_that_are_made_up_are_the_same_in_each_run() -> None:
    def keys() -> list[str]:
        answers, found = Answers(), []
        for message in ("a", "b", "a", "a"):
            asked = question(message=message)
            found.append(answers.unused_key(asked.digest))
            answers.get(question(found[-1], message))
        return found

    assert keys() == keys()
    assert len(set(keys())) == 4


# Rounds


def test_earlier_answers_are_carried_to_the_next_round() -> None:
    first = Answers()
    state = first.state([asks(first, question("a"))])
    second = Answers({"a": accept(value="1"), "junk": accept(value="2")}, state)
    assert settle(second, question("a")) == {"value": "1"}
    state = second.state([asks(second, question("b", "More?"))])
    assert "junk" not in str(state)
    third = Answers({"b": accept(value="3")}, state)
    assert (settle(third, question("a")), settle(third, question("b", "More?"))) == ({"value": "1"}, {"value": "3"})


def test_an_answer_to_a_question_that_this_run_did_not_come_to_is_kept_too() -> None:
    state = Answers().state([question("a"), question("b")])
    second = Answers({"b": accept(value="1")}, state)
    third = Answers({}, second.state([asks(second, question("a"))]))
    assert settle(third, question("b")) == {"value": "1"}


def test_an_answer_that_was_wrong_is_not_carried_on() -> None:
    def read(content: Any) -> Any:
        raise ValueError("No.")

    first = Answers({"a": accept(value="1")}, Answers().state([question("a")]))
    assert "kept" not in first.state([asks(first, question("a"), read)])


def test_no_two_states_are_alike() -> None:
    assert len({Answers().state([question()])["nonce"] for _ in range(20)}) == 20


def test_the_answers_that_a_call_carries_are_bounded() -> None:
    answers = Answers({"a": accept(value="x" * 40_000)}, Answers().state([question("a")]))
    with pytest.raises(ToolError, match="too long"):
        answers.state([question("b")])


def test_a_program_that_answers_wrongly_is_not_asked_without_end() -> None:
    state = None
    for _ in range(32):
        state = Answers({}, state).state([question()])
    with pytest.raises(ToolError, match="Gave up after 32 invalid answers"):
        Answers({}, state).state([question()])


@pytest.mark.parametrize("more", [{"enum": ["a"]}, {"oneOf": [{"const": "a", "title": "A"}]}, {"format": "date"}, {}])
def test_a_blank_date_or_choice_is_unfilled_and_asked_for_twice_and_a_blank_text_is_an_answer(more: Any) -> None:
    schema = {"type": "object", "properties": {"value": {"type": "string", **more}}, "required": ["value"]}
    asked, state = (
        Question(key="name", method=ClientRequest.ELICITATION, params={"message": "?", "requestedSchema": schema}),
        None,
    )
    if not more:
        assert settle(Answers({"name": accept(value="")}, Answers().state([asked])), asked) == {"value": ""}
        return
    for is_last in (False, True):
        answers = Answers({"name": accept(value="")}, state or Answers().state([asked]))
        again = asks(answers, asked)
        assert (again.reason, again.by_result) == ("value: This field is required.", is_last)
        state = answers.state([again])


# Proof


def proven(**given: Any) -> tuple[Question, Answers]:
    asked = question("sure", proof=True, about="row 1")
    return asked, Answers({"sure": accept(**given)}, Answers().state([asked]))


def test_77_an_answer_that_nobody_asked_for_proves_nothing() -> None:
    asked, _ = proven()
    assert asks(Answers({"sure": accept(value="yes")}), asked) == asked


def test_78_an_answer_about_something_else_proves_nothing_and_the_reason_is_told() -> None:
    _, answers = proven()
    other = question("sure", proof=True, about="row 2")
    assert asks(answers, other).reason == "What you were asked about has changed."


def test_an_answer_to_a_plain_question_proves_nothing() -> None:
    state = Answers().state([question("sure")])
    assert asks(Answers({"sure": accept(value="yes")}, state), proven()[0])


def test_156_a_proof_counts_once() -> None:
    asked = question("sure", proof=True)
    state = Answers().state([asked])
    first = Answers({"sure": accept()}, state)
    assert settle(first, asked) == settle(first, asked) == {}
    with pytest.raises(InvalidParams) as error:
        settle(Answers({"sure": accept()}, state), asked)
    assert error.value.message == STATE_ERROR


def test_156_a_proof_that_is_carried_on_counts_once_in_each_round() -> None:
    asked, answers = proven()
    settle(answers, asked)
    state = answers.state([asks(answers, question("b"))])
    assert settle(Answers({"b": accept()}, state), asked) == {}
    with pytest.raises(InvalidParams):
        settle(Answers({"b": accept()}, state), asked)


def test_79_plain_answers_need_no_cache() -> None:
    asked = question()
    state = Answers().state([asked])
    cache.clear()
    assert settle(Answers({"name": accept(value="a")}, state), asked) == settle(
        Answers({"name": accept(value="a")}, state), asked
    )


def test_a_nonce_is_used_once_for_each_purpose() -> None:
    assert use_up("a", "n", 10)
    assert use_up("b", "n", 10)
    assert not use_up("a", "n", 10)


# Several at once


def test_steps_that_ask_are_asked_together() -> None:
    def asking(key: str) -> Any:
        raise InputRequired([question(key)])

    with pytest.raises(InputRequired) as error:
        InputRequired.together([lambda: asking("a"), lambda: 1, lambda: asking("b")])
    assert [found.key for found in error.value.questions] == ["a", "b"]
    assert InputRequired.together([lambda: 1, lambda: 2]) == [1, 2]


def test_tasks_that_ask_at_the_same_time_ask_together() -> None:
    group = BaseExceptionGroup(
        "", [InputRequired([question("a")]), BaseExceptionGroup("", [InputRequired([question("b")])])]
    )
    error = InputRequired.merged(group)
    assert isinstance(error, InputRequired)
    assert [found.key for found in error.questions] == ["a", "b"]


def test_a_failure_beside_a_question_is_a_failure() -> None:
    error = InputRequired.merged(BaseExceptionGroup("", [InputRequired([question("a")]), RuntimeError("broken")]))
    assert isinstance(error, ExceptionGroup)
    plain = RuntimeError()
    assert InputRequired.merged(plain) is plain
    other = ExceptionGroup("", [plain])
    assert InputRequired.merged(other) is other


# Without elicitation


def test_a_form_with_one_field_is_answered_by_its_value() -> None:
    asked = question("name", "Your name?", "name")
    assert answer_schema(asked) == {"type": "string", "description": "Your name?"}
    assert settle(Answers({"name": "Ada"}, direct=True), asked) == {"name": "Ada"}
    assert settle(Answers({"name": {"name": "Ada"}}, direct=True), asked) == {"name": "Ada"}


def test_a_form_with_several_fields_is_answered_by_an_object() -> None:
    asked = question("name", "Who?", "first", "last").because("Too long.")
    schema = answer_schema(asked)
    assert (list(schema["properties"]), schema["description"]) == (["first", "last"], "Too long. Who?")
    assert settle(Answers({"name": {"first": "Ada"}}, direct=True), asked) == {"first": "Ada"}
    assert asks(Answers({"name": "Ada"}, direct=True), asked).reason == "expected an object with first, last"


def test_77_consent_is_answered_by_true() -> None:
    params = {"message": "Sure?", "requestedSchema": ConsentForm.ONLY_CONSENT}
    asked = Question(key="sure", method=ClientRequest.ELICITATION, params=params)
    assert answer_schema(asked)["type"] == "boolean"
    for consent in (True, "true", "yes"):
        assert settle(Answers({"sure": consent}, direct=True), asked) == {"_confirm": "yes"}
    for refusal in (False, "false", "no"):
        with pytest.raises(Declined):
            settle(Answers({"sure": refusal}, direct=True), asked)
    for other in (1, 0, {}, [], "", {"value": True}):
        assert asks(Answers({"sure": other}, direct=True), asked).reason == "expected true or false"


def test_direct_answers_are_repeated_by_the_client_and_not_carried() -> None:
    answers = Answers({"name": "Ada"}, direct=True)
    settle(answers, question())
    assert "Ada" not in str(answers.state([question("b")]))
    assert [found.key for found in answers.seen] == ["name"]


def test_direct_answers_prove_what_their_state_says_was_asked() -> None:
    asked = question("sure", proof=True)
    assert settle(Answers({"sure": "yes"}, Answers().state([asked]), direct=True), asked) == {"value": "yes"}
    assert asks(Answers({"sure": "yes"}, direct=True), asked)
    assert settle(Answers({"sure": "yes"}, direct=True, trusted=True), asked) == {"value": "yes"}
