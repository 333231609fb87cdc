"""Questions for clients that cannot ask their user: a tool result that asks, and arguments that answer.

The result has the questions as a JSON Schema and a token; the same call, with ``answers`` and ``confirm_token`` beside
its own arguments, goes on. The token is bound to the user, the tool, the arguments and the questions, expires after
``QUESTION_TIMEOUT`` seconds and is used up by the call that brings it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..conf import settings
from ..context.confirmation import REFUSED, answers_schema, can_be_direct, open_state, repeated, seal_state
from ..context.questions import Answers, use_up
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import InputRequired, NotConfirmed, ToolError
from ..functions.asking import RESERVED
from ..orm.arguments import as_object
from ..protocol.content import Text
from ..protocol.errors import InvalidParams
from .base import Tool

if TYPE_CHECKING:
    from .functions import FunctionTool

METHOD: Final = "tools/call"
NEXT: Final = (
    "Nothing has been changed yet. Ask the user; then call again with the same arguments, answers and confirm_token."
)


def take_direct_answers(request: MCPRequest, tool: "FunctionTool", arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without the reserved ones, whose answers the call then has."""
    if not tool.takes_answers:
        return dict(arguments)
    own = {name: value for name, value in arguments.items() if name not in RESERVED}
    token, given = arguments.get("confirm_token"), as_object(arguments.get("answers") or None, "answers")
    if not token:
        if given:
            then = "the result has the questions and a confirm_token to send with the answers"
            raise ToolError(f'Call without "answers" first; {then}.')
        return own
    try:
        state = open_state(request, METHOD, {"name": tool.name, "arguments": own}, token)
    except InvalidParams:
        raise NotConfirmed(REFUSED) from None
    if not use_up("answered", state["nonce"], settings.QUESTION_TIMEOUT):
        raise NotConfirmed(REFUSED)
    request.mcp.answers = Answers(given, state, direct=True)
    return own


def ask_by_result(request: MCPRequest, tool: Tool, arguments: Mapping[str, Any], asked: InputRequired) -> ToolResult:
    """Return the result that asks; ``asked`` is raised where the client is asked in its own way, or not at all."""
    takes_answers = getattr(tool, "takes_answers", False)
    if not takes_answers or not can_be_direct(request, asked.questions):
        raise asked
    failed = [question.reason for question in asked.questions if question.reason]
    request.mcp.record.settle("asked")
    state = request.mcp.answers.state(repeated(request, asked.questions).values())
    result = {
        "input_required": True,
        "message": "\n".join(str(question.params["message"]) for question in asked.questions),
        **({"errors": failed} if failed else {}),
        "answers": answers_schema(request, asked.questions),
        "next": NEXT,
        "confirm_token": seal_state(request, METHOD, {"name": tool.name, "arguments": dict(arguments)}, state),
        "expires_in": settings.QUESTION_TIMEOUT,
    }
    if tool.output_schema is None:
        return ToolResult(structured=result, is_error=bool(failed))
    # Clients check structured content against the schema, those of the TypeScript SDK that of errors too.
    return ToolResult(content=[Text(orjson.dumps(result).decode())], is_error=True)
