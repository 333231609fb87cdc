"""Exports as they are kept: whose they are, what becomes of their files, and what ends them."""

import re
from datetime import timedelta
from io import BytesIO
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import InMemoryStorage, storages
from django.utils import timezone

from mcp_django.exceptions import NotFound
from mcp_django.exports import kept_exports
from mcp_django.exports.kept_exports import KeptExport
from mcp_django.testing import MCPClient
from tests.factories import make_book, make_superuser

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}


@pytest.fixture(autouse=True)
def storage(settings: Any) -> Any:
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": MEMORY}
    return storages["mcp_exports"]


@pytest.fixture
def root() -> Any:
    return make_superuser()


def exported(user: Any, **arguments: Any) -> KeptExport:
    """Export books, and return the export."""
    told = MCPClient(user).call("export_records", **{"model": "testapp.book", **arguments}).structured
    found = re.fullmatch(r"export:([0-9a-f]{32})/(.+)", told["uri"])
    assert found is not None
    assert found[2] == told["file"]
    return KeptExport.find(user, "mcp_django", found[1])


def test_a_file_is_found_by_its_user_alone(root: Any, storage: Any) -> None:
    make_book("Dune")
    kept = exported(root)
    assert b"Dune" in kept.open().read()
    assert kept.url == f"http://testserver/mcp/exports/{kept.row.pk}"
    with pytest.raises(NotFound):
        KeptExport.find(make_superuser("other"), "mcp_django", kept.row.pk)
    with pytest.raises(NotFound):
        KeptExport.find(root, "other", kept.row.pk)
    with pytest.raises(NotFound):
        KeptExport.find(root, "mcp_django", kept.row.pk, client_id="another")


def test_the_name_of_the_file_has_nothing_of_the_caller(root: Any) -> None:
    kept = exported(root, filters={"title": "../../etc/passwd"})
    assert re.fullmatch(r"testapp\.book-\d{4}-\d\d-\d\d\.csv", kept.row.name)
    assert kept.row.stored == f"mcp_exports/{kept.row.pk}.csv"


def test_what_has_expired_is_deleted_with_its_file(root: Any, storage: Any) -> None:
    kept = exported(root)
    fresh = exported(root)
    KeptExport.rows().filter(pk=kept.row.pk).update(expires=timezone.now() - timedelta(seconds=1))
    with pytest.raises(NotFound):
        KeptExport.find(root, "mcp_django", kept.row.pk)
    assert KeptExport.purge() == 1
    assert not storage.exists(kept.row.stored)
    assert storage.exists(fresh.row.stored)
    assert list(KeptExport.rows().values_list("pk", flat=True)) == [fresh.row.pk]


def test_of_too_many_the_oldest_goes(root: Any, storage: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(kept_exports, "MOST", 2)
    oldest = exported(root)
    others = [exported(root), exported(root)]
    assert not storage.exists(oldest.row.stored)
    assert {kept.row.pk for kept in others} == set(KeptExport.rows().values_list("pk", flat=True))


def test_every_export_can_be_deleted_also_one_that_is_being_written(root: Any, storage: Any) -> None:
    kept, unfinished = exported(root), exported(root)
    KeptExport.rows().filter(pk=unfinished.row.pk).update(size=None)
    assert KeptExport.purge(every=True) == 2
    assert not KeptExport.rows().exists()
    assert not storage.exists(kept.row.stored)
    with pytest.raises(NotFound):
        unfinished.finish(BytesIO(b"late"), 1)
    assert not storage.exists(unfinished.row.stored)


def test_what_the_storage_does_not_delete_keeps_its_row_for_a_later_try(root: Any, monkeypatch: Any) -> None:
    exported(root)
    with monkeypatch.context() as patch:
        patch.setattr(InMemoryStorage, "delete", Mock(side_effect=OSError("read-only")))
        assert KeptExport.purge(every=True) == 0
    assert KeptExport.purge(every=True) == 1


def test_files_that_no_row_knows_are_deleted_once_no_transaction_can_know_them(
    root: Any, storage: Any, monkeypatch: Any
) -> None:
    """A worker was killed before the commit of a row whose file it had stored, or while a storage was looked at."""
    kept = exported(root)
    orphans = [f"mcp_exports/{name}" for name in ("0" * 32 + ".csv", "0" * 32 + "_aB3dE5f.csv", "look-" + "0" * 32)]
    others = ["mcp_exports/of-others.csv", "elsewhere/" + "0" * 32 + ".csv"]
    for name in (*orphans, *others):
        assert storage.save(name, ContentFile(b"x")) == name
    assert KeptExport.purge() == 0
    assert all(map(storage.exists, orphans))
    late = timezone.now() + timedelta(days=3)
    KeptExport.rows().update(expires=late + timedelta(days=1))
    monkeypatch.setattr(kept_exports.timezone, "now", lambda: late)
    assert KeptExport.purge() == 0
    assert not any(map(storage.exists, orphans))
    assert all(map(storage.exists, (*others, kept.row.stored)))


def test_every_file_goes_with_every_export(root: Any, storage: Any) -> None:
    exported(root)
    storage.save("mcp_exports/" + "0" * 32 + ".csv", ContentFile(b"x"))
    assert KeptExport.purge(every=True) == 1
    assert storage.listdir("mcp_exports")[1] == []


@pytest.mark.parametrize("error", [NotImplementedError(), ConnectionError("bucket")])
def test_a_storage_that_does_not_list_its_files_keeps_no_export_from_being_deleted(
    root: Any, monkeypatch: Any, error: Exception
) -> None:
    exported(root)
    monkeypatch.setattr(InMemoryStorage, "listdir", Mock(side_effect=error))
    assert KeptExport.purge(every=True) == 1


def test_a_storage_is_looked_at_and_left_as_it_was(storage: Any, monkeypatch: Any) -> None:
    assert KeptExport.look() == ""
    assert storage.listdir("mcp_exports") == ([], [])
    monkeypatch.setattr(InMemoryStorage, "_save", Mock(side_effect=PermissionError("/var/lib/shop")))
    assert KeptExport.look() == "PermissionError"
