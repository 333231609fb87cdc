"""System checks of what a project declares: exposures, tools, prompts and resources of its ``mcp.py``.

Without these checks, an unknown name or a value of the wrong kind would silently expose less than was meant.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache, wraps
from inspect import Signature, isclass, isfunction, signature
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db.models import Model

from ..context.person_consent import wrong_confirmer
from ..emulation.admin_actions import AdminAction
from ..emulation.admin_exposure import AdminExposure
from ..emulation.history_model import HistoryRows
from ..exposures.declared_actions import FunctionAction
from ..exposures.declared_tasks import TaskOptions
from ..exposures.model_exposure import ModelExposure, is_djangos
from ..orm.fields import kind_of, resolve_path
from ..orm.ordering import DeclaredOrdering
from ..problems import NOTHING_REGISTERED, nearest
from ..routing import mounted_sites
from ..schema.secrets import gives_rights, is_drawn, is_long, is_sensitive, is_withheld
from ..sites import HISTORY, MCPSite, site
from .check_rules import Check, check, problem

# Numbers of tools above which clients hide or refuse some of them (VS Code 128, Cursor 40).
MANY_TOOLS: Final = 40
TOO_MANY_TOOLS: Final = 120
# Maximum characters of a tool's name: some clients prefix the name of the server, and refuse more than 64 in all.
LONG_TOOL_NAME: Final = 40
# Maximum milliseconds for which a client may show data after its user has lost the permission for it.
LONG_TTL: Final = 3_600_000
# Options of exposures that are True or False, that list names of the model's fields, paths through relations to
# fields, or anything.
FLAGS: Final = ("undo", "dry_run")
NAMES: Final = ("fields", "exclude", "readonly_fields", "list_display")
PATHS: Final = ("search_fields", "ordering", "sortable_by", "filter_fields")
LISTS: Final = (*NAMES, "search_fields", "search_terms", "ordering", "sortable_by", "actions")
# Options of exposures that are classes: their base class, and an attribute that only its subclasses have.
CLASSES: Final = {
    "serializer_class": ("rest_framework.serializers.Serializer", "to_representation"),
    "filterset_class": ("django_filters.FilterSet", "base_filters"),
}
# Hooks that write, and may do more than the database undoes.
WRITING_HOOKS: Final = ("save_model", "save_related", "delete_model", "delete_queryset")
# Permissions of an exposure that actions can require by these names.
USUAL_PERMISSIONS: Final = ("view", "add", "change", "delete")
# Lookups that only some databases have, and that are not checked.
REGEX: Final = frozenset({"regex", "iregex"})
# Endings of the names of fields whose values can be part of a URL that gives access.
OPENING: Final = re.compile(r"(?:^|_)(?:key|code|token|link|nonce|signature)$")
# Parts of the names of actions, or of their packages, that make files.
EXPORTING: Final = re.compile(r"export|download|csv|xls|excel|spreadsheet|pdf|dump|report|print", re.IGNORECASE)
CORRECT: Final = "Correct its signature or its options."
# Checks that can run while a declared function cannot be parsed, and checks that cannot.
FIRST_CHECKS: Final[list[Check]] = []
CHECKS: Final[list[Check]] = []
DEPLOYMENT_CHECKS: Final[list[Check]] = []
# Misspellings of the module name mcp.
MISSPELT: Final = ("mpc", "mcps", "mcp_", "_mcp", "cmp", "mcpp", "mmcp")


def mounted() -> list[MCPSite]:
    """Return every site that the URLconf mounts."""
    try:
        return mounted_sites()
    except ImproperlyConfigured:
        # There is no URLconf, or it is broken: Django's own checks report that.
        return []


def all_sites() -> list[MCPSite]:
    """Return the sites whose declarations are checked: the default site and every site that the URLconf mounts."""
    return list(dict.fromkeys([site, *mounted()]))


@check(FIRST_CHECKS)
def check_modules() -> Iterator[CheckMessage]:
    for app in apps.get_app_configs():
        for file in Path(app.path).glob("*.py"):
            is_meant = file.stem != "mcp" and file.stem.lower() in ("mcp", *MISSPELT)
            if is_meant and b"mcp_django" in file.read_bytes():
                text = f"{file} is not imported: an app declares what it exposes in mcp.py."
                yield problem("W032", text, f"Rename {file.name} to mcp.py.")


@check(CHECKS)
def check_registries() -> Iterator[CheckMessage]:
    for checked in mounted():
        if checked.serves_nothing():
            text = f"The site {checked.name!r} exposes nothing: {NOTHING_REGISTERED.what}."
            yield problem("W031", text, NOTHING_REGISTERED.remedy)


@check(CHECKS)
def check_completions() -> Iterator[CheckMessage]:
    for checked in all_sites():
        for name, completer in checked.completers.items():
            for parameter, label, field in completer.fields:
                exposure = checked.exposures_by_label.get(label)
                if exposure is None or field not in [known.name for known in exposure.opts.get_fields()]:
                    yield problem(
                        "E019",
                        f"complete of {name!r} suggests values of {parameter!r} from {label}.{field}, which the site "
                        f"{checked.name!r} does not expose.",
                        'Name a field of an exposed model, such as "shop.order.status".',
                    )


@check(FIRST_CHECKS)
def check_declarations() -> Iterator[CheckMessage]:
    for checked in all_sites():
        for fault in checked.unreadable():
            text = f"A function of the site {checked.name!r} cannot be read: {fault}."
            yield problem("E036", text, f"{CORRECT} Until then the site serves nothing.")


def after_declarations(check: Check) -> Check:
    """Return a check that is skipped while the declaration of a function cannot be parsed."""

    @wraps(check)
    def checked(**kwargs: Any) -> list[CheckMessage]:
        if any(site.unreadable() for site in all_sites()):
            return []
        return check(**kwargs)

    return checked


@check(CHECKS)
def check_tools() -> Iterator[CheckMessage]:
    for checked in all_sites():
        where = f"the site {checked.name!r}"
        tools = checked.function_tools()
        for name, count in Counter(checked.all_tool_names()).items():
            if count > 1:
                text = f"{count} tools of {where} are named {name!r}."
                yield problem("E005", text, "Rename an action or give a function tool another name.")
        for tool in tools:
            if len(tool.name) > LONG_TOOL_NAME:
                hint = f"Use at most {LONG_TOOL_NAME} characters: some clients add the server's name and allow only 64."
                yield problem("W007", f"{tool.name!r} is too long a tool name for some clients, on {where}.", hint)
        if len(tools) > MANY_TOOLS:
            many = "E006" if len(tools) > TOO_MANY_TOOLS else "W006"
            yield problem(many, f"The site {checked.name!r} has {len(tools)} function tools.")


@check(CHECKS)
def check_functions() -> Iterator[CheckMessage]:
    permissions = model_permissions()
    for checked in all_sites():
        for tool in checked.function_tools():
            if not tool.description:
                text = f"The tool {tool.name!r} of the site {checked.name!r} has no description: models have to guess."
                yield problem("W022", text, "Write a docstring.")
        for owner in (*checked.function_tools(), *checked.prompts.values(), *checked.resources.values()):
            function = getattr(owner, "function", None)
            for name in getattr(function, "permissions", ()):
                # Code can make other permissions, so report only names that are much like one of the models'.
                if name not in permissions and (hint := nearest(name, permissions, 0.85)):
                    text = f"{getattr(function, 'name', '')!r} needs the permission {name!r}, which no model has."
                    yield problem("W026", text, hint.strip())


@lru_cache(maxsize=1)
def model_permissions() -> frozenset[str]:
    """Return the names of the permissions that ``migrate`` makes."""
    models = [model._meta for model in apps.get_models()]
    usual = (f"{opts.app_label}.{action}_{opts.model_name}" for opts in models for action in opts.default_permissions)
    own = (f"{opts.app_label}.{name}" for opts in models for name, _ in opts.permissions)
    return frozenset([*usual, *own])


@check(CHECKS)
def check_exposures() -> Iterator[CheckMessage]:
    for checked in all_sites():
        for exposure in checked.exposures.values():
            for find in (_check_options, _check_hooks, _check_names, _check_paths, _check_fields, _check_actions):
                yield from find(exposure)
            if exposure.cache_ttl_ms is not None:
                where = type(exposure)
                yield from check_ttl(f"{where.__name__}.cache_ttl_ms", exposure.cache_ttl_ms, where)


def _check_options(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    for option in LISTS:
        value = getattr(exposure, option)
        if isinstance(value, str) and (option != "fields" or value != "__all__"):
            every = ' or "__all__"' if option == "fields" else ""
            hint = f"Write a list{every}. A tuple of one item needs a comma."
            text = f"{where.__name__}.{option} is {value!r}, which is not a list."
            yield problem("E023", text, hint, where)
    for option in FLAGS:
        value = getattr(exposure, option)
        if not isinstance(value, bool):
            text = f"{where.__name__}.{option} is {value!r}, which is neither True nor False."
            yield problem("E023", text, f"Write {option} = False, or leave it out.", where)
    names = exposure.options.action_names()
    for value in (exposure.confirm, *(_declared_of(exposure, name, "confirm") for name in names)):
        if wrong := wrong_confirmer(value):
            yield problem("E023", f"confirm of {where.__name__}, or of one of its actions, is {value!r}.", wrong, where)
    for name in names:
        atomic = _declared_of(exposure, name, "atomic") is not False
        try:
            TaskOptions.of_action(_declared_of(exposure, name, "task"), atomic=atomic)
        except ImproperlyConfigured as error:
            yield problem("E023", f"The action {exposure.label}/{name}: {error}", "Until then it is no task.", where)
    lookups: Any = exposure.filter_fields or {}
    if not isinstance(lookups, Mapping) or any(isinstance(given, str) for given in lookups.values()):
        text = f"{where.__name__}.filter_fields is {lookups!r}, which is not a dict of lists."
        yield problem("E023", text, 'An example is {"status": ["exact", "in"]}.', where)
    for option, (kind, mark) in CLASSES.items():
        value = getattr(exposure, option)
        if value is not None and not (isclass(value) and hasattr(value, mark)):
            text = f"{where.__name__}.{option} is {value!r}, which is not a {kind}."
            yield problem("E023", text, f"Write a subclass of {kind}.", where)
    shared = {name: getattr(exposure, name) for name in ("form", "inlines", "list_per_page")}
    if given := {name: found for name, found in shared.items() if found}:
        like = type(where.__name__, (ModelAdmin,), {"__module__": where.__module__, **given})
        yield from like(exposure.model, exposure.model_admin.admin_site).check()
    known = {name for name in dir(AdminExposure) if not name.startswith("_")}
    used = {*_names(exposure, "fields"), *_names(exposure, "list_display"), *_names(exposure, "actions")}
    for base in where.__mro__[: where.__mro__.index(ModelExposure)]:
        for name in vars(base) if base is not AdminExposure else ():
            if name in known or name in used or name.startswith("_"):
                continue
            if meant := nearest(name, known, 0.85):
                text = f"{where.__name__}.{name} is not an option or hook of an exposure."
                yield problem("W024", text, meant.strip(), where)


def _declared_of(exposure: ModelExposure, name: str, option: str) -> Any:
    """Return what an action declares as an option, by the decorator or an attribute; None for nothing."""
    function = getattr(exposure, name, None) or getattr(exposure.model_admin, name, None)
    declared = getattr(function, "mcp_action", None)
    return getattr(function, f"mcp_{option}", getattr(declared, option, None))


def _check_hooks(exposure: ModelExposure) -> Iterator[CheckMessage]:
    """Check that each hook of the project's own takes the arguments that the app calls it with."""
    where = type(exposure)
    base = AdminExposure if isinstance(exposure, AdminExposure) else ModelExposure
    for name, stock in vars(ModelExposure).items():
        if not isfunction(stock) or name.startswith("_") or getattr(where, name) is getattr(base, name):
            continue
        taken = [item.replace(annotation=item.empty) for item in signature(stock).parameters.values()]
        needed = [item.name for item in taken[1:] if item.default is item.empty]
        others = {item.name: item.default for item in taken[1 + len(needed) :]}
        own = getattr(exposure, name)
        if not _takes(own, *needed) or not (_takes(own, *needed, **others) or _takes(own, *needed, *others)):
            yield _uncallable(f"{where.__name__}.{name}", Signature(taken), where)


def _takes(function: Any, /, *arguments: Any, **options: Any) -> bool:
    """Return whether a hook or an action can be called with these arguments."""
    try:
        signature(function, follow_wrapped=False).bind(*arguments, **options)
    except (TypeError, ValueError):
        return False
    return True


def _uncallable(name: str, asked: Any, where: type) -> CheckMessage:
    what = f"{name} does not take the arguments that the app passes to it."
    return problem("E037", what, f"Write def {name.rpartition('.')[2]}{asked}.", where)


def _check_names(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    for option in NAMES:
        for name in _names(exposure, option):
            if not _exists(exposure, name):
                yield _missing(exposure, option, name)
            elif getattr(getattr(exposure.model, name, None), "alters_data", False):
                text = f"{where.__name__}.{option} names {name!r}, a method of {exposure.label} that changes data."
                yield problem("E010", text, "Leave it out: reading a row never calls it.", where)
    if exposure.label_field is not None and resolve_path(exposure.model, exposure.label_field) is None:
        yield _missing(exposure, "label_field", exposure.label_field)
    if not isinstance(exposure.filter_fields, Mapping):
        return
    for name, lookups in exposure.filter_fields.items():
        path = resolve_path(exposure.model, name)
        if path is None:
            yield from _check_beyond(exposure, name)
        taken = kind_of(path.field).usual_lookups if path is not None else ()
        for lookup in [lookups] if isinstance(lookups, str) else lookups:
            if path is not None and lookup not in REGEX and lookup not in taken:
                text = f"{where.__name__}.filter_fields gives {name!r} the lookup {lookup!r}, which it does not have."
                hint = f"{nearest(lookup, taken)} It takes {', '.join(taken)}."
                yield problem("E010", text, hint.strip(), where)


def _check_beyond(exposure: ModelExposure, name: str) -> Iterator[CheckMessage]:
    """Check that a name of ``filter_fields`` ends at a field: no filter reaches a key within JSON, or has a lookup."""
    if not _leads_somewhere(exposure, name):
        return
    column, _, rest = name.rpartition("__")
    while column and resolve_path(exposure.model, column) is None:
        column, _, before = column.rpartition("__")
        rest = f"{before}__{rest}"
    path = resolve_path(exposure.model, column) if column else None
    if path is None or path.field.is_relation:
        return
    where = type(exposure)
    text = f"{where.__name__}.filter_fields names {name!r}, but {column!r} is a field without others behind it."
    hint = f'Callers cannot filter on it. Use a filter of your own (filterset_class), or name "{column}".'
    if rest in kind_of(path.field).usual_lookups:
        hint = f'Write {{"{column}": ["{rest}"]}}.'
    yield problem("E010", text, hint, where)


def _check_paths(exposure: ModelExposure) -> Iterator[CheckMessage]:
    # A queryset of the project can have annotations, which are not known here.
    if type(exposure).get_queryset is not ModelExposure.get_queryset or isinstance(exposure, AdminExposure):
        return
    for option in PATHS:
        for entry in _names(exposure, option):
            name = entry.lstrip("^=@") if option == "search_fields" else entry.lstrip("+-?")
            if name and not _leads_somewhere(exposure, name):
                yield _missing(exposure, option, entry)


def _missing(exposure: ModelExposure, option: str, name: str) -> CheckMessage:
    names = [field.name for field in exposure.opts.get_fields()]
    text = f"{type(exposure).__name__}.{option} refers to {name!r}, which {exposure.label} does not have."
    return problem("E010", text, nearest(name, names).strip() or None, type(exposure))


def _check_fields(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    if exposure.options.has_allow_list and exposure.fields is None:
        text = f"{where.__name__} declares no fields: {exposure.label} shows only its primary key."
        yield problem("W011", text, 'List the fields, or write fields = "__all__".', where)
    if exposure.fields == "__all__":
        text = f'{where.__name__}.fields is "__all__": a field added to {exposure.label} later is exposed too.'
        yield problem("W012", text, "List the fields.", where)
    shown = dict.fromkeys([*_names(exposure, "fields"), *(field.name for field in exposure.opts.pk_fields)])
    for name in shown:
        if is_sensitive(name, exposure.model):
            text = f"{where.__name__}.fields shows {name!r}, which looks like a secret, to every caller who can view "
            yield problem("W013", f"{text}{exposure.label}.", obj=where)
        elif gives_rights(name, exposure.model) and name not in exposure.readonly_fields:
            text = (
                f"{where.__name__}.fields names {name!r}: who can change {exposure.label} through it can give rights."
            )
            yield problem("W052", text, f'Put "{name}" into readonly_fields, or leave it out.', where)


def _check_actions(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    marked = [name for name in dir(where) if hasattr(getattr(where, name, None), "mcp_action")]
    for name in _names(exposure, "actions"):
        if name not in marked:
            text = f"{where.__name__}.actions refers to {name!r}, which is not a method marked with @mcp.action."
            yield problem("E014", text, nearest(name, marked).strip() or None, where)
            continue
        method = getattr(exposure, name)
        others = {key: None for key in signature(method).parameters if key not in FunctionAction.SKIPPED}
        if not _takes(method, None, None, **others):
            yield _uncallable(f"{where.__name__}.{name}", "(self, request, queryset)", where)
            continue
        try:
            _ = FunctionAction(exposure, name).schema
        except ImproperlyConfigured as error:
            yield problem("E036", f"An action of {where.__name__} cannot be read: {error}.", CORRECT, where)
        permissions = [item.rpartition(".")[2] for item in model_permissions()]
        for permission in getattr(where, name).mcp_action.permissions:
            known = [*USUAL_PERMISSIONS, *permissions, *model_permissions()]
            if not any(hasattr(owner, f"has_{permission}_permission") for owner in exposure.permission_owners) and (
                permission.rpartition(".")[2] not in permissions and (hint := nearest(permission, known, 0.8))
            ):
                text = f"{where.__name__}.{name} needs the permission {permission!r}, which nobody has."
                yield problem("W026", text, hint.strip(), where)
    for name in set(marked).difference(exposure.actions or ()):
        text = f"{where.__name__}.{name} is marked with @mcp.action but not in actions: nobody can run it."
        yield problem("I028", text, f'Add "{name}" to actions.', where)


def check_ttl(name: str, ttl: Any, obj: Any = None) -> Iterator[CheckMessage]:
    """Check a time in milliseconds for which clients may cache a list or resource; ``name`` says what it is."""
    if type(ttl) is not int or ttl < 0:
        hint = "Write a number of milliseconds, 0 or more."
        yield problem("E018", f"{name} is {ttl!r}, which is not a time.", hint, obj)
    elif ttl > LONG_TTL:
        text = f"{name} is over an hour: for so long, clients can show what users can no longer see."
        yield problem("W018", text, obj=obj)


@check(DEPLOYMENT_CHECKS)
def check_orders() -> Iterator[CheckMessage]:
    """Find exposures whose default ordering has no index, or cannot be paged."""
    reported = set()
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        ordering = DeclaredOrdering(exposure)
        for entry in ordering.unsortable_entries():
            text = f"Pages of {exposure.label} leave out a part of its order, {entry}: it gives rows no fixed place."
            yield problem("I038", text, "Set another ordering on the exposure.", exposure.model)
        keys = ordering.keys
        names = tuple(map(_signed, keys))
        if not exposure.opts.managed or ordering.is_served or (exposure.label, names) in reported:
            continue
        reported.add((exposure.label, names))
        hint = f"Add models.Index(fields={list(names)}, name=...) to its Meta.indexes, or "
        if len({getattr(key.field, "model", None) for key in keys}) > 1 or any("__" in name for name in names):
            hint = "No index can serve an order through a relation: "
        text = f"No index serves the order of {exposure.label}, {', '.join(names)}: each page sorts the whole table."
        yield problem("I021", text, f"{hint}set another ordering on the exposure.", exposure.model)


def _signed(key: Any) -> str:
    return f"-{key.path}" if key.descending else str(key.path)


@check(DEPLOYMENT_CHECKS)
def check_random() -> Iterator[CheckMessage]:
    """Find exposed columns with random values that look like secrets."""
    reported = set()
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        if exposure.fields is not None and exposure.fields != "__all__":
            continue
        for field in exposure.opts.concrete_fields:
            column = exposure.label, field.name
            if column in reported or not _looks_random(field) or exposure.options.leaves_out(field.name):
                continue
            reported.add(column)
            yield problem(
                "I159",
                f"{exposure.label} shows {field.name!r}, whose values look random: knowing one may be enough to get "
                "in.",
                f'If so, set exclude = ["{field.name}"] on its exposure. If not, list its fields, or silence this '
                "check.",
                exposure.model,
            )


def _looks_random(field: Any) -> bool:
    if not is_long(field) or field.choices or is_sensitive(field.name, field.model):
        return False
    return is_drawn(field) or bool(field.unique and OPENING.search(field.name))


@check(DEPLOYMENT_CHECKS)
def check_undeclared() -> Iterator[CheckMessage]:
    """Find declarations whose absence costs callers a feature.

    The code that lacks them is not analysed: a declaration says more than a guess at what the code does.
    """
    reported = set()
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        for owner, text, hint in _undeclared(exposure):
            if (exposure.label, owner) not in reported:
                reported.add((exposure.label, owner))
                yield problem("I162", text, hint, exposure.model)


def _undeclared(exposure: ModelExposure) -> Iterator[tuple[Any, str, str]]:
    """Yield the missing declarations of an exposure: the object, the consequence, and how to declare it."""
    for owner in (type(exposure), type(exposure.model_admin)):
        if HistoryRows.leaves_out(owner):
            text = f"{owner.__name__} may decide for each row who sees {exposure.label}, so {HISTORY} leaves it out."
            yield owner, text, f"If it ignores the row, set mcp_history = True on {owner.__name__}."
    for inline in exposure.options.inlines:
        hook = getattr(inline, "get_queryset", ModelAdmin.get_queryset)
        if getattr(inline, "mcp_readable", None) is None and not is_djangos(hook):
            text = f"The rows of {inline.__name__} are not exposed, because its get_queryset may need the page."
            yield inline, text, "Set mcp_readable on it: True if it does not, False if it does."
    unsaid = [action.name for action in _admin_actions(exposure) if action.may_show_a_page]
    if unsaid:
        text = f"Actions of {exposure.label} may show a page that asks for something: {', '.join(unsaid)}."
        yield "actions", text, "Annotate each as -> None, or set its mcp_form to the form class of its page, or None."


@check(DEPLOYMENT_CHECKS)
def check_destructive() -> Iterator[CheckMessage]:
    """Find actions of an admin that do not say whether they can destroy something."""
    reported = set()
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        unsaid = [action.name for action in _admin_actions(exposure) if action.confirms and not action.is_declared]
        if unsaid and exposure.label not in reported:
            reported.add(exposure.label)
            text = f"Actions of {exposure.label} ask for confirmation on each call: {', '.join(unsaid)}."
            hint = "Set mcp_destructive on each: False if it can do no harm, True to keep the question."
            yield problem("I163", text, hint, exposure.model)


@check(DEPLOYMENT_CHECKS)
def check_files() -> Iterator[CheckMessage]:
    """Find actions of an admin that may hand out files with columns that are hidden."""
    reported = set()
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        columns = {field.name for field in exposure.opts.concrete_fields if not field.primary_key}
        if exposure.label in reported or not any(_is_hidden(exposure, name) for name in columns):
            continue
        reported.add(exposure.label)
        actions = [action for action in _admin_actions(exposure) if not action.hands_out_files]
        if exporting := [action.name for action in actions if _makes_files(action)]:
            text = f"Files of these actions of {exposure.label} are held back where they have hidden columns: "
            hint = "Export only columns that callers see. To hand out all, set mcp_file = True on the action."
            yield problem("I164", f"{text}{', '.join(exporting)}.", hint, exposure.model)


@check(DEPLOYMENT_CHECKS)
def check_tried_hooks() -> Iterator[CheckMessage]:
    """Find exposures whose writes run hooks of the project once more, without saying that this is meant."""
    reported = set()
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        hooks = [hook for owner in (exposure, exposure.model_admin) for hook in WRITING_HOOKS if _is_own(owner, hook)]
        if not hooks or exposure.label in reported or _says(exposure, "dry_run"):
            continue
        reported.add(exposure.label)
        text = (
            f"Hooks of {exposure.label} run once more, rolled back, when a write is tried or shown to be confirmed: "
            f"{', '.join(dict.fromkeys(hooks))}."
        )
        hint = "Say dry_run = False where they do something that no rollback takes back, dry_run = True where not."
        if isinstance(exposure, AdminExposure):
            hint = f"{hint} On a ModelAdmin the attribute is mcp_dry_run."
        yield problem("I169", text, hint, exposure.model)


def _is_own(owner: Any, hook: str) -> bool:
    """Return whether a hook is neither Django's nor of this app."""
    module = getattr(getattr(owner, hook, ModelAdmin.save_model), "__module__", None) or ""
    return not module.startswith(("django.", "mcp_django."))


def _says(exposure: ModelExposure, option: str) -> bool:
    """Return whether the project sets an option of an exposure, or the attribute of the ``ModelAdmin``."""
    classes = type(exposure).__mro__
    own = classes[: classes.index(ModelExposure)]
    return any(option in vars(base) for base in own) or hasattr(exposure.model_admin, f"mcp_{option}")


@check(CHECKS)
def check_tried_actions() -> Iterator[CheckMessage]:
    """Find actions that say that they can be tried, and that no rollback undoes."""
    for exposure in (exposure for checked in all_sites() for exposure in checked.exposures.values()):
        marked = [name for name in _names(exposure, "actions") if hasattr(getattr(exposure, name, None), "mcp_action")]
        for action in [*(FunctionAction(exposure, name) for name in marked), *_admin_actions(exposure)]:
            if action.options.dry_run and not action.atomic:
                text = f"{action.key} says that it can be tried, but manages its own transactions."
                yield problem("W170", text, "Remove dry_run, or let it run in one transaction.", exposure.model)


def _is_hidden(exposure: ModelExposure, name: str) -> bool:
    """Return whether a column is hidden from all callers, or may be hidden from some."""
    field = exposure.opts.get_field(name)
    if is_withheld(name, exposure.model) or exposure.options.leaves_out(name) or exposure.options.may_take(field):
        return True
    admin = exposure.model_admin
    declared = flatten_fieldsets(admin.fieldsets) if admin.fieldsets else admin.fields
    shown = declared is None or name in declared or name in admin.list_display
    return not shown or name in (admin.exclude or ())


def _makes_files(action: AdminAction) -> bool:
    """Return whether an action sounds as if it made a file, by its name, package or annotation."""
    function = action.function
    annotation = str(getattr(function, "__annotations__", {}).get("return", ""))
    is_response = "Response" in annotation
    return is_response or EXPORTING.search(f"{action.name} {function.__module__}") is not None


def _admin_actions(exposure: ModelExposure) -> list[AdminAction]:
    """Return the actions that the exposure's ``ModelAdmin`` declares, without Django's own."""
    if not isinstance(exposure, AdminExposure):
        return []
    base: Any = exposure.model_admin
    declared = map(AdminExposure.action_parts, base._get_base_actions())
    parts = [(name, function) for function, name, _ in declared if name != "delete_selected"]
    parts += [(button.name, button.function) for button in exposure.options.buttons]
    return [AdminAction(exposure, name, function, "") for name, function in parts]


def _names(exposure: ModelExposure, option: str) -> list[str]:
    value = getattr(exposure, option) or ()
    if isinstance(value, str):
        return []
    return [item for item in value if isinstance(item, str)]


def _exists(exposure: ModelExposure, name: str) -> bool:
    try:
        exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return hasattr(exposure.model, name) or exposure.get_computed(name) is not None
    return True


def _leads_somewhere(exposure: ModelExposure, path: str) -> bool:
    """Return whether a path follows existing fields and relations of the model."""
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
