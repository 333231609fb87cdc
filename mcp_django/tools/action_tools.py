"""The tools that run actions: one for each action of a model, and ``run_action`` for all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

import orjson
from django.core.exceptions import ImproperlyConfigured
from django.db.models.options import Options

from ..conf import settings
from ..context.person_consent import may_need_person, needs_person
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.action_trials import TriableActionCall
from ..emulation.action_calls import ActionCall
from ..emulation.admin_exposure import AdminExposure
from ..emulation.picked_rows import Selection
from ..exceptions import NotFound, NotPermitted, ToolError
from ..exposures.declared_actions import Action
from ..exposures.declared_approvals import Approval
from ..exposures.declared_tasks import TaskOptions
from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess, access_of
from ..orm.nearest_names import Misnamed
from ..orm.suggestions import with_argument
from ..orm.tool_arguments import Arguments
from ..schema.form_schemas import FormField
from ..schema.value_types import FREE_OBJECT
from ..scopes import Scope
from .base import DRY_RUN, IDEMPOTENCY_KEY, UNTRIED, Tool
from .model_overview import choice_words

# Maximum number of cached action tools: an admin can describe an action differently to each caller.
MAX_TOOLS: Final = 1_000
# Characters of JSON from which a parameter's schema is not repeated in other action tools.
LONG: Final = 100
FORM: Final[Mapping[str, Any]] = {**FREE_OBJECT, "description": "Fields it asks for"}
CONFIRM_TOKEN: Final[Mapping[str, Any]] = {"type": "string", "description": "From its question"}
# Arguments of actions that can be tried. The version is what a dry run returns.
TRYING: Final[Mapping[str, Any]] = {"dry_run": DRY_RUN, "version": {"type": "string"}}
# Names that no parameter of an action can have. One called filters, search or all replaces that way to pick rows.
RESERVED: Final = frozenset({"pks", "form", "confirm_token"})


def action_tool_name(name: str, opts: "Options[Any]") -> str:
    """Return the name of an action tool, such as ``mark_shipped_shop_order``."""
    return Tool.safe_name(f"{name}_{opts.app_label}_{opts.model_name}")


class ActionTool(Tool):
    """A tool for one action of one model."""

    slow = True

    def __init__(self, action: Action) -> None:
        opts = action.exposure.opts
        self.action = action
        self.name = action_tool_name(action.name, opts)
        self.title = f"{action.title} ({action.exposure.label})"
        asked = [*action.asks_for, *(["confirmation"] if action.confirms and not action.asks_by_page else [])]
        asks = f" Asks for {', '.join(asked)} first." if asked else ""
        required = ", ".join(action.schema.get("required", ()))
        needs = f" Needs {required}." if required else ""
        self.description = (
            f"{action.description or action.title}\nRuns on rows of {action.exposure.label}.{needs}{asks}"
        )
        self.read_only = action.read_only
        self.destructive = action.destructive
        self.task = action.options.task
        self.scopes = frozenset({Scope.READ if action.read_only else Scope.WRITE})
        parameters: Mapping[str, Any] = action.schema.get("properties", {})
        self.parameters = frozenset(parameters)
        self.takes_key = not action.only_looks and "idempotency_key" not in parameters
        reserved = {*RESERVED, *(["dry_run"] if TriableActionCall.fits(action) else [])}
        if clashing := parameters.keys() & reserved:
            raise ImproperlyConfigured(f"{action.key} cannot have a parameter named {', '.join(sorted(clashing))}.")
        # To save tokens, only run_action describes what all action tools share, and declares the rare arguments.
        asking: dict[str, Any] = {}
        if action.has_form:
            # Describe the fields of its form with their declared choices: computed choices could be rows.
            words = []
            for name, field in action.fields.items():
                mark = "*" if field is None or FormField(field).is_required else ""
                choices = getattr(field, "choices", None)
                known = choices if isinstance(choices, list) else []
                stored = [(str(value), str(label)) for value, label in known if value]
                words.append(" ".join([name + mark, *([choice_words(stored)] if stored else [])]))
            asking["form"] = {**FREE_OBJECT, **({"description": ", ".join(words)} if words else {})}
        if asking or not action.only_looks:
            asking["confirm_token"] = {"type": "string"}
        if TriableActionCall.fits(action):
            asking["dry_run"] = DRY_RUN
        self.input_schema = {"type": "object", "properties": {**Selection.PICKING, **parameters, **asking}}
        if "required" in action.schema:
            self.input_schema["required"] = action.schema["required"]
        self._referring: dict[tuple[tuple[str, str], ...], ActionTool] = {}

    @cached_property
    def long_parameters(self) -> dict[str, str]:
        """The action tool's parameters with long schemas, each with its name as JSON."""
        own = {name: orjson.dumps([name, self.input_schema["properties"][name]]).decode() for name in self.parameters}
        return {name: text for name, text in own.items() if len(text) >= LONG}

    def referring(self, told: Mapping[str, str]) -> "ActionTool":
        """Return the action tool with parameters that refer to equal ones of other action tools."""
        key = tuple(sorted(told.items()))
        if key not in self._referring:
            tool = self._referring[key] = copy(self)
            tool.__dict__.pop("_encoded", None)
            properties = dict(self.input_schema["properties"])
            for name, other in told.items():
                kept = {part: properties[name][part] for part in ("type", "anyOf", "items") if part in properties[name]}
                properties[name] = {**kept, "description": f"As in {other}"}
            tool.input_schema = {**self.input_schema, "properties": properties}
        return self._referring[key]

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may see the model and run the action."""
        if settings.READ_ONLY and not self.read_only:
            return False
        model = access_of(request)[self.action.exposure]
        return model.may("view") and self.action.name in model.permitted_actions

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        return self.action.atomic

    def may_need_person(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person has to confirm some calls of the action."""
        return may_need_person(self.action.options.confirm, self.action.exposure.confirm)

    def declared_approvals(self, request: MCPRequest, arguments: Mapping[str, Any]) -> Sequence[Approval]:
        """Return the approvals that are declared beside the action."""
        return self.action.options.approval

    def only_person_confirms(self) -> bool:
        """Return whether only a person can confirm runs of the action."""
        return not self.read_only and needs_person(self.action.options.confirm, self.action.exposure.confirm)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        # An action can ask without having declared it, so accept answers with any token.
        asked = {"form": FORM, "confirm_token": CONFIRM_TOKEN} if "confirm_token" in arguments else {}
        known = {**Selection.EVERYTHING, **TRYING, **self.input_schema["properties"], **asked}
        given = Arguments.of_write(arguments, known, keeping=self.parameters)
        action = _find_action(access_of(request)[self.action.exposure], self.action.name)
        names = {*Selection.EVERYTHING, *RESERVED, *TRYING} - self.parameters
        common = {name: given.pop(name, None) for name in names}
        return _run(request, action, common, given)


class ActionTools:
    """Registry of a site's action tools, each made once."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self._made: dict[tuple[Any, ...], ActionTool] = {}
        self._by_name: dict[str, tuple[ModelExposure, str]] | None = None

    def clear(self) -> None:
        """Forget all action tools, because the exposures of the site have changed."""
        self._made.clear()
        self._by_name = None

    def declared(self) -> Iterator[tuple[str, tuple[ModelExposure, str]]]:
        """Yield the name of each action tool of the site, with the exposure and the name of the action."""
        for exposure in self.site.exposures.values():
            for name in exposure.options.action_names():
                yield action_tool_name(name, exposure.opts), (exposure, name)

    def of_caller(self, models: Iterable[ModelAccess]) -> list[ActionTool]:
        """Return the action tools that the caller may run on rows of the models."""
        found = [model.actions for model in models]
        return [self._tool(action) for actions in found for action in actions.values()]

    def declare_tasks(self) -> bool:
        """Return whether an action is declared to go on as a task, whoever can run it."""
        return any(map(_may_declare_task, self.site.exposures.values()))

    def becoming_tasks(self, request: MCPRequest) -> list[ActionTool]:
        """Return the caller's action tools that are declared to go on as tasks."""
        exposures = filter(_may_declare_task, self.site.exposures.values())
        models = (access_of(request)[exposure] for exposure in exposures)
        tools = self.of_caller(model for model in models if model.may("view"))
        return [tool for tool in tools if tool.task is not None]

    def named(self, request: MCPRequest, name: str) -> ActionTool | None:
        """Return the caller's action tool of this name."""
        exposure, action_name = self._known().get(name, (None, ""))
        # Find actions that are switched off too, so that the caller is told why.
        model = access_of(request)[exposure] if exposure is not None else None
        if model is not None and model.may("view") and (action := model.permitted_actions.get(action_name)):
            return self._tool(action)
        return next((tool for tool in self.of_caller(access_of(request).models) if tool.name == name), None)

    def is_declared(self, name: str) -> bool:
        """Return whether there is an action tool of this name, for any caller."""
        return name in self._known()

    def _known(self) -> dict[str, tuple[ModelExposure, str]]:
        # Read the exposures first: if they have changed, this clears the cache.
        self.site.exposures  # noqa: B018
        if self._by_name is None:
            self._by_name = dict(self.declared())
        return self._by_name

    def _tool(self, action: Action) -> ActionTool:
        # The key has all that the tool shows: an admin can describe an action differently to each caller.
        key = (action.exposure.label, action.name, action.description, action.options)
        tool = self._made.get(key)
        if tool is None:
            if len(self._made) >= MAX_TOOLS:
                self._made.clear()
            tool = self._made[key] = ActionTool(action)
        return tool

    @staticmethod
    def listed(tools: Iterable[ActionTool]) -> list[ActionTool]:
        """Return the action tools as clients list them: later ones refer to the first that has a long parameter."""
        first: dict[str, str] = {}
        found = []
        for tool in tools:
            told = {name: first[text] for name, text in tool.long_parameters.items() if text in first}
            for text in tool.long_parameters.values():
                first.setdefault(text, tool.name)
            found.append(tool.referring(told) if told else tool)
        return found


def _may_declare_task(exposure: ModelExposure) -> bool:
    """Return whether an action of the exposure may go on as a task, for any caller."""
    functions = [getattr(exposure, name, None) for name in exposure.actions]
    if isinstance(exposure, AdminExposure):
        if exposure.overrides("get_actions", "_get_base_actions"):
            # Which actions there are is known for each caller alone.
            return True
        base: Any = exposure.model_admin
        functions += [AdminExposure.action_parts(action)[0] for action in base._get_base_actions()]
        functions += [button.function for button in exposure.options.buttons]
    declared = [(getattr(function, "mcp_action", None), function) for function in functions]
    return any(getattr(options, "task", None) or getattr(function, "mcp_task", None) for options, function in declared)


def _find_action(model: ModelAccess, name: Any) -> Action:
    """Return the action that an action tool runs; a forbidden one is refused like a missing one."""
    exposure = model.exposure
    actions = model.permitted_actions
    if settings.READ_ONLY:
        actions = {key: action for key, action in actions.items() if action.read_only}
    found = actions.get(name) if isinstance(name, str) else None
    if found is None:
        repair = partial(with_argument, "action", is_spelling=True)
        error = Misnamed(f"{exposure.label} has no such action.", name, actions, repair)
        if name in exposure.options.action_names():
            error.outcome = NotPermitted.outcome
        raise error
    model.refuse_switched(found.name)
    return found


def _run(request: MCPRequest, action: Action, arguments: Mapping[str, Any], own: Mapping[str, Any]) -> ToolResult:
    """Run an action, or try it; ``own`` are the arguments that it declares."""
    if TriableActionCall.fits(action):
        return _bounded(request, action, TriableActionCall(request, action, arguments, own).run())
    if Arguments(arguments).flag("dry_run"):
        raise ToolError(UNTRIED.format("action"))
    if arguments.get("version") is not None:
        raise ToolError(f"{action.name} takes no version, as it cannot be tried. Nothing was changed.")
    return _bounded(request, action, ActionCall(request, action, arguments, own).run())


def _bounded(request: MCPRequest, action: Action, result: ToolResult) -> ToolResult:
    """Return the result of an action, as a file if it is longer than ``RESULT_CHARS``; without files, the text of its
    page is cut."""
    if result.length <= settings.RESULT_CHARS:
        return result
    # Imported here, because few results are so long.
    from ..exports.result_files import as_file

    name = action_tool_name(action.name, action.exposure.opts)
    filed = as_file(request, result, name, read_only=action.read_only, action=action.name)
    text = (result.structured or {}).get("text")
    if filed is None and isinstance(text, str):
        return replace(result, structured={**(result.structured or {}), "text": text[: request.mcp.result_chars]})
    return filed or result


class RunAction(Tool):
    """``run_action``: any action of any model."""

    name = "run_action"
    title = "Run action"
    description = (
        "Run an action that describe_model lists on rows: pks, matches of filters and search, or all. If it answers "
        "with a confirm_token, repeat with it."
    )
    description_by_person = (
        "Run an action that describe_model lists on rows: pks, matches of filters and search, or all. The user "
        "confirms it on a page."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "action": {"type": "string"},
            **Selection.EVERYTHING,
            "arguments": {**FREE_OBJECT, "description": "The action's own"},
            "form": FORM,
            "confirm_token": CONFIRM_TOKEN,
            "idempotency_key": IDEMPOTENCY_KEY,
        },
        "required": ["model", "action"],
    }
    scopes = frozenset({Scope.WRITE})
    slow = True
    takes_key = True
    takes_reason = True
    permission = "run"

    def is_atomic(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        try:
            model = Arguments(arguments).model(request)
            return _find_action(model, arguments.get("action")).atomic
        except ToolError:
            return True

    def may_need_person(self, request: MCPRequest, arguments: Mapping[str, Any]) -> bool:
        """Return whether a person has to confirm some runs of the action."""
        try:
            action = _find_action(Arguments(arguments).model(request), arguments.get("action"))
        except (NotFound, ToolError):
            return False
        return may_need_person(action.options.confirm, action.exposure.confirm)

    def declared_approvals(self, request: MCPRequest, arguments: Mapping[str, Any]) -> Sequence[Approval]:
        """Return the approvals that are declared beside the action that a call runs."""
        try:
            action = _find_action(Arguments(arguments).model(request), arguments.get("action"))
        except (NotFound, ToolError):
            return ()
        return action.options.approval

    def declared_task(self, request: MCPRequest, arguments: Mapping[str, Any]) -> TaskOptions | None:
        """Return how the action that a call runs may go on as a task."""
        try:
            action = _find_action(Arguments(arguments).model(request), arguments.get("action"))
        except (NotFound, ToolError):
            return None
        return action.options.task

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        # Which actions take dry_run is in describe_model: a list of tools without such actions does not have it.
        known = {**self.input_schema["properties"], **TRYING}
        given = Arguments.of_write(arguments, known, required=["model", "action"])
        action = _find_action(given.model(request), given["action"])
        own = given.object("arguments")
        return _run(request, action, given, own)
