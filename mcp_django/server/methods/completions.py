"""``completion/complete``."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ...completions import Completion
from ...completions.templates import ModelTemplate
from ...conf import settings
from ...context.request import MCPRequest
from ...orm.access import visible_exposures
from ...orm.query_limits import read_limits
from ...protocol.errors import InternalError, InvalidParams
from ...runtime.throttling import caller_of, hit_if_counted
from ...scopes import READ
from .base import Later, require_scopes

# One text for what is missing and what is forbidden.
UNKNOWN: Final = "Unknown prompt, resource template or argument"


class Source(Protocol):
    """What has arguments to complete."""

    def takes(self, name: str) -> bool: ...
    def is_slow(self, name: str) -> bool: ...
    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion: ...


def complete(request: MCPRequest, params: Mapping[str, Any]) -> Mapping[str, Any] | Later:
    """Answer with values for one argument, of what the caller may view."""
    require_scopes(request, [READ])
    _count(request)
    name, value = params["argument"]["name"], params["argument"]["value"]
    found = _source(request, params["ref"])
    if found is None or not found[0].takes(name):
        raise InvalidParams(UNKNOWN)
    source, given = found
    context = {**given, **((params.get("context") or {}).get("arguments") or {})}
    context.pop(name, None)

    def work() -> dict[str, Any]:
        return {"completion": source.complete(request, name, value, context).to_wire()}

    if source.is_slow(name):
        return Later(work)
    with read_limits():
        return work()


def _source(request: MCPRequest, ref: Mapping[str, Any]) -> tuple[Source, Mapping[str, str]] | None:
    """Return what the reference leads to and the arguments that it gives, None where that is nothing."""
    site = request.mcp.site
    if ref["type"] == "ref/prompt":
        prompt = site.get_prompt(request, ref["name"])
        if prompt is None:
            return None
        require_scopes(request, prompt.scopes)
        return prompt.completer, {}
    uri: str = ref["uri"]
    for resource in site.get_function_templates(request):
        given = {} if uri == resource.uri else resource.matches(uri)
        if given is not None:
            require_scopes(request, resource.scopes)
            return resource.completer, given
    template = ModelTemplate.read(uri) if visible_exposures(request) else None
    return (template, {}) if template is not None else None


def _count(request: MCPRequest) -> None:
    """Count one completion of the caller against ``COMPLETION_RATE``.

    A cache that is out of order limits nothing: the transport counts calls by the same rule.

    Raises:
        InternalError: the completions of this period are used up; ``data.retryAfter`` is in seconds.
    """
    retry_after = hit_if_counted("completions", caller_of(request), settings.COMPLETION_RATE)
    if retry_after is not None:
        raise InternalError("Too many completions: try again later", data={"retryAfter": retry_after})
