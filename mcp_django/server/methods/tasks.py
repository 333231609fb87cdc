"""Handlers of the methods for tasks: how one stands, answers to what it asks, and cancelling it (ext-tasks)."""

from collections.abc import Mapping
from typing import Any

from ...context.request import MCPRequest
from ...context.task_desk import TaskDesk
from ...protocol.errors import MethodNotFound, MissingClientCapability
from ...protocol.tasks import REQUIRED


def _desk(request: MCPRequest) -> TaskDesk:
    """Return the caller's tasks.

    Raises:
        MethodNotFound: there are none here.
        MissingClientCapability: the client has not declared with this request that it takes tasks.
    """
    if request.mcp.tasks is None:
        raise MethodNotFound
    if not request.mcp.takes_tasks:
        raise MissingClientCapability(REQUIRED)
    return request.mcp.tasks


def get_task(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Handle ``tasks/get``: how a task of the caller stands, with its result, its error or its questions."""
    return _desk(request).get(params["taskId"])


def update_task(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Handle ``tasks/update``: the client's answers to the questions of a task."""
    return _desk(request).update(params["taskId"], params["inputResponses"])


def cancel_task(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Handle ``tasks/cancel``: end a task that has not ended."""
    return _desk(request).cancel(params["taskId"])
