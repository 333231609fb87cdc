"""The approval rules that code declares: beside an exposure, an action or a tool of a site."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..context.request import MCPRequest
from ..exposures.declared_approvals import Approval
from ..exposures.model_exposure import ModelExposure
from .rules import Rule

# What was declared, with its rule, by what it stands beside: it stays as long as the process. One approval can stand
# beside several tools.
_RULES: dict[tuple[int, str], tuple[Approval, Rule]] = {}


class Declaration(NamedTuple):
    """What is declared as an approval: ``where``, for people, and what it stands beside: labels, actions or tools."""

    where: str
    value: Any
    scope: Mapping[str, Any]

    @property
    def items(self) -> list[Any]:
        """The approvals, and what stands there in place of one."""
        if self.value is None:
            return []
        return list(self.value) if isinstance(self.value, (list, tuple)) else [self.value]

    @property
    def rules(self) -> list[Rule]:
        """The approvals as rules."""
        return [Rule.declared(item, self.where, **self.scope) for item in self.items if isinstance(item, Approval)]


def declarations(sites: Iterable[Any]) -> Iterator[Declaration]:
    """Yield all that the exposures, actions and tools of sites declare."""
    for site in sites:
        for exposure in site.exposures.values():
            name = type(exposure).__name__
            yield Declaration(name, getattr(exposure, "approval", None), {"labels": [exposure.label]})
            for action in exposure.options.action_names():
                scope = {"actions": [f"{exposure.label}.{action}"]}
                yield Declaration(f"{name}.{action}", _of_action(exposure, action), scope)
        for tool in site.function_tools():
            yield Declaration(tool.name, getattr(tool, "approval", None), {"tools": [tool.name]})


def _of_action(exposure: ModelExposure, name: str) -> Any:
    """Return what an action declares, by the decorator or, in an admin, by an attribute."""
    function = getattr(exposure, name, None) or getattr(exposure.model_admin, name, None)
    return getattr(function, "mcp_approval", getattr(getattr(function, "mcp_action", None), "approval", None))


def declared_rules(request: MCPRequest, tool: Any, arguments: Mapping[str, Any]) -> Iterator[Rule]:
    """Yield the rules that are declared beside the site's exposures, for all that is written, and beside this tool or
    the action that it runs."""
    for exposure in request.mcp.site.exposures.values():
        for approval in Approval.listed(exposure.approval):
            yield _rule(approval, f"approval of {exposure.label}", labels=[exposure.label])
    for approval in tool.declared_approvals(request, arguments):
        yield _rule(approval, f"approval of {tool.name}", tools=[tool.name])


def _rule(approval: Approval, name: str, **scope: Any) -> Rule:
    key = id(approval), str(scope)
    known = _RULES.get(key)
    if known is None:
        known = _RULES[key] = approval, Rule.declared(approval, approval.name or name, **scope)
    return known[1]
