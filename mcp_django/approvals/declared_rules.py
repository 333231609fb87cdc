"""The rules that code declares: beside exposures, actions and tools."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..context.request import MCPRequest
from ..exposures.declared_approvals import Approval
from .rules import Rule

# What was declared, with its rule: it stays as long as the process.
_RULES: dict[int, tuple[Approval, Rule]] = {}


def declared_rules(request: MCPRequest, tool: Any, arguments: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield the rules that are declared beside the site's exposures, for all that is written, and beside this tool or
    the action that it runs."""
    for exposure in request.mcp.site.exposures.values():
        for approval in Approval.listed(exposure.approval):
            yield _rule(approval, f"approval of {exposure.label}", labels=[exposure.label])
    for approval in tool.declared_approvals(request, arguments):
        yield _rule(approval, f"approval of {tool.name}", tools=[tool.name])


def _rule(approval: Approval, name: str, **scope: Any) -> Rule:
    known = _RULES.get(id(approval))
    if known is None:
        known = _RULES[id(approval)] = approval, Rule.declared(approval, approval.name or name, **scope)
    return known[1]
