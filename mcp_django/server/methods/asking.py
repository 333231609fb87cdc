"""Calls that have to ask first: the answers that come with a call, and what becomes of one that has none yet.

On 2026-07-28 the call is answered with an input-required result, and the client makes it again with the answers and the
``requestState`` that it got (basic/patterns/mrtr). In the older era the transport puts the questions to the client.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...context.confirmation import open_state, seal_state
from ...context.questions import Answers, Question
from ...context.request import MCPRequest
from ...context.results import error_result
from ...exceptions import ToolError
from ...protocol.client_requests import required_capability
from ...protocol.clients import limits_of
from ...protocol.eras import Call
from ...protocol.errors import InvalidParams, MissingClientCapability
from .base import Asked

# The methods that may be answered with a question (basic/patterns/mrtr, Supported Requests).
ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})


def take_answers(request: MCPRequest, call: Call) -> None:
    """Give a call of ``ASKING`` the answers that came with it; a transport of the older era has given it those it has.

    Raises:
        InvalidParams: ``requestState`` is none that was given to this caller for this call.
    """
    mcp = request.mcp
    if not call.era.modern:
        # Progress must increase from one run to the next, as it is told on the same stream.
        mcp.last_progress = mcp.answers.progress
        return
    mcp.live = True
    if call.input_responses is None and call.request_state is None:
        return
    state = None
    if call.request_state is not None:
        state = open_state(request, call.method, call.params, call.request_state)
    mcp.answers = Answers(call.input_responses, state)


def pause(request: MCPRequest, call: Call, questions: Sequence[Question]) -> Mapping[str, Any] | Asked:
    """Return the input-required result, or in the older era the questions for the transport.

    Raises:
        MissingClientCapability, InvalidParams: the client cannot be asked that.
    """
    mcp = request.mcp
    if call.method not in ASKING:
        raise TypeError(f"{call.method} cannot ask")
    if beyond := [question for question in questions if not mcp.takes(question.method, question.params)]:
        raise _unable(call, beyond)
    try:
        state = mcp.answers.state(questions)
    except ToolError as error:
        if call.method != "tools/call":
            raise
        return error_result(error).to_wire()
    as_text = not limits_of(mcp.client.name).shows_numbers
    questions = [replace(question, as_text=as_text) for question in questions]
    if not call.era.modern:
        mcp.answers.progress = mcp.last_progress
        return Asked(tuple(questions))
    return {
        "resultType": "input_required",
        "inputRequests": {question.key: question.to_wire(call.version) for question in questions},
        "requestState": seal_state(request, call.method, call.params, state),
    }


def _unable(call: Call, beyond: Sequence[Question]) -> MissingClientCapability | InvalidParams:
    required: dict[str, Any] = {}
    for question in beyond:
        for name, needed in required_capability(question.method, question.params).items():
            required[name] = {**required.get(name, {}), **needed}
    if call.era.modern:
        return MissingClientCapability(required)
    return InvalidParams(f"This needs a session with a client that supports {', '.join(required)}")
