"""The checks of the storages for uploads and exports."""

import pytest

from mcp_django.checks.settings import CHECKS, run_checks
from mcp_django.checks.storages import check_private_storages

DISK = "django.core.files.storage.FileSystemStorage"
UPLOADS, EXPORTS = "mcp_django.E029", "mcp_django.E177"


@pytest.fixture
def put(settings, tmp_path):
    """Put storages at these places of a folder."""

    def at(**places):
        stores = {name: {"BACKEND": DISK, "OPTIONS": {"location": tmp_path / where}} for name, where in places.items()}
        settings.STORAGES = {**settings.STORAGES, **stores}
        return [message.id for message in check_private_storages()]

    return at


@pytest.mark.parametrize(("alias", "number"), [("mcp_uploads", UPLOADS), ("mcp_exports", EXPORTS)])
@pytest.mark.parametrize(("where", "expected"), [("media/up", 1), ("media", 1), ("private", 0), ("media-up", 0)])
def test_files_that_may_be_served_are_an_error(put, alias, number, where, expected):
    assert put() == []
    assert put(default="media", **{alias: where}) == [number] * expected


@pytest.mark.parametrize("name", ["MEDIA_ROOT", "STATIC_ROOT", "STATICFILES_DIRS"])
@pytest.mark.parametrize(("where", "expected"), [("served/exports", [EXPORTS]), ("private", [])])
def test_every_folder_that_is_served_counts(put, settings, tmp_path, name, where, expected):
    served = tmp_path / "served"
    setattr(settings, name, [("assets", str(served))] if name == "STATICFILES_DIRS" else str(served))
    assert put(default="elsewhere", mcp_exports=where) == expected


def test_a_link_into_a_served_folder_is_seen(put, tmp_path):
    (tmp_path / "media" / "exports").mkdir(parents=True)
    (tmp_path / "private").symlink_to(tmp_path / "media" / "exports")
    assert put(default="media", mcp_exports="private") == [EXPORTS]


def test_a_folder_of_exports_that_is_a_link_into_a_served_one_is_seen(put, tmp_path):
    (tmp_path / "media").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "mcp_exports").symlink_to(tmp_path / "media")
    assert put(default="media", mcp_exports="private") == [EXPORTS]


def test_a_storage_that_each_worker_has_for_itself_is_told_before_it_is_deployed(settings, tmp_path):
    memory = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": memory, "mcp_uploads": memory}
    found = [message for message in run_checks(deployment=True) if message.id == "mcp_django.W178"]
    assert sorted(message.msg.partition(" is ")[0] for message in found) == [
        'STORAGES["mcp_exports"]',
        'STORAGES["mcp_uploads"]',
    ]
    assert "mcp_django.W178" not in {message.id for message in run_checks()}
    disk = {"BACKEND": DISK, "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": disk, "mcp_uploads": disk}
    assert "mcp_django.W178" not in {message.id for message in run_checks(deployment=True)}


def test_a_project_without_media_serves_nothing(put, settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings.MEDIA_ROOT = ""
    settings.STORAGES = {**settings.STORAGES, "default": {"BACKEND": DISK}}
    assert put(mcp_exports="exports") == []


def test_a_storage_that_is_no_folder_is_not_looked_into(settings):
    memory = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    settings.STORAGES = {**settings.STORAGES, "default": memory, "mcp_exports": memory}
    assert check_private_storages() == []


def test_it_is_one_of_the_checks_of_the_app(put):
    assert check_private_storages in CHECKS
    put(default="media", mcp_exports="media/exports")
    assert EXPORTS in {message.id for message in run_checks()}
