"""A confirmation that an outage of the database ends is still good: once it is back, the same call works."""

from typing import Any

import pytest
from django.db import OperationalError, connection

from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

MOST_QUERIES = 60


class Lost(Exception):
    """The error of a driver whose server has closed the connection."""

    sqlstate = "57P01"


class Outage:
    """The database is away from the ``number``-th query on."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, execute: Any, *args: Any) -> Any:
        self.left -= 1
        if self.left <= 0:
            raise OperationalError("the connection was closed") from Lost()
        return execute(*args)

    @property
    def has_come(self) -> bool:
        return self.left <= 0


@pytest.fixture
def client():
    return MCPClient(make_superuser())


def many_authors() -> list[int]:
    return [make_author(f"author {number}").pk for number in range(2)]


def delete_one() -> tuple[str, dict[str, Any]]:
    return "delete_record", {"model": "testapp.author", "pk": make_author("author").pk}


def delete_many() -> tuple[str, dict[str, Any]]:
    return "delete_record", {"model": "testapp.author", "pks": many_authors()}


def update_many() -> tuple[str, dict[str, Any]]:
    return "update_record", {"model": "testapp.author", "pks": many_authors(), "values": {"name": "other"}}


def stored() -> list[Any]:
    return list(Author.objects.order_by("pk").values_list("pk", "name"))


def met_by(number: int, client: MCPClient, tool: str, arguments: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the outage has come during a call, and the error that the client was told, "" for none."""
    outage = Outage(number)
    with connection.execute_wrapper(outage):
        try:
            result = client.call(tool, **arguments)
        except MCPError as error:
            return outage.has_come, str(error)
    return outage.has_come, result.text if result.is_error else ""


@pytest.mark.parametrize("write", [delete_one, delete_many, update_many])
def test_a_confirmation_that_meets_an_outage_counts_for_the_next_try(client, write):
    tool, arguments = write()
    asked = client.call(tool, **arguments)
    arguments["confirm_token"] = asked.structured["confirm_token"]
    before = stored()
    met = []
    for number in range(1, MOST_QUERIES):
        has_come, error = met_by(number, client, tool, arguments)
        if not error:
            break
        assert has_come
        assert stored() == before, error
        met.append(error)
    assert [error for error in met if "was used" in error] == []
    assert len(met) > 4
    assert stored() != before
