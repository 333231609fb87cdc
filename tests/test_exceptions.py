from mcp_django.exceptions import AuthenticationFailed, InsufficientScope, ToolError


def test_a_tool_error_carries_its_text():
    assert ToolError("no such order").message == "no such order"


def test_missing_scopes_are_all_named_in_a_stable_order():
    error = InsufficientScope(["mcp:write", "mcp:read"])
    assert str(error) == "insufficient scope: mcp:read mcp:write"
    assert error.required == {"mcp:read", "mcp:write"}


def test_a_missing_token_and_a_bad_one_differ():
    assert not AuthenticationFailed(invalid=False).invalid
    assert AuthenticationFailed(invalid=True).invalid
