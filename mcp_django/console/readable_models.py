"""Read a row of every model that a person can see, and say which models the project's own code keeps from them."""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ..context.call_middleware import CallMiddleware
from ..context.request import MCPRequest
from ..exceptions import MiddlewareFailed, ToolError
from ..orm.access import access_of
from ..orm.query_limits import read_limits
from ..routing import mounted_sites
from ..runtime.failing_hooks import HookFailures
from ..runtime.middleware_source import missing_attribute
from ..scopes import default_scopes
from ..sites import MCPSite
from ..transports.local_client import LocalClient

READ: Final = "query_records"
DESCRIBE: Final = "describe_model"
# Maximum number of models that a failure names.
MAX_NAMED: Final = 5


@dataclass(slots=True)
class Trial:
    """The outcome for all models: how many were ``read`` and ``unread``, and by each cause the models that failed."""

    read: int = 0
    unread: int = 0
    failed: dict[str, list[str]] = field(default_factory=dict)

    def fail(self, label: str, cause: str) -> None:
        """Add a model that failed."""
        labels = self.failed.setdefault(cause, [])
        if label not in labels:
            labels.append(label)

    def causes_of(self, label: str) -> tuple[str, ...]:
        """Return why a model failed, nothing if it did not."""
        return tuple(cause for cause, labels in self.failed.items() if label in labels)

    def lines(self) -> list[tuple[str, str]]:
        """Return the models of each cause, as one text, and the cause."""
        lines = []
        for cause, labels in self.failed.items():
            more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
            lines.append((", ".join(labels[:MAX_NAMED]) + more, cause))
        return lines


def try_models(person: Any, seconds: float = 60.0) -> Trial:
    """Read a row of each model of all endpoints that ``person`` can see, until ``seconds`` are over.

    The reads are those of calls, but leave no trace in the log of calls.
    """
    trial = Trial()
    ends = time.monotonic() + seconds
    for site in mounted_sites():
        # The middleware that such a site needs does not run here.
        if not site.needs_middleware:
            _try_site(LocalClient(site, person, default_scopes()), trial, ends)
    return trial


def try_site(
    site: MCPSite, person: Any, scopes: Iterable[str], only: Collection[str] | None = None, seconds: float = 60.0
) -> Trial:
    """Read a row of each model of one endpoint that ``person`` can see with these scopes, until ``seconds`` are over.

    With ``only``, read rows of the models with these labels alone.
    """
    trial = Trial()
    if not site.needs_middleware:
        _try_site(LocalClient(site, person, scopes), trial, time.monotonic() + seconds, only)
    return trial


def _try_site(client: LocalClient, trial: Trial, ends: float, only: Collection[str] | None = None) -> None:
    labels = {exposure.label for exposure in access_of(client.new_request()).exposures}
    if only is not None:
        labels.intersection_update(only)
    for label in sorted(labels):
        if time.monotonic() > ends:
            trial.unread += 1
            continue
        trial.read += 1
        request = client.new_request()
        try:
            failures = CallMiddleware(request).run(partial(_failures, request, label))
        except MiddlewareFailed as failed:
            # It fails around every other call too.
            trial.fail("CALL_MIDDLEWARE", f"{failed}: {_cause(failed.__cause__ or failed)}")
            return
        for owner, hook, error in failures:
            trial.fail(owner, missing_attribute(error) or f"{hook} failed: {_cause(error)}")


def _failures(request: MCPRequest, label: str) -> HookFailures:
    """Return what fails when a row of a model is read and the model is described."""
    with HookFailures.noted() as failures, read_limits():
        for name, arguments in ((READ, {"model": label, "limit": 1}), (DESCRIBE, {"model": label})):
            tool = request.mcp.site.get_tool(request, name)
            try:
                if tool is not None:
                    tool.call(request, arguments)
            except ToolError:
                # What the project refuses, such as a query without a filter.
                continue
            except Exception as error:
                failures.append((label, name, error))
    return failures


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
