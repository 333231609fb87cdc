import pytest

from mcp_django.signals import rows_changed
from mcp_django.tools.action_tools import RunAction
from tests.factories import make_book, make_superuser
from tests.testapp.models import Book
from tests.tool_calls import call, request_of


@pytest.mark.django_db
def test_rows_that_an_action_changed_without_a_signal_of_django_are_told():
    told, book = [], make_book()

    def hear(sender, rows, **kwargs):
        told.append((sender, list(rows)))

    rows_changed.connect(hear)
    try:
        request = request_of(make_superuser(), scopes=frozenset({"mcp:read", "mcp:write"}))
        call(RunAction(), request, model="testapp.book", action="publish", pks=[book.pk])
    finally:
        rows_changed.disconnect(hear)
    assert told == [(Book, [book])]
