from mcp_django.context.questions import Question
from mcp_django.exceptions import AuthenticationFailed, Declined, InputRequired, InsufficientScope, ToolError


def test_a_tool_error_carries_its_text():
    assert ToolError("no such order").message == "no such order"


def test_missing_scopes_are_all_named_in_a_stable_order():
    error = InsufficientScope(["mcp:write", "mcp:read"])
    assert str(error) == "insufficient scope: mcp:read mcp:write"
    assert error.required == {"mcp:read", "mcp:write"}


def test_a_missing_token_and_a_bad_one_differ():
    assert not AuthenticationFailed(invalid=False).invalid
    assert AuthenticationFailed(invalid=True).invalid


def test_a_declined_question_is_told_to_the_model():
    assert Declined().message.startswith("The user declined. Nothing was changed.")
    assert Declined("cancel").message.startswith("The user dismissed the question. Nothing was changed.")


def test_what_is_required_is_named():
    questions = [Question(key=key, method="roots/list", params={}) for key in ("a", "b")]
    error = InputRequired(iter(questions))
    assert error.questions == tuple(questions)
    assert str(error) == "a, b"
