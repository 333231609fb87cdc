"""What ``mcp.py`` declares with: ``register``, ``register_viewset``, ``tool``, ``resource``, ``prompt``, ``action``,
``approval`` and ``task``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from .exposures.model_exposure import ModelExposure
from .sites import MCPSite
from .sites import site as default_site

if TYPE_CHECKING:
    from .context.request import MCPRequest
    from .exposures.declared_approvals import Approval
    from .exposures.declared_tasks import TaskOptions

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=type[ModelExposure])


def register(*models: type[Model], site: MCPSite | None = None) -> Callable[[E], E]:
    """Decorator of a :class:`ModelExposure`: register it for the models, on the default site or on ``site``.

    Raises:
        AlreadyRegistered: one of the models is registered explicitly already.
        ValueError: no model was given, or the class is not an exposure.
    """
    if not models or (isinstance(models[0], type) and issubclass(models[0], ModelExposure)):
        raise ValueError("At least one model must be passed to register: @mcp.register(Order).")

    def wrapper(exposure_class: E) -> E:
        if not issubclass(exposure_class, ModelExposure):
            raise ValueError("The wrapped class must subclass ModelExposure.")
        (site or default_site).register(models, exposure_class)
        return exposure_class

    return wrapper


def register_viewset(
    prefix: str,
    viewset: type | None = None,
    basename: str | None = None,
    *,
    site: MCPSite | None = None,
    **options: Any,
) -> Any:
    """Decorator or function: register a ViewSet of REST framework, with the arguments of a router's ``register``. See
    :meth:`~mcp_django.sites.MCPSite.register_viewset`."""

    def wrapper(viewset: type) -> type:
        (site or default_site).register_viewset(prefix, viewset, basename, **options)
        return viewset

    return wrapper(viewset) if viewset is not None else wrapper


def tool(function: F | None = None, *, site: MCPSite | None = None, **options: Any) -> Any:
    """Decorator: make a tool of a function ``(request, **arguments)``; see
    :class:`~mcp_django.tools.function_tools.FunctionTool`.

    The schema comes from the signature and the docstring. Used bare or with the tool's attributes as options. The
    annotations are read when a server starts or the system checks run, not by every command.

    Raises:
        ImproperlyConfigured: the name or the parameters cannot be used.
        AlreadyRegistered: the site has a tool of this name.
    """
    return _decorator((site or default_site).add_tool, function, options)


def prompt(function: F | None = None, *, site: MCPSite | None = None, **options: Any) -> Any:
    """Make a prompt of a function ``(request, **arguments)``; see :class:`~mcp_django.resources.prompts.Prompt`."""
    return _decorator((site or default_site).add_prompt, function, options)


def resource(uri: str, *, site: MCPSite | None = None, **options: Any) -> Callable[[F], F]:
    """Decorator: make a resource of a function; a URI with ``{parameters}`` makes a resource template. See
    :class:`~mcp_django.resources.function_resources.FunctionResource`."""

    def wrapper(function: F) -> F:
        (site or default_site).add_resource(uri, function, **options)
        return function

    return wrapper


def _decorator(add: Callable[..., None], function: F | None, options: dict[str, Any]) -> Any:
    def wrapper(function: F) -> F:
        add(function, **options)
        return function

    return wrapper(function) if function is not None else wrapper


def action(
    function: F | None = None,
    *,
    permissions: Iterable[str] = ("change",),
    description: str = "",
    destructive: bool = True,
    **options: Any,
) -> Any:
    """Decorator: make an action of an exposure's method ``(self, request, queryset, **arguments)``.

    ``permissions`` are those of the exposure that a caller needs, by the names of its ``has_*_permission``. A
    destructive action shows what it would do and waits for a confirmation. A generator, which yields its progress, also
    runs if it is called without MCP, such as by the admin. ``task`` is True, or an ``mcp.task()``: the action may go on
    as a task.

    Raises:
        ImproperlyConfigured: the permissions are text, or the options do not go together.
    """
    if isinstance(permissions, str):
        raise ImproperlyConfigured(f'permissions of an action must be a list such as ["change"], not {permissions!r}.')
    from .exposures.declared_actions import ActionOptions

    if "task" in options:
        # Only for projects with tasks.
        from .exposures.declared_tasks import TaskOptions

        options["task"] = TaskOptions.of_action(options["task"], atomic=options.get("atomic", True))
    approval = options.pop("approval", ())
    # Frozen, as the options are.
    approvals = tuple(approval) if isinstance(approval, (list, tuple)) else (approval,)

    def wrapper(function: F) -> F:
        function = _runs_anywhere(function)
        function.mcp_action = ActionOptions(  # type: ignore[attr-defined]
            permissions=tuple(permissions),
            description=description,
            destructive=destructive,
            approval=approvals,
            **options,
        )
        return function

    return wrapper(function) if function is not None else wrapper


def approval(
    *,
    when: Mapping[str, Any] | Callable[[MCPRequest, Mapping[str, Any]], bool] | None = None,
    permission: str = "",
    group: str = "",
    name: str = "",
    rows_above: int | None = None,
    hours: int = 72,
) -> Approval:
    """Return which calls wait for the yes of another person, for the option ``approval`` of an exposure, an action or a
    tool; see :class:`~mcp_django.exposures.declared_approvals.Approval`.

    Raises:
        ImproperlyConfigured: not exactly one of a permission and a group is named.
    """
    from .exposures.declared_approvals import Approval

    return Approval(when=when, permission=permission, group=group, name=name, rows_above=rows_above, hours=hours)


def task(*, timeout: float | None = None, atomic: bool = False, required: bool = False) -> TaskOptions:
    """Return how calls run that may go on as tasks, for the option ``task`` of a tool or an action; see
    :class:`~mcp_django.exposures.declared_tasks.TaskOptions`.

    Raises:
        ImproperlyConfigured: ``timeout`` is not a number above 0.
    """
    from .exposures.declared_tasks import TaskOptions

    return TaskOptions(timeout=timeout, atomic=atomic, required=required)


def _runs_anywhere(method: F) -> F:
    """Wrap an action that is a generator, so that the admin can run it too, without progress. The admin only
    calls its actions, so a generator would do nothing there, and nobody would notice."""
    if not inspect.isgeneratorfunction(method):
        return method

    @wraps(method)
    def run(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        steps = method(self, request, *args, **options)
        if hasattr(request, "mcp"):
            return steps
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    return run  # type: ignore[return-value]
