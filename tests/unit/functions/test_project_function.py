"""A project function: its name and texts, who may call it, and its call."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.http import Http404
from django.utils.asyncio import async_unsafe

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import Cancelled, NotFound, ToolError
from mcp_django.functions.project_function import ProjectFunction, speaking_plainly
from tests.testapp.models import Author

if TYPE_CHECKING:
    pass


class SyncSite:
    @async_unsafe
    def get_object(self, request: Any, model: Any, pk: Any) -> Any:
        """Like a query, not to be called where the event loop runs."""
        return model(pk=pk, name="Ada")


def request_of(*permissions: str) -> Any:
    user = SimpleNamespace(has_perms=lambda wanted: set(wanted) <= set(permissions))
    return SimpleNamespace(user=user, mcp=SimpleNamespace(site=SyncSite(), record=CallRecord(), approvals=None))


def double(request: Any, number: int = 1) -> int:
    """Double a number.

    Args:
        number: Any.
    """
    return 2 * number


async def name_of(request: Any, author: Author) -> str:
    return author.name


def test_a_function_has_its_name_texts_and_arguments() -> None:
    function = ProjectFunction(double)
    assert (function.name, function.description, function.is_async) == ("double", "Double a number.", False)
    assert ProjectFunction(double, name="twice", description="Text").name == "twice"
    assert function.arguments.schema["properties"]["number"]["description"] == "Any. (default 1)"


def test_a_call_validates_and_finishes() -> None:
    assert ProjectFunction(double).call(request_of(), {"number": "4"}, str) == "8"
    with pytest.raises(ToolError, match="numbr: unknown, did you mean number"):
        ProjectFunction(double).call(request_of(), {"numbr": 4}, str)


async def test_an_async_function_gets_its_rows_without_blocking_the_loop() -> None:
    outcome: Any = ProjectFunction(name_of).call(request_of(), {"author": 7}, str.upper)
    assert await outcome == "ADA"


async def test_what_an_async_function_returns_may_take_a_query_to_show() -> None:
    async def some(request: Any) -> list[int]:
        return [1]

    outcome: Any = ProjectFunction(some).call(request_of(), {}, async_unsafe(str))
    assert await outcome == "[1]"


async def test_an_async_function_refuses_like_any_other() -> None:
    async def refuse(request: Any) -> str:
        raise PermissionDenied

    outcome: Any = ProjectFunction(refuse).call(request_of(), {}, str)
    with pytest.raises(ToolError, match="Permission denied"):
        await outcome


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValidationError("Too late."), "Invalid: Too late."),
        (ValidationError({"name": ["Empty.", "Odd."], "age": ["Old."]}), "Invalid: name: Empty. Odd.; age: Old."),
        (ValidationError("%(n)s is odd", params={"n": 3}), "Invalid: 3 is odd"),
        (PermissionDenied(), "Permission denied."),
        (PermissionDenied("Ask the owner."), "Ask the owner."),
        (Author.DoesNotExist("Author matching query does not exist."), "Author matching query does not exist."),
        (Http404(), "Not found."),
    ],
)
def test_R26_djangos_refusals_are_text_for_the_model(error: Exception, message: str) -> None:
    with pytest.raises(ToolError) as caught, speaking_plainly():
        raise error
    assert caught.value.message == message


@pytest.mark.parametrize("error", [ToolError("x"), NotFound(), RuntimeError("secret"), Cancelled()])
def test_everything_else_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, speaking_plainly():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("held", "needed", "condition", "expected"),
    [
        ((), (), None, True),
        ((), ("shop.view_order",), None, False),
        (("shop.view_order",), ("shop.view_order",), None, True),
        (("shop.view_order",), ("shop.view_order", "shop.add_order"), None, False),
        ((), (), False, False),
        (("shop.view_order",), ("shop.view_order",), False, False),
        (("shop.view_order",), ("shop.view_order",), True, True),
    ],
)
def test_permissions_and_condition_both_count(held: Any, needed: Any, condition: bool | None, expected: bool) -> None:
    permission = None if condition is None else lambda request: condition
    function = ProjectFunction(double, permissions=needed, permission=permission)
    assert function.has_permission(request_of(*held)) is expected


@pytest.mark.parametrize("permissions", ["shop.view_order", ["view_order"]])
def test_permissions_that_would_never_hold_are_refused(permissions: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="permissions"):
        ProjectFunction(double, permissions=permissions)


def test_the_request_comes_first() -> None:
    for function in (lambda: 1, lambda number: 1, lambda *, request: 1, lambda number, request: 1):
        with pytest.raises(ImproperlyConfigured, match="request"):
            ProjectFunction(function)
