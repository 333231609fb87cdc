"""Questions for clients that cannot ask their user: a result that asks, and arguments that answer.

The result has the questions as a JSON Schema, and a token. The client repeats the call with two more arguments,
``answers`` and ``confirm_token``. The token is bound to the user, the tool, the arguments and the questions, expires
after ``QUESTION_TIMEOUT`` seconds and can be used once.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import orjson

from ..conf import settings
from ..context.confirmation import CallState, Confirmation, DirectAnswers
from ..context.questions import Answers
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import InputRequired, ToolError
from ..orm.tool_arguments import Arguments
from ..protocol.content import Text
from .base import Tool

METHOD: Final = "tools/call"
# Where a person confirms the call afterwards.
ASK_FIRST: Final = "Nothing has been changed yet. Ask the user, and call again with the same arguments and {}."
ANSWERS: Final = "the user's answers as answers, and confirm_token"


class AskingTool(Tool):
    """Base class of tools whose results can ask the user.

    ``reserved`` are the names of arguments that belong to answers, and ``confirms`` says that the tool may destroy
    something.
    """

    reserved: AbstractSet[str] = frozenset()
    confirms: bool = False

    def take_answers(self, request: MCPRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool's own arguments, after taking the user's direct answers out of them."""
        own = {name: value for name, value in arguments.items() if name not in self.reserved}
        reserved = {name: value for name, value in arguments.items() if name in self.reserved}
        token = reserved.get("confirm_token")
        given = Arguments(answers=reserved.get("answers") or None).object("answers")
        if not token:
            if given:
                then = "the result has the questions and a confirm_token to send with the answers"
                raise ToolError(f'Call without "answers" first; {then}.')
            return own
        state = CallState(request, METHOD, {"name": self.name, "arguments": own}).redeem(token)
        if Confirmation.KEY in state["asked"]:
            # The token itself confirms the call.
            given = {**given, Confirmation.KEY: True}
        request.mcp.answers = Answers(given, state, direct=True)
        return own

    def ask(self, request: MCPRequest, arguments: Mapping[str, Any], asked: InputRequired) -> ToolResult:
        """Ask the user by the result; raise ``asked`` for clients that ask in their own way.

        Raises ``NotConfirmed`` if such a client answers for its user and the tool may destroy something.
        """
        direct = DirectAnswers(request, asked.questions)
        if not direct.suit:
            raise asked
        schema = direct.schema()
        needed = {"answers", "confirm_token"} if schema["properties"] else {"confirm_token"}
        if not needed <= self.reserved:
            raise asked
        if self.confirms:
            direct.check()
        failed = [question.reason for question in asked.questions if question.reason]
        request.mcp.record.settle("asked")
        state = request.mcp.answers.state(direct.questions.values())
        waiting = CallState(request, METHOD, {"name": self.name, "arguments": dict(arguments)})
        needed_words = ANSWERS if schema["properties"] else "confirm_token"
        result = {
            **({"input_required": True} if schema["properties"] else {"confirmation_required": True}),
            "message": "\n".join(str(question.params["message"]) for question in asked.questions),
            **({"errors": failed} if failed else {}),
            **({"answers": schema} if schema["properties"] else {}),
            "next": (ASK_FIRST if self.only_person_confirms() else Confirmation.NEXT).format(needed_words),
            "confirm_token": waiting.seal(state),
            "expires_in": settings.QUESTION_TIMEOUT,
        }
        if self.output_schema is None:
            return ToolResult(structured=result, is_error=bool(failed))
        # Clients check structured content against the output schema, and the TypeScript SDK does so for errors too.
        return ToolResult(content=[Text(orjson.dumps(result).decode())], is_error=True)
