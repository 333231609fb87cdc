"""Visibility report: the tools, models and prompts that a user's AI model sees, their tokens, and what is hidden."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson
from django.apps import apps
from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import Model
from django.utils.text import get_text_list
from django.utils.translation import gettext as _

from ..approvals.rule_faults import RuleNames
from ..conf import settings
from ..context.request import MCPRequest
from ..emulation.uploads import Upload
from ..exports.kept_exports import KeptExport
from ..operating import switches
from ..operating.daily_budgets import Budgets
from ..operating.recorded_calls import RecordedCall
from ..orm.access import ModelAccess, access_of
from ..orm.allowed_filters import AllowedFilter
from ..orm.permission_queries import load_permissions
from ..protocol.messages import encode
from ..protocol.versions import Revisions
from ..rest.tools import ViewSetTool
from ..schema.secrets import gives_rights, is_sensitive
from ..server.methods import METHODS
from ..signin import FactName
from ..sites import MCPSite, is_open
from ..tools.base import Tool
from ..tools.create_upload import CreateUpload
from ..tools.export_records import ExportRecords
from ..tools.function_tools import FunctionTool
from ..tools.model_overview import Overview
from ..transports.local_client import LocalClient
from .readable_models import try_site
from .rule_report import SeenRule, rules_for

# Approximate bytes of JSON per token.
BYTES_PER_TOKEN: Final = 4
# Maximum number of pages that are read of a list.
MAX_PAGES: Final = 50


@dataclass(frozen=True, slots=True)
class Hidden:
    """A tool, model, field, action or prompt that is hidden, and the reason."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SeenTool:
    """A tool that is visible, with the estimated tokens of its definition; ``writes`` if it can change data."""

    name: str
    description: str
    tokens: int
    writes: bool


@dataclass(frozen=True, slots=True)
class SeenModel:
    """A Django model that is visible, with its operations, actions and hidden fields.

    ``failing`` has the causes, if rows were read and code of the project failed.
    """

    label: str
    name: str
    allowed: tuple[str, ...]
    fields: tuple[str, ...]
    filters: Mapping[str, tuple[str, ...]]
    actions: tuple[str, ...]
    missing: tuple[Hidden, ...]
    missing_actions: tuple[Hidden, ...]
    failing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VisibilityReport:
    """What the AI model of one user sees: ``resources`` and ``prompts`` by their URIs and names.

    ``rules`` are the approval rules that concern the user. ``off`` is the answer to every call while the caller, or
    everything, is switched off. ``budgets`` has what is left of the caller's budgets today, by kind ("user",
    "client", "service") and quantity.
    """

    site: str
    user: str
    scopes: tuple[str, ...]
    instructions: str = ""
    instruction_tokens: int = 0
    tools: tuple[SeenTool, ...] = ()
    missing_tools: tuple[Hidden, ...] = ()
    resources: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    missing_prompts: tuple[Hidden, ...] = ()
    models: tuple[SeenModel, ...] = ()
    missing_models: tuple[Hidden, ...] = ()
    rules: tuple[SeenRule, ...] = ()
    off: str = ""
    budgets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        site: MCPSite,
        person: AbstractBaseUser,
        scopes: Iterable[str],
        *,
        facts: Mapping[str, Any] | None = None,
        client_id: str = "",
        model: type[Model] | None = None,
        reads_rows: bool = False,
    ) -> "VisibilityReport":
        """Return the report of what ``person`` sees; with ``model``, of that Django model alone.

        With ``reads_rows``, a row of each model is read, to find code of the project that fails.

        ``facts`` are those stored with a token, as :func:`~mcp_django.oauth.stored_tokens.facts_of` returns them, and
        ``client_id`` is the client of the token.
        """
        scopes = tuple(scopes)
        request = request_of(LocalClient(site, person, scopes, facts))
        request.mcp.client_id = client_id
        record = request.mcp.record
        RecordedCall(request).describe_caller()
        record.kind = "service" if FactName.SERVICE_ACCOUNT in request.mcp.facts else "person"
        models = [model] if model is not None else list(apps.get_models())
        visible, missing = _models(request, sorted(models, key=lambda item: item._meta.label_lower))
        lists = {} if model is not None else _lists(request)
        off = None if request.mcp.off is None else request.mcp.off.caller(request.mcp.record)
        if reads_rows:
            trial = try_site(site, person, scopes, [item.label for item in visible])
            visible = tuple(replace(item, failing=trial.causes_of(item.label)) for item in visible)
        return cls(
            site.name,
            person.get_username(),
            scopes,
            models=visible,
            missing_models=missing,
            off="" if off is None else off.text,
            rules=tuple(rules_for(request, RuleNames([site]), "" if model is None else model._meta.label_lower)),
            budgets=Budgets(request).left(),
            **lists,
        )

    @property
    def tool_tokens(self) -> int:
        """The estimated tokens of all tool definitions."""
        return sum(tool.tokens for tool in self.tools)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return {**asdict(self), "tool_tokens": self.tool_tokens}


def tokens(value: Any) -> int:
    """Return the estimated number of tokens that a value costs an AI model."""
    return -(-len(orjson.dumps(value)) // BYTES_PER_TOKEN)


# Tools, resources, prompts


def request_of(client: LocalClient) -> MCPRequest:
    """Return a request of a local client, for :func:`ask`."""
    request = client.new_request()
    request.mcp.version = Revisions.LATEST
    request.mcp.off = switches.board.current()
    load_permissions(request.user)
    return request


def ask(request: MCPRequest, method: str, **params: Any) -> dict[str, Any]:
    """Return the result of an MCP method, without a call in the log."""
    return dict(orjson.loads(encode(METHODS[method](request, params))))


def _lists(request: MCPRequest) -> dict[str, Any]:
    site: Any = request.mcp.site
    instructions = ask(request, "server/discover").get("instructions", "")
    tools = [_tool(item) for item in ask(request, "tools/list")["tools"]]
    prompts = [item["name"] for item in ask(request, "prompts/list")["prompts"]]
    names = {tool.name for tool in tools}
    return {
        "instructions": instructions,
        "instruction_tokens": tokens(instructions),
        "tools": tuple(tools),
        "missing_tools": tuple(
            Hidden(name, tool_reason(request, name)) for name in sorted(set(site.all_tool_names()) - names)
        ),
        "resources": tuple(_resources(request)),
        "prompts": tuple(prompts),
        "missing_prompts": tuple(
            Hidden(item.name, _lacks_scope(request, item) or _("its own permission refuses the user"))
            for item in site.prompts.values()
            if item.name not in prompts
        ),
    }


def _tool(definition: Mapping[str, Any]) -> SeenTool:
    writes = not definition.get("annotations", {}).get("readOnlyHint", False)
    return SeenTool(definition["name"], definition.get("description", ""), tokens(definition), writes)


def _resources(request: MCPRequest) -> Iterator[str]:
    cursor: dict[str, Any] = {}
    for _number in range(MAX_PAGES):
        page = ask(request, "resources/list", **cursor)
        yield from (item["uri"] for item in page["resources"])
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    templates = ask(request, "resources/templates/list")["resourceTemplates"]
    yield from (item["uriTemplate"] for item in templates)


def _lacks_scope(request: MCPRequest, item: Any) -> str:
    missing = set(item.scopes) - request.mcp.scopes
    if missing:
        return _("the token needs the scope %(scopes)s") % {"scopes": " ".join(sorted(missing))}
    return ""


def tool_reason(request: MCPRequest, name: str) -> str:
    """Return the reason why a tool is hidden from the user."""
    site: Any = request.mcp.site
    tool = site.get_tool(request, name)
    action = dict(site._action_tools.declared()).get(name)
    off = request.mcp.off
    if tool is not None and off is not None:
        switch = off.tool(tool.name, read_only=tool.read_only)
        if switch is None and action is not None:
            switch = off.model(action[0].label) or off.action(action[0].label, action[1])
        if switch is not None:
            return switch.text
    if tool is None:
        if action is not None:
            return action_reason(access_of(request)[action[0]], action[1])
        declared = [*site._own_tools.values(), *site.function_tools()]
        return forbidden_reason(request, next((item for item in declared if item.name == name), None))
    if reason := _lacks_scope(request, tool):
        return reason
    values = {"budget": settings.TOOL_BUDGET}
    return _("there are more tools than TOOL_BUDGET (%(budget)s): run_action runs it") % values


def forbidden_reason(request: MCPRequest, tool: Tool | None) -> str:
    """Return the reason why the user has no permission for a tool."""
    if isinstance(tool, CreateUpload) and Upload.storage() is None:
        return _('STORAGES has no "%(alias)s"') % {"alias": "mcp_uploads"}
    if isinstance(tool, ExportRecords) and KeptExport.storage() is None:
        return _('STORAGES has no "%(alias)s"') % {"alias": "mcp_exports"}
    if tool is not None and not tool.read_only and (reason := _read_only_reason(request)):
        return reason
    if isinstance(tool, FunctionTool):
        missing = [item for item in tool.function.permissions if not request.user.has_perm(item)]
        if missing:
            return _lacks(", ".join(missing))
        return _("its own permission refuses the user")
    if tool is None or isinstance(tool, ViewSetTool):
        return _("the user lacks a permission that it needs")
    if not access_of(request).exposures:
        return _("the user sees no model")
    return _("the user lacks the required permission on every model")


def _read_only_reason(request: MCPRequest) -> str:
    """Return the reason why all writes are hidden, "" if they are not."""
    if settings.READ_ONLY:
        return _("READ_ONLY is on")
    narrowing = request.mcp.narrowing
    if narrowing is not None and narrowing.read_only:
        return _("the access is read-only")
    return ""


def _lacks(permission: str) -> str:
    return _("the user lacks the permission %(permission)s") % {"permission": permission}


# Models


def _models(request: MCPRequest, models: Iterable[type[Model]]) -> tuple[tuple[SeenModel, ...], tuple[Hidden, ...]]:
    # Compare labels, because another class stands for the admin's LogEntry under the same label.
    visible = {model.exposure.label: model for model in access_of(request).models}
    seen = []
    missing = []
    for model in models:
        if (label := model._meta.label_lower) in visible:
            seen.append(_model(visible[label]))
        else:
            missing.append(Hidden(label, model_reason(request, model)))
    return tuple(seen), tuple(missing)


def _model(model: ModelAccess) -> SeenModel:
    exposure = model.exposure
    may_write = not _read_only_reason(model.request)
    actions = [name for name, action in model.actions.items() if may_write or action.read_only]
    return SeenModel(
        label=exposure.label,
        name=str(exposure.opts.verbose_name_plural),
        allowed=tuple(Overview(model).may.split()),
        fields=model.fields,
        filters={name: allowed.lookups for name, allowed in AllowedFilter.all(model)},
        actions=tuple(actions),
        missing=tuple(hidden_fields(model)),
        missing_actions=tuple(
            Hidden(name, action_reason(model, name))
            for name in sorted(set(exposure.options.action_names()) - set(actions))
        ),
    )


def model_reason(request: MCPRequest, model: type[Model]) -> str:
    """Return the reason why a Django model is hidden from the user."""
    site: Any = request.mcp.site
    exposure = site.exposures_by_label.get(model._meta.label_lower)
    if exposure is not None:
        access = access_of(request)[exposure]
        reason = access.why_not()
        if reason == "off" and access.off is not None:
            return access.off.text
        if reason == "narrowed":
            return _("the access is only for other records")
        if reason == "not admitted":
            return _("the admin does not let the user in: by default it requires is_staff")
        if exposure.model is not model:
            return _("the user lacks the required permission on every model")
        name = f"{exposure.opts.app_label}.view_{exposure.opts.model_name}"
        if reason == "no permission":
            return _lacks(name)
        values = {"exposure": type(exposure).__name__, "permission": name}
        return _("%(exposure)s or its ModelAdmin refuses it, though the user has %(permission)s") % values
    model_admin = site.admin_site._registry.get(model) if site.admin_site is not None else None
    if model_admin is None:
        return _("it is in neither the admin nor an mcp.py")
    if not getattr(model_admin, "mcp_expose", True):
        return _("its ModelAdmin says mcp_expose = False")
    if not is_open(model):
        return _("it holds credentials or plumbing: register it in an mcp.py to expose it")
    return _("AUTO_REGISTER is off, or it was unregistered")


def action_reason(model: ModelAccess, name: str) -> str:
    """Return the reason why an action is hidden from the user."""
    request = model.request
    exposure = model.exposure
    off = request.mcp.off
    if not model.is_there:
        return _unseen(exposure.label)
    if off is not None and name in model.permitted_actions and (switch := off.action(exposure.label, name)):
        return switch.text
    function = getattr(exposure, name, None) or getattr(getattr(exposure, "model_admin", None), name, None)
    declared = getattr(function, "mcp_action", None)
    reads_only = getattr(declared or function, "read_only" if declared else "mcp_read_only", False)
    if not reads_only and (reason := _read_only_reason(request)):
        return reason
    permissions = declared.permissions if declared else getattr(function, "allowed_permissions", ("change",))
    if any(_has(model, item) for item in permissions):
        return _("the user lacks a permission that it needs")
    values = {"permissions": get_text_list(list(permissions))}
    return _("it needs the permission %(permissions)s, which the user lacks") % values


def _unseen(label: str) -> str:
    return _("the user does not see %(label)s") % {"label": label}


def _has(model: ModelAccess, permission: str) -> bool:
    request = model.request
    exposure = model.exposure
    for owner in (exposure, getattr(exposure, "model_admin", None)):
        check = getattr(owner, f"has_{permission}_permission", None)
        if check is not None:
            return bool(check(request))
    return request.user.has_perm(permission if "." in permission else f"{exposure.opts.app_label}.{permission}")


def hidden_fields(model: ModelAccess) -> Iterator[Hidden]:
    """Yield a model's columns and many-to-many fields that are hidden from the user, with reasons."""
    exposure = model.exposure
    visible = model.fields
    declared = set(exposure.get_fields(model.request))
    for item in (*exposure.opts.concrete_fields, *exposure.opts.many_to_many):
        # The columns of the history model are this app's own: no project hides them.
        if item.name in visible or exposure.opts.apps is not apps:
            continue
        if item.name in exposure.exclude:
            reason = _("exclude names it")
        elif item.name not in declared and is_sensitive(item.name, exposure.model):
            reason = _("its name looks like a secret: list it in fields to show it")
        elif item.name not in declared and gives_rights(item.name, exposure.model):
            reason = _("it gives rights: list it in fields to show it")
        elif item.name not in declared:
            reason = _("it is not in fields or not on this user's admin page")
        elif (related := item.related_model) is not None and model.access.model_of(related) is None:
            reason = _unseen(related._meta.label_lower)
        else:
            reason = _("the exposure of the model that it is inherited from hides it")
        yield Hidden(item.name, reason)
