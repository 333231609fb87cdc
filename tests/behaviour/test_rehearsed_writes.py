"""Writes of the admin's forms that are only tried: the hooks run as they would, and nothing of it is left."""

from contextlib import contextmanager, nullcontext

import pytest
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage, storages
from django.core.mail import send_mail
from django.db import transaction

from mcp_django import MCPSite, ToolError
from mcp_django.context.call_record import CallRecord
from mcp_django.differences.rehearsals import Rehearsal
from mcp_django.emulation.deleting import Deleting
from mcp_django.emulation.saving import RowPage
from mcp_django.emulation.uploads import Upload, open_upload
from mcp_django.emulation.validation_errors import write_refusals
from mcp_django.orm.access import access_of
from mcp_django.orm.database_writes import one_transaction
from tests.factories import make_author, make_book, make_superuser
from tests.fileapp.models import Manual
from tests.subscribers import tell_at_once
from tests.testapp.models import Author, Book, Placement, Section, Shelf, Tag
from tests.tool_calls import request_of

# Django 6.1 has new ways to send mail, and warns of the others.
pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning"),
]


def greet():
    raise AssertionError("this was only tried")


class BusyAdmin(admin.ModelAdmin):
    """Does all that hooks do: other rows, mail, files, messages, callbacks."""

    def save_model(self, request, obj, form, change):
        super().save_model(request, obj, form, change)
        Tag.objects.create(name=f"made for {obj.pk}")
        send_mail(f"About {obj}", "text", None, ["a@example.com", "b@example.com"])
        default_storage.save("notes/author.txt", ContentFile("text"))
        transaction.on_commit(greet)
        messages.success(request, "Saved with a mail.")


office = admin.AdminSite(name="of rehearsed writes")
office.register(Author, BusyAdmin)


def busy_request():
    return request_of(make_superuser(), MCPSite(admin_site=office))


def access(request, model):
    return access_of(request)[request.mcp.site.exposures[model]]


def tried(model, obj, values, **options):
    """Try to save the values; return the rehearsal and what the hooks said."""
    saving = RowPage(model, obj).saving(values, "update_record")
    with write_refusals(model), Rehearsal(model.exposure.model, request=model.request, **options) as rehearsal:
        saving.save()
    return rehearsal, saving.messages


@contextmanager
def stored(model):
    """The transaction of a write that is done."""
    with write_refusals(model), one_transaction(model.exposure.model, model.request):
        yield


def refused(run):
    with pytest.raises(ToolError) as error:
        run()
    return error.value.message


def rows():
    """All that a write could leave in the database."""
    kinds = (Author, Book, Placement, Section, Shelf, Tag, Manual, LogEntry)
    return {kind: list(kind._base_manager.order_by("pk").values()) for kind in kinds}


def test_the_hooks_run_and_nothing_of_it_is_left(mailoutbox, monkeypatch):
    request = busy_request()
    author = make_author("Ursula")
    before = rows()
    rehearsal, said = tried(access(request, Author), author, {"name": "Octavia"}, tables=["testapp_author"])
    assert rows() == before
    assert said == [{"level": "success", "text": "Saved with a mail."}]
    assert [(mail.subject, mail.recipients) for mail in rehearsal.mails] == [("About Octavia", 2)]
    assert rehearsal.callbacks == [f"{__name__}.greet"]
    assert rehearsal.also_written == ["testapp_tag"]
    assert rehearsal.files_untried == ["notes/author.txt"]
    assert mailoutbox == []
    assert not default_storage.exists("notes/author.txt")


def test_the_same_write_is_then_done_for_real(mailoutbox, monkeypatch):
    ran = []
    monkeypatch.setattr(f"{__name__}.greet", lambda: ran.append(1))
    model = access(busy_request(), Author)
    author = make_author("Ursula")
    tried(model, Author.objects.get(), {"name": "Octavia"})
    with stored(model):
        tried(model, Author.objects.get(), {"name": "Joanna"})
        RowPage(model, Author.objects.get()).saving({"name": "Octavia"}, "update_record").save()
    author.refresh_from_db()
    assert (author.name, Tag.objects.count(), LogEntry.objects.count()) == ("Octavia", 1, 1)
    assert (ran, [mail.subject for mail in mailoutbox]) == ([1], ["About Octavia"])
    assert default_storage.exists("notes/author.txt")
    default_storage.delete("notes/author.txt")


@pytest.mark.parametrize("within", [False, True])
def test_subscribers_are_told_of_nothing(monkeypatch, within):
    recorder = tell_at_once(monkeypatch)
    author = make_author("Ursula")
    model = access(request_of(make_superuser()), Author)
    recorder.messages.clear()
    with transaction.atomic() if within else nullcontext():
        tried(model, author, {"name": "Octavia"})
    assert recorder.messages == []
    with stored(model):
        tried(model, Author.objects.get(), {"name": "Octavia"})
        RowPage(model, Author.objects.get()).saving({"name": "Joanna"}, "update_record").save()
        tried(model, Author.objects.get(), {"name": "Octavia"})
        make_author("Octavia")
    # Other tests may have had the history watched too.
    assert recorder.rows()["testapp.author"] == sorted(str(pk) for pk in Author.objects.values_list("pk", flat=True))


def test_the_history_keeps_no_entry_and_the_record_no_key():
    request = request_of(make_superuser())
    record = request.mcp.record
    token = CallRecord.current.set(record)
    tried(access(request, Tag), None, {"name": "a"})
    assert (LogEntry.objects.count(), record.history, record.rows_changed) == (0, [], 0)
    CallRecord.current.reset(token)


def test_an_upload_can_still_be_used(settings, tmp_path):
    options = {"location": str(tmp_path / "uploads")}
    backend = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": options}
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": backend}
    request = request_of(make_superuser())
    upload = Upload.new(request)
    storages["mcp_uploads"].save(upload.name, ContentFile(b"a long text"))
    book = make_book()
    values = {"cover": {"name": "a.txt", "upload": upload.handle}}
    model = access(request, Book)
    rehearsal, _ = tried(model, book, values)
    assert rehearsal.files_untried == ["covers/a.txt"]
    assert not default_storage.exists("covers/a.txt")
    with open_upload(request, upload.handle) as file:
        assert file.read() == b"a long text"
    with stored(model):
        RowPage(model, Book.objects.get()).saving(values, "update_record").save()
    assert Book.objects.get().cover.read() == b"a long text"
    assert open_upload(request, upload.handle) is None
    Book.objects.get().cover.delete()


def test_what_the_form_refuses_is_refused_with_the_same_words():
    make_author("Ursula")
    book, other = make_book(), make_book()
    model = access(request_of(make_superuser()), Book)

    def real():
        with stored(model):
            RowPage(model, book).saving({"isbn": other.isbn}, "update_record").save()

    assert refused(lambda: tried(model, book, {"isbn": other.isbn})) == refused(real)


def test_what_the_commit_refuses_is_refused_with_the_same_words(monkeypatch):
    book = make_book()
    model = access(request_of(make_superuser()), Book)
    monkeypatch.setattr(
        type(model.exposure.model_admin), "save_model", lambda *args: Book.objects.update(author_id=999_999)
    )

    def real():
        with stored(model):
            RowPage(model, book).saving({"title": "New"}, "update_record").save()

    assert refused(lambda: tried(model, book, {"title": "New"})) == refused(real)


def test_a_deletion_is_tried_with_all_that_goes():
    request = request_of(make_superuser())
    shelf, book = Shelf.objects.create(code="A/1"), make_book()
    Placement.objects.create(shelf=shelf, book=book)
    before = rows()
    with Rehearsal(Shelf, ["testapp_shelf"], request) as rehearsal:
        Deleting(access(request, Shelf), [shelf], "delete_record").delete_one()
        assert not Placement.objects.exists()
    assert rows() == before
    assert rehearsal.also_written == ["testapp_placement"]


def test_a_revision_around_it_keeps_no_version():
    revisions = pytest.importorskip("reversion.revisions")
    revisions._push_frame(False, "default")
    try:
        with Rehearsal(Tag):
            revisions.set_comment("tried")
            revisions._push_frame(False, "default")
            revisions._update_frame(db_versions={"default": {"key": "version"}})
            revisions._pop_frame()
            assert revisions._current_frame().db_versions == {"default": {"key": "version"}}
        assert (revisions.get_comment(), revisions._current_frame().db_versions) == ("", {"default": {}})
    finally:
        revisions._pop_frame()
