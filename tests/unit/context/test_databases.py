from itertools import cycle
from types import SimpleNamespace

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.db import router
from django.db.backends.signals import connection_created
from oauth2_provider.models import get_access_token_model

from mcp_django.context.call_record import CallRecord
from mcp_django.context.databases import PRIMARY, LostDatesAsText
from mcp_django.models import CallEntry
from tests.documentation import DOCS, blocks_of
from tests.sitesapp.models import KindTotal
from tests.testapp.models import Author, Book


class Reading:
    """Names where authors are read, and not where they are written."""

    def db_for_read(self, model, **hints):
        return "replica" if model is Author else None


class Writing(Reading):
    def db_for_write(self, model, **hints):
        return "primary" if model is Author else None


class Refusing(Reading):
    def db_for_write(self, model, **hints):
        if model is Author:
            raise RuntimeError("Authors are another application's")


class Elsewhere(Reading):
    def allow_migrate(self, db, app_label, model_name=None, **hints):
        return db != "default" or model_name != "author"


@pytest.fixture
def calling():
    """Say whether the call that runs writes."""

    def begin(*, writes):
        CallRecord.current.set(CallRecord(writes=writes))
        PRIMARY.install()

    token = CallRecord.current.set(None)
    yield begin
    CallRecord.current.reset(token)


@pytest.mark.parametrize(
    ("kind", "alias"), [(Reading, "default"), (Writing, "primary"), (Refusing, "replica"), (Elsewhere, "replica")]
)
def test_a_call_that_writes_reads_where_the_model_is_written_if_it_is(settings, calling, kind, alias):
    settings.DATABASE_ROUTERS = [kind()]
    calling(writes=True)
    assert router.db_for_read(Author) == alias
    assert router.db_for_read(Book) == "default"
    calling(writes=False)
    assert router.db_for_read(Author) == "replica"


def test_a_table_that_no_migration_makes_stays_where_it_is_read(settings, calling):
    class Views:
        def db_for_read(self, model, **hints):
            return "views"

    settings.DATABASE_ROUTERS = [Views()]
    calling(writes=True)
    assert router.db_for_read(KindTotal) == "views"


def test_routers_are_asked_once_for_each_query_however_many_calls_write(settings, calling):
    asked = []

    class Counting:
        def db_for_write(self, model, **hints):
            asked.append(model)
            return "primary"

    settings.DATABASE_ROUTERS = [Counting()]
    for _ in range(3):
        calling(writes=True)
    assert router.db_for_read(Author) == "primary"
    assert asked == [Author]


def test_a_project_without_routers_gets_none(settings, calling):
    settings.DATABASE_ROUTERS = []
    calling(writes=True)
    assert router.routers == []
    assert django_settings.DATABASE_ROUTERS == []


def test_where_a_model_is_does_not_depend_on_the_replica_that_is_drawn(settings):
    class Drawing:
        replicas = cycle(["first", "second"])

        def db_for_read(self, model, **hints):
            return next(self.replicas)

    settings.DATABASE_ROUTERS = [Drawing()]
    assert PRIMARY.home_of(Author) == PRIMARY.home_of(Book) == "default"
    settings.DATABASE_ROUTERS = [Writing()]
    assert (PRIMARY.home_of(Author), PRIMARY.home_of(Book)) == ("primary", "default")
    settings.DATABASE_ROUTERS = [Refusing()]
    assert PRIMARY.home_of(Author) == "replica"


def test_the_router_of_the_documentation_reads_rows_in_the_replica_and_tokens_in_the_primary(settings, calling):
    (block,) = [block for block in blocks_of(DOCS / "deployment.md") if block.file == "shop/routers.py"]
    names = {}
    exec(block.text, names)
    settings.DATABASE_ROUTERS = [names["ReplicaRouter"]()]
    models = [Author, get_access_token_model(), get_user_model(), CallEntry]
    assert [router.db_for_read(model) for model in models] == ["replica", "default", "default", "default"]
    calling(writes=True)
    assert {router.db_for_read(model) for model in models} == {"default"}
    assert router.allow_relation(Author(), Author())


def test_a_date_that_mysqlclient_gives_as_null_is_read_as_its_text_where_the_app_reads_rows():
    def read(text):
        return None if text.startswith("0000") else text[:4]

    kinds = {"TIMESTAMP": 7, "DATE": 10, "DATETIME": 12}
    # mysqlclient has a dictionary of converters for each connection; converters of Python types are there too.
    raw = SimpleNamespace(converter={**dict.fromkeys(kinds.values(), read), 3: int, str: repr}, thread_id=lambda: 1)
    connection_created.send(None, connection=SimpleNamespace(vendor="mysql", connection=raw))
    assert (raw.converter[3], raw.converter[str]) == (int, repr)
    for kind in kinds.values():
        convert = raw.converter[kind]
        assert (convert("0000-00-00"), convert("2026-01-01")) == (None, "2026")
        with LostDatesAsText():
            assert (convert("0000-00-00"), convert("2026-01-01")) == ("0000-00-00", "2026")
