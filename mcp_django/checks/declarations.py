"""System checks of what a project declares: exposures, tools, prompts and resources of its ``mcp.py``.

A name that leads nowhere, and a value of the wrong kind, would show less than was meant, and say nothing of it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage, Error, Info, Warning
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db.models import Model

from ..conf import nearest
from ..exposures.admin import AdminExposure
from ..exposures.model import ModelExposure
from ..orm.lookups import declared_lookups, resolve_path, usual_lookups
from ..orm.ordering import declared_ordering, is_served
from ..routing import mounted_sites
from ..sensitive import is_drawn, is_long, is_sensitive
from ..sites import MCPSite, site

# Clients refuse or hide what is beyond these (VS Code 128, Cursor 40).
MANY_TOOLS: Final = 40
TOO_MANY_TOOLS: Final = 120
# Some clients put their own name for the server in front and refuse what is longer than 64 together.
LONG_TOOL_NAME: Final = 40
# Milliseconds. So long a client may go on showing what its user has lost the permission for.
LONG_TTL: Final = 3_600_000
# Options of exposures that are lists, of names of the model's fields and of paths through relations to such fields.
NAMES: Final = ("fields", "exclude", "readonly_fields", "list_display")
PATHS: Final = ("search_fields", "ordering", "sortable_by", "filter_fields")
LISTS: Final = (*NAMES, "search_fields", "search_terms", "ordering", "sortable_by", "actions")
# By these names actions ask for permissions of the exposure.
USUAL_PERMISSIONS: Final = ("view", "add", "change", "delete")
# Lookups that some databases have.
REGEX: Final = frozenset({"regex", "iregex"})
# How names end of what an address can be made of that lets somebody in.
OPENING: Final = re.compile(r"(?:^|_)(?:key|code|token|link|nonce|signature)$")
# What is meant for mcp.py.
MISSPELT: Final = ("mpc", "mcps", "mcp_", "_mcp", "cmp", "mcpp", "mmcp")


def mounted() -> list[MCPSite]:
    """Return every site that the URLconf mounts."""
    try:
        return mounted_sites()
    except ImproperlyConfigured:
        # There is no URLconf, or it is broken: Django's own checks say so.
        return []


def all_sites() -> list[MCPSite]:
    """Return the default site and every site that the URLconf mounts."""
    return list(dict.fromkeys([site, *mounted()]))


def check_modules(**kwargs: Any) -> list[CheckMessage]:
    """Check that what is meant for ``mcp.py`` has that name, in the same case: nothing else is imported."""
    return [
        Warning(
            f"{file} is not imported: the module of an app that declares what it exposes is called mcp.py.",
            hint=f"Rename {file.name} to mcp.py.",
            id="mcp_django.W032",
        )
        for app in apps.get_app_configs()
        for file in Path(app.path).glob("*.py")
        if file.stem != "mcp" and file.stem.lower() in ("mcp", *MISSPELT) and b"mcp_django" in file.read_bytes()
    ]


def check_registries(**kwargs: Any) -> list[CheckMessage]:
    """Check that each endpoint has something to show."""
    return [
        Warning(
            f"The site {checked.name!r} exposes nothing: no model, tool, resource or prompt.",
            hint="Register something in the mcp.py of an installed app, or leave AUTO_REGISTER on for what the admin "
            "has.",
            id="mcp_django.W031",
        )
        for checked in mounted()
        if not (checked.exposures or checked.function_tools() or checked.prompts or checked.completers)
        and not checked._resources
    ]


def check_completions(**kwargs: Any) -> list[CheckMessage]:
    """Check that the fields whose values complete an argument are there."""
    return [
        Error(
            f"complete of {name!r} takes the values of {parameter!r} from {label}.{field}, which the site "
            f"{checked.name!r} does not expose.",
            hint='Name a field of an exposed model, such as "shop.order.status".',
            id="mcp_django.E019",
        )
        for checked in all_sites()
        for name, completer in checked.completers.items()
        for parameter, label, field in completer.fields
        if not _is_exposed(checked, label, field)
    ]


def _is_exposed(checked: MCPSite, label: str, field: str) -> bool:
    exposure = checked.exposures_by_label.get(label)
    return exposure is not None and any(field == known.name for known in exposure.opts.get_fields())


def check_declarations(**kwargs: Any) -> list[CheckMessage]:
    """Check that the functions which a project declared can be read: no call needs them before one is served."""
    return [
        Error(
            f"A function of the site {checked.name!r} cannot be read: {fault}.",
            hint="Correct its signature or its options; nothing of the site is served until then.",
            id="mcp_django.E036",
        )
        for checked in all_sites()
        for fault in checked.unreadable()
    ]


def after_declarations(check: Callable[..., list[CheckMessage]]) -> Callable[..., list[CheckMessage]]:
    """Return the check that finds nothing while a function that was declared cannot be read."""

    @wraps(check)
    def checked(**kwargs: Any) -> list[CheckMessage]:
        return [] if any(site.unreadable() for site in all_sites()) else check(**kwargs)

    return checked


def check_tools(**kwargs: Any) -> list[CheckMessage]:
    """Check that names are unique and that no client is given more tools than it takes."""
    found: list[CheckMessage] = []
    for checked in all_sites():
        names = Counter(checked.all_tool_names())
        found += [
            Error(
                f"{count} tools of the site {checked.name!r} are named {name!r}.",
                hint="Rename an action or give a function tool another name.",
                id="mcp_django.E005",
            )
            for name, count in names.items()
            if count > 1
        ]
        found += [
            Warning(
                f"{tool.name!r} is a long name for a tool, on the site {checked.name!r}.",
                hint=f"Use at most {LONG_TOOL_NAME} characters: some clients add the server's name and take 64 in all.",
                id="mcp_django.W007",
            )
            for tool in checked.function_tools()
            if len(tool.name) > LONG_TOOL_NAME
        ]
        own = len(checked.function_tools())
        if own > TOO_MANY_TOOLS:
            found.append(Error(f"The site {checked.name!r} has {own} function tools.", id="mcp_django.E006"))
        elif own > MANY_TOOLS:
            found.append(Warning(f"The site {checked.name!r} has {own} function tools.", id="mcp_django.W006"))
    return found


def check_functions(**kwargs: Any) -> list[CheckMessage]:
    """Check that the model is told what tools do, and that somebody can have the permissions for them."""
    found: list[CheckMessage] = []
    for checked in all_sites():
        for tool in checked.function_tools():
            if not tool.description:
                text = f"The tool {tool.name!r} of the site {checked.name!r} has no description: models guess its use."
                found.append(Warning(text, hint="Write a docstring.", id="mcp_django.W022"))
        found += _misspelt_permissions(checked)
    return found


def _misspelt_permissions(checked: MCPSite) -> Iterator[CheckMessage]:
    known = _permissions()
    owners = [*checked.function_tools(), *checked.prompts.values(), *checked._resources.values()]
    for owner in owners:
        function = getattr(owner, "function", None)
        for name in getattr(function, "permissions", ()):
            # Code may make others; what looks like one of the models' is meant to be that.
            if name not in known and (hint := nearest(name, known, 0.85)):
                text = f"{getattr(function, 'name', '')!r} needs the permission {name!r}, which no model has."
                yield Warning(text, hint=hint.strip(), id="mcp_django.W026")


@lru_cache(maxsize=1)
def _permissions() -> frozenset[str]:
    """Return the names of the permissions that ``migrate`` makes."""
    models = [model._meta for model in apps.get_models()]
    usual = (f"{opts.app_label}.{action}_{opts.model_name}" for opts in models for action in opts.default_permissions)
    own = (f"{opts.app_label}.{name}" for opts in models for name, _ in opts.permissions)
    return frozenset([*usual, *own])


def check_exposures(**kwargs: Any) -> list[CheckMessage]:
    """Check every exposure of every site."""
    return [
        message
        for checked in all_sites()
        for exposure in checked.exposures.values()
        for check in (_check_options, _check_names, _check_paths, _check_fields, _check_actions, _check_age)
        for message in check(exposure)
    ]


def _check_options(exposure: ModelExposure) -> Iterator[CheckMessage]:
    """Check that options are of the right kind, and that none is misspelt."""
    where = type(exposure)
    for option in LISTS:
        value = getattr(exposure, option)
        if isinstance(value, str) and (option != "fields" or value != "__all__"):
            every = ' or "__all__"' if option == "fields" else ""
            hint = f"Write a list{every}. A tuple of one item needs a comma."
            text = f"{where.__name__}.{option} is {value!r}, which is no list."
            yield Error(text, hint=hint, obj=where, id="mcp_django.E023")
    lookups: Any = exposure.filter_fields or {}
    if not isinstance(lookups, Mapping) or any(isinstance(given, str) for given in lookups.values()):
        text = f"{where.__name__}.filter_fields is {lookups!r}, which is no dict of lists."
        yield Error(text, hint='An example is {"status": ["exact", "in"]}.', obj=where, id="mcp_django.E023")
    known = {name for name in dir(AdminExposure) if not name.startswith("_")}
    used = {*_names(exposure, "fields"), *_names(exposure, "list_display"), *_names(exposure, "actions")}
    for base in where.__mro__[: where.__mro__.index(ModelExposure)]:
        for name in vars(base) if base is not AdminExposure else ():
            if name in known or name in used or name.startswith("_"):
                continue
            if meant := nearest(name, known, 0.85):
                text = f"{where.__name__}.{name} is no option or hook of an exposure."
                yield Warning(text, hint=meant.strip(), obj=where, id="mcp_django.W024")


def _check_names(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    for option in NAMES:
        for name in _names(exposure, option):
            if not _exists(exposure, name):
                yield _missing(exposure, option, name)
    if exposure.label_field is not None and resolve_path(exposure.model, exposure.label_field) is None:
        yield _missing(exposure, "label_field", exposure.label_field)
    if not isinstance(exposure.filter_fields, Mapping):
        return
    for name, lookups in exposure.filter_fields.items():
        path = resolve_path(exposure.model, name)
        taken = usual_lookups(path.field) if path is not None else ()
        for lookup in [lookups] if isinstance(lookups, str) else lookups:
            if path is not None and lookup not in REGEX and not declared_lookups(path, [lookup]):
                text = f"{where.__name__}.filter_fields gives {name!r} the lookup {lookup!r}, which it does not take."
                hint = f"{nearest(lookup, taken)} It takes {', '.join(taken)}."
                yield Error(text, hint=hint.strip(), obj=where, id="mcp_django.E010")


def _check_paths(exposure: ModelExposure) -> Iterator[CheckMessage]:
    # The queryset of a project can have columns of its own.
    if type(exposure).get_queryset is not ModelExposure.get_queryset or isinstance(exposure, AdminExposure):
        return
    for option in PATHS:
        for entry in _names(exposure, option):
            name = entry.lstrip("^=@") if option == "search_fields" else entry.lstrip("+-?")
            if name and not _leads_somewhere(exposure, name):
                yield _missing(exposure, option, entry)


def _missing(exposure: ModelExposure, option: str, name: str) -> CheckMessage:
    known = [field.name for field in exposure.opts.get_fields()]
    return Error(
        f"{type(exposure).__name__}.{option} refers to {name!r}, which {exposure.label} does not have.",
        hint=nearest(name, known).strip() or None,
        obj=type(exposure),
        id="mcp_django.E010",
    )


def _check_fields(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    if exposure.has_allow_list and exposure.fields is None:
        yield Warning(
            f"{where.__name__} declares no fields: {exposure.label} shows its primary key alone.",
            hint='List the fields, or write fields = "__all__".',
            obj=where,
            id="mcp_django.W011",
        )
    if exposure.fields == "__all__":
        yield Warning(
            f'{where.__name__}.fields is "__all__": a field added to {exposure.label} later is shown at once.',
            hint="List the fields.",
            obj=where,
            id="mcp_django.W012",
        )
    shown = dict.fromkeys([*_names(exposure, "fields"), *(field.name for field in exposure.opts.pk_fields)])
    for name in shown:
        if is_sensitive(name, exposure.model):
            yield Warning(
                f"{where.__name__}.fields shows {name!r}, which looks like a secret, to every caller who may view "
                f"{exposure.label}.",
                obj=where,
                id="mcp_django.W013",
            )


def _check_actions(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    marked = [name for name in dir(where) if hasattr(getattr(where, name, None), "mcp_action")]
    for name in _names(exposure, "actions"):
        if name not in marked:
            text = f"{where.__name__}.actions refers to {name!r}, which is not a method marked with @mcp.action."
            yield Error(text, hint=nearest(name, marked).strip() or None, obj=where, id="mcp_django.E014")
            continue
        permissions = [item.rpartition(".")[2] for item in _permissions()]
        for permission in getattr(where, name).mcp_action.permissions:
            known = [*USUAL_PERMISSIONS, *permissions, *_permissions()]
            if not any(hasattr(owner, f"has_{permission}_permission") for owner in exposure.permission_owners) and (
                permission.rpartition(".")[2] not in permissions and (hint := nearest(permission, known, 0.8))
            ):
                text = f"{where.__name__}.{name} needs the permission {permission!r}, which nobody has."
                yield Warning(text, hint=hint.strip(), obj=where, id="mcp_django.W026")
    for name in set(marked).difference(exposure.actions or ()):
        text = f"{where.__name__}.{name} is marked with @mcp.action and not in actions: nobody can run it."
        yield Info(text, hint=f'Add "{name}" to actions.', obj=where, id="mcp_django.I028")


def _check_age(exposure: ModelExposure) -> Iterator[CheckMessage]:
    if exposure.cache_ttl_ms is not None:
        where = type(exposure)
        yield from check_ttl(f"{where.__name__}.cache_ttl_ms", exposure.cache_ttl_ms, where)


def check_ttl(name: str, ttl: Any, obj: Any = None) -> Iterator[CheckMessage]:
    """Yield what is wrong with how long clients may keep something, in milliseconds."""
    if type(ttl) is not int or ttl < 0:
        hint = "Write a number of milliseconds, 0 or more."
        yield Error(f"{name} is {ttl!r}, which is no time.", hint=hint, obj=obj, id="mcp_django.E018")
    elif ttl > LONG_TTL:
        yield Warning(
            f"{name} is more than an hour: so long a client may show what its user may no longer see.",
            obj=obj,
            id="mcp_django.W018",
        )


def check_orders(**kwargs: Any) -> list[CheckMessage]:
    """Tell, for a deployment, which exposures are ordered by what no index of their model serves."""
    found: dict[Any, CheckMessage] = {}
    for checked in all_sites():
        for exposure in checked.exposures.values():
            keys = declared_ordering(exposure)
            if exposure.opts.managed and not is_served(exposure.model, keys):
                names = tuple(("-" if key.descending else "") + key.path for key in keys)
                found.setdefault((exposure.label, names), _unserved(exposure, names))
    return list(found.values())


def _unserved(exposure: ModelExposure, names: Sequence[str]) -> CheckMessage:
    local = [name for name in names if "__" not in name]
    hint = f"Add models.Index(fields={local}, name=...) to its Meta.indexes, or set another ordering on the exposure."
    if len(local) < len(names):
        hint = "No index serves an order through a relation: set another ordering on the exposure."
    return Info(
        f"No index serves the order of {exposure.label}, {', '.join(names)}: each page sorts the whole table.",
        hint=hint,
        obj=exposure.model,
        id="mcp_django.I021",
    )


def check_random(**kwargs: Any) -> list[CheckMessage]:
    """Tell, for a deployment, which columns look like what lets somebody in, though their names do not say it."""
    found: dict[Any, CheckMessage] = {}
    for checked in all_sites():
        for exposure in checked.exposures.values():
            named = exposure.fields is not None and exposure.fields != "__all__"
            for field in () if named else exposure.opts.concrete_fields:
                if _looks_random(field) and not exposure.leaves_out(field.name):
                    found.setdefault((exposure.label, field.name), _random(exposure, field))
    return list(found.values())


def _looks_random(field: Any) -> bool:
    if not is_long(field) or field.choices or is_sensitive(field.name, field.model):
        return False
    return is_drawn(field) or bool(field.unique and OPENING.search(field.name))


def _random(exposure: ModelExposure, field: Any) -> CheckMessage:
    return Info(
        f"{exposure.label} shows {field.name!r}, whose values look random: whoever knows one may be let in by it.",
        hint=f'If so, set exclude = ["{field.name}"] on its exposure. If not, list its fields, or silence this check.',
        obj=exposure.model,
        id="mcp_django.I159",
    )


def _names(exposure: ModelExposure, option: str) -> list[str]:
    value = getattr(exposure, option) or ()
    return [] if isinstance(value, str) else [item for item in value if isinstance(item, str)]


def _exists(exposure: ModelExposure, name: str) -> bool:
    try:
        exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return hasattr(exposure.model, name) or exposure.get_computed(name) is not None
    return True


def _leads_somewhere(exposure: ModelExposure, path: str) -> bool:
    """Return whether each name of the path is a field of the model that the one before leads to."""
    model: type[Model] | None = exposure.model
    if _exists(exposure, path) or path == "pk":
        return True
    field: Any = None
    for name in path.split("__"):
        if model is None or (field is not None and not field.is_relation):
            return True  # what follows is a lookup, or the rows are of any model
        try:
            field = model._meta.get_field(model._meta.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            return hasattr(field, "get_lookup") and field.get_lookup(name) is not None
        model = field.related_model
    return True


CHECKS: Final = (
    check_modules,
    check_declarations,
    *map(after_declarations, (check_registries, check_completions, check_tools, check_functions, check_exposures)),
)
