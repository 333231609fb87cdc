"""``manage.py mcp_inspect``: show what a user's model would see, and why everything else is hidden."""

from collections.abc import Iterator
from typing import Any, Final

import orjson
from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Model
from oauth2_provider.settings import oauth2_settings

from ...conf import settings
from ...context.request import Exposure, MCPRequest
from ...exposures.admin import AdminExposure
from ...forms.uploads import upload_storage
from ...oauth.scopes import HIERARCHY
from ...orm.access import caller_actions, related_exposure, visible_exposures, visible_fields
from ...rest.tools import ViewSetTool
from ...sensitive import is_sensitive
from ...sites import MCPSite, is_open
from ...tools.base import Tool
from ...tools.functions import FunctionTool
from ...tools.overviews import may_words
from ...tools.uploads import CreateUpload
from ...transports.local import LocalClient, Refused
from ..accounts import find_model, find_scopes, find_site, find_superuser, find_user

# Characters of JSON to a token, about, with the tokenizers of today.
CHARS_PER_TOKEN: Final = 4
LACKS: Final = "the user lacks a permission that it asks for"


class Command(BaseCommand):
    """Print tools, models, fields and actions of a user, each with what is left out and the reason."""

    help = "Shows what a model that acts as USER would see, what it costs in tokens, and why something is not there."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare whom to look at."""
        parser.add_argument("--user", default=None, help="the name with which the user signs in; default: a superuser")
        parser.add_argument("--scope", nargs="+", default=None, help="default: what clients are asked to request")
        parser.add_argument("--site", default=None, help="name of an MCPSite that urls.py mounts")
        parser.add_argument("--model", default=None, help="only this model, such as shop.order")

    def handle(self, *args: Any, user: str | None, model: str | None, **options: Any) -> None:
        """Print the view.

        Raises:
            CommandError: the user, a scope, the site or the model is not acceptable.
        """
        site = find_site(options["site"])
        scopes = find_scopes(options["scope"], {*oauth2_settings.SCOPES, *HIERARCHY})
        person = find_superuser() if user is None else find_user(user)
        client = LocalClient(site, person, scopes)
        models = apps.get_models() if model is None else [find_model(model)]
        try:
            request = client.new_request()
            self.stdout.write(f"{person.get_username()} with {' '.join(scopes)} at {site.name}")
            if model is None:
                self.show_tools(client, site)
        except Refused as refused:
            raise CommandError(str(refused)) from None
        self.show_models(request, sorted(models, key=lambda item: item._meta.label_lower))

    # Tools

    def show_tools(self, client: LocalClient, site: MCPSite) -> None:
        """Print each tool with about how many tokens its definition takes."""
        tools = client.request("tools/list")["tools"]
        sizes = {item["name"]: tokens(item) for item in tools}
        instructions = tokens(client.request("server/discover").get("instructions", ""))
        self.heading(f"Tools: {len(tools)}, about {sum(sizes.values()):,} tokens; instructions about {instructions}")
        for name, size in sizes.items():
            self.stdout.write(f"  {name:<40} {size:>5}")
        request = client.new_request()
        for name in sorted(set(site.all_tool_names()) - sizes.keys()):
            self.left_out(name, tool_reason(request, name))

    # Models

    def show_models(self, request: MCPRequest, models: list[type[Model]]) -> None:
        """Print each visible model with its fields and actions, then those that are not there."""
        visible = {exposure.model: exposure for exposure in visible_exposures(request)}
        shown = [model for model in models if model in visible]
        self.heading(f"Models: {len(shown)}")
        for model in shown:
            self.show_model(request, visible[model])
        hidden = [model for model in models if model not in visible]
        if hidden:
            self.heading(f"Not there: {len(hidden)}")
        for model in hidden:
            self.left_out(model._meta.label_lower, model_reason(request, model))

    def show_model(self, request: MCPRequest, exposure: Exposure) -> None:
        """Print one model."""
        allowed = may_words(request, exposure).split()
        words = ", ".join(allowed) if len(allowed) > 1 else "view only"
        fields = visible_fields(request, exposure)
        self.stdout.write(f"  {exposure.label} ({words}): {', '.join(fields)}")
        for name, reason in hidden_fields(request, exposure, fields):
            self.left_out(name, reason, indent=4)
        actions = caller_actions(request, exposure)
        if actions:
            self.stdout.write(f"    actions: {', '.join(actions)}")
        for name in sorted(set(exposure.all_action_names()) - set(actions)):
            self.left_out(f"action {name}", action_reason(request, exposure, name), indent=4)

    def heading(self, text: str) -> None:
        """Print the head of a part."""
        self.stdout.write("\n" + self.style.MIGRATE_HEADING(text))

    def left_out(self, what: str, reason: str, indent: int = 2) -> None:
        """Print what is not there, and why."""
        self.stdout.write(f"{' ' * indent}- {what}: {reason}")


def tokens(value: Any) -> int:
    """Return about how many tokens a model reads for a value."""
    return -(-len(orjson.dumps(value)) // CHARS_PER_TOKEN)


def tool_reason(request: MCPRequest, name: str) -> str:
    """Return why a tool of the site is not among the caller's."""
    site: Any = request.mcp.site
    tool = site.get_tool(request, name)
    if tool is None:
        if action := dict(site._action_tools.declared()).get(name):
            return action_reason(request, *action)
        declared = [*site._own_tools.values(), *site.function_tools()]
        return forbidden_reason(request, next((item for item in declared if item.name == name), None), name)
    missing = sorted(set(tool.scopes) - request.mcp.scopes)
    if missing:
        return f"the token needs the scope {' '.join(missing)}"
    return f"there are more tools than TOOL_BUDGET ({settings.TOOL_BUDGET}): run_action runs it"


def forbidden_reason(request: MCPRequest, tool: Tool | None, name: str) -> str:
    """Return why the caller may not use a tool, None for one that is known to few."""
    if isinstance(tool, CreateUpload) and upload_storage() is None:
        return 'STORAGES has no "mcp_uploads"'
    if settings.READ_ONLY and tool is not None and not tool.read_only:
        return "READ_ONLY is on"
    if isinstance(tool, FunctionTool):
        missing = [item for item in tool.function.permissions if not request.user.has_perm(item)]
        return (
            f"the user lacks the permission {', '.join(missing)}" if missing else "its own permission refuses the user"
        )
    if tool is None or isinstance(tool, ViewSetTool):
        return LACKS
    if not visible_exposures(request):
        return "the user sees no model"
    return f"the user lacks the permission to {name.partition('_')[0]} rows of any model"


def action_reason(request: MCPRequest, exposure: Exposure, name: str) -> str:
    """Return why the caller may not run an action."""
    if exposure not in visible_exposures(request):
        return f"the user does not see {exposure.label}"
    function = getattr(exposure, name, None) or getattr(getattr(exposure, "model_admin", None), name, None)
    declared = getattr(function, "mcp_action", None)
    if settings.READ_ONLY and not getattr(declared or function, "read_only" if declared else "mcp_read_only", False):
        return "READ_ONLY is on"
    asked = declared.permissions if declared else getattr(function, "allowed_permissions", ("change",))
    lacks = not any(_has(request, exposure, item) for item in asked)
    return f"it takes the permission {' or '.join(asked)}, which the user lacks" if lacks else LACKS


def _has(request: MCPRequest, exposure: Exposure, permission: str) -> bool:
    for owner in (exposure, getattr(exposure, "model_admin", None)):
        check = getattr(owner, f"has_{permission}_permission", None)
        if check is not None:
            return bool(check(request))
    return request.user.has_perm(permission if "." in permission else f"{exposure.opts.app_label}.{permission}")


def model_reason(request: MCPRequest, model: type[Model]) -> str:
    """Return why the caller does not see a model."""
    site, opts = request.mcp.site, model._meta
    exposure = site.exposures.get(model)
    if exposure is not None:
        name = f"{opts.app_label}.view_{opts.model_name}"
        if isinstance(exposure, AdminExposure) and not exposure.admits(request):
            return "the admin does not let the user in: is_staff is what it asks for by default"
        if not request.user.has_perm(name) and not request.user.has_perm(name.replace(".view_", ".change_", 1)):
            return f"the user lacks the permission {name}"
        return f"{type(exposure).__name__} or its ModelAdmin refuses it, though the user has {name}"
    model_admin = site.admin_site._registry.get(model) if site.admin_site is not None else None
    if model_admin is None:
        return "it is in neither the admin nor an mcp.py"
    if not getattr(model_admin, "mcp_expose", True):
        return "its ModelAdmin says mcp_expose = False"
    if not is_open(model):
        return "it holds credentials or plumbing: register it in an mcp.py to expose it"
    return "AUTO_REGISTER is off, or it was unregistered"


def hidden_fields(request: MCPRequest, exposure: Exposure, visible: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the fields of the model's table and its many-to-many fields that the caller does not see, with why."""
    declared = set(exposure.get_fields(request))
    for field in (*exposure.opts.concrete_fields, *exposure.opts.many_to_many):
        if field.name in visible:
            continue
        if field.name in exposure.exclude:
            reason = "exclude names it"
        elif field.name not in declared and is_sensitive(field.name, exposure.model):
            reason = "its name says that it is a secret: name it in fields to show it"
        elif field.name not in declared:
            reason = "fields, or the admin's page of this user, does not have it"
        elif (related := field.related_model) is not None and related_exposure(request, field) is None:
            reason = f"the user does not see {related._meta.label_lower}"
        else:
            reason = "the exposure of the model that it is inherited from hides it"
        yield field.name, reason
