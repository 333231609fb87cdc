"""The tables: one migration that says what the models say, names for people that give nothing away."""

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.utils import timezone

from mcp_django.models import CallEntry, Session, Stream, StreamEvent

pytestmark = pytest.mark.django_db


def make_stream() -> Stream:
    session = Session.objects.create(id="0123456789", created=timezone.now(), seen=timezone.now())
    return Stream.objects.create(id="abcdefghij", session=session, alive=timezone.now())


def test_the_migrations_make_these_tables() -> None:
    call_command("makemigrations", "mcp_django", check=True, dry_run=True, verbosity=0)


def test_88_an_id_is_shown_cut() -> None:
    stream = make_stream()
    event = StreamEvent(stream=stream, number=3, data="{}")
    assert [str(stream.session), str(stream), str(event)] == ["012345…", "abcdef…", "abcdef…-3"]


def test_a_number_is_given_once_in_a_stream() -> None:
    stream = make_stream()
    StreamEvent.objects.create(stream=stream, number=1, data="{}")
    with pytest.raises(IntegrityError):
        StreamEvent.objects.create(stream=stream, number=1, data="{}")


def test_what_belongs_to_a_session_goes_with_it() -> None:
    stream = make_stream()
    StreamEvent.objects.create(stream=stream, number=1, data="{}")
    stream.session.delete()
    assert not Stream.objects.exists()
    assert not StreamEvent.objects.exists()


@pytest.mark.parametrize(("is_partial", "end"), [(True, " WHERE \"trace\" > ''"), (False, ")")])
def test_an_index_of_some_rows_is_one_of_all_rows_where_the_database_has_none_such(
    is_partial: bool, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_partial and not connection.features.supports_partial_indexes:
        pytest.skip("this database has none")
    monkeypatch.setattr(connection.features, "supports_partial_indexes", is_partial)
    index = next(index for index in CallEntry._meta.indexes if index.name == "mcp_call_trace")
    editor = connection.schema_editor(collect_sql=True)
    statement = str(index.create_sql(CallEntry, editor)).replace("`", '"')
    assert statement.endswith(end)
    assert not CallEntry.check(databases=["default"])
