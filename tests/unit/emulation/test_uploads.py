"""Files on their way: whose they are, how long they stay, and what is left of them."""

import os
import time

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db import transaction

from mcp_django import MCPSite
from mcp_django.emulation.uploads import FOLDER, KEPT, Upload, open_upload, uploads_taken
from tests.factories import make_user
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture
def storage(settings, tmp_path):
    options = {"location": str(tmp_path)}
    backend = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": options}
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": backend}
    return storages["mcp_uploads"]


@pytest.fixture
def request_(storage):
    return request_of(make_user("u"), MCPSite("a"), client_id="c")


def send(request, data=b"x"):
    upload = Upload.new(request)
    upload.storage().save(upload.name, ContentFile(data))
    return upload.handle


def test_without_a_storage_there_is_nothing(settings):
    request = request_of(make_user("u"), MCPSite("a"))
    assert Upload.storage() is None
    assert open_upload(request, Upload.new(request).handle) is None
    assert Upload.clear() == 0
    uploads_taken(request, "default")


def test_a_handle_is_good_for_its_user_client_and_site_alone(request_):
    handle = send(request_, b"mine")
    with open_upload(request_, handle) as file:
        assert file.read() == b"mine"
    other = make_user("other")
    for user, site, client in ((other, "a", "c"), (request_.user, "b", "c"), (request_.user, "a", "d")):
        assert open_upload(request_of(user, MCPSite(site), client_id=client), handle) is None
    assert open_upload(request_, Upload.new(request_).handle) is None


@pytest.mark.parametrize(
    "handle", [None, 5, "", "x", "-", "../x", "0-../../x", "ffffffffffff" * 9, ["a"], {}, "\0", "1-x\ud800"], ids=repr
)
def test_row_159_what_is_no_handle_opens_nothing(request_, handle):
    assert open_upload(request_, handle) is None


def test_a_handle_never_names_a_path(request_):
    name = Upload.of(request_, f"{int(time.time()):x}-../../etc/passwd").name
    assert name.startswith(f"{FOLDER}/")
    assert name.removeprefix(f"{FOLDER}/").isalnum()


def test_a_handle_ends(request_, monkeypatch):
    handle = send(request_)
    now = time.time()
    monkeypatch.setattr("mcp_django.emulation.uploads.time.time", lambda: now + KEPT + 2)
    assert Upload.of(request_, handle) is None


def test_a_file_is_deleted_when_the_write_that_took_it_is_committed(request_, django_capture_on_commit_callbacks):
    handle = send(request_)
    open_upload(request_, handle).close()
    with django_capture_on_commit_callbacks(execute=True):
        uploads_taken(request_, "default")
        assert Upload.storage().exists(Upload.of(request_, handle).name)
    assert not Upload.storage().exists(Upload.of(request_, handle).name)


def test_a_file_stays_when_the_write_is_undone(request_, django_capture_on_commit_callbacks):
    handle = send(request_)
    open_upload(request_, handle).close()
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        uploads_taken(request_, "default")
        transaction.set_rollback(True)
    assert Upload.storage().exists(Upload.of(request_, handle).name)


@pytest.mark.parametrize("use_tz", [True, False])
def test_what_was_never_taken_is_deleted_after_an_hour(request_, storage, settings, use_tz):
    settings.USE_TZ = use_tz
    old, new = send(request_), send(request_)
    then = time.time() - KEPT - 60
    os.utime(storage.path(Upload.of(request_, old).name), (then, then))
    assert Upload.clear() == 1
    assert not storage.exists(Upload.of(request_, old).name)
    assert storage.exists(Upload.of(request_, new).name)


def test_a_storage_without_files_or_without_lists_is_left_alone(settings, storage, caplog):
    assert Upload.clear() == 0
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": {"BACKEND": f"{__name__}.Unlisted"}}
    assert Upload.clear() == 0
    assert "cannot list" in caplog.text


class Unlisted(Storage):
    pass
