"""What is caught of a write that is tried: mail, files, and what other threads do for it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.core import mail
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, InMemoryStorage
from django.core.mail import EmailMessage, send_mail
from django.core.mail.backends.base import BaseEmailBackend

from mcp_django.context.rehearsing import catching, is_rehearsing

# Django 6.1 has new ways to send mail, and warns of the others.
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning")


def elsewhere(execute, sql, params, many, context):
    raise AssertionError("no statement is expected here")


def message(subject="Hello"):
    return EmailMessage(subject, "text", to=["a@example.com"])


def subjects(caught):
    return [one.subject for one in caught.mails]


def test_a_backend_that_is_imported_later_is_caught():
    sent = []
    with catching(elsewhere) as caught:

        class Late(BaseEmailBackend):
            def send_messages(self, email_messages):
                sent.extend(email_messages)

        assert Late().send_messages([message()]) == 1
    assert (sent, subjects(caught)) == ([], ["Hello"])
    Late().send_messages([message()])
    assert len(sent) == 1


def test_a_backend_of_no_class_of_django_is_caught_where_a_message_is_sent():
    class Own:
        def send_messages(self, email_messages):
            raise AssertionError("this was only tried")

    own = EmailMessage("Hello", "text", to=["a@example.com"], connection=Own())
    with catching(elsewhere) as caught:
        assert own.send() == 1
    assert subjects(caught) == ["Hello"]


@pytest.mark.skipif(not hasattr(mail, "mailers"), reason="Django 6.1 has mailers")
def test_each_mailer_is_caught(settings, mailoutbox):
    settings.MAILERS = {name: {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"} for name in ("default", "b")}
    with catching(elsewhere) as caught:
        message("one").send()
        message("two").send(using="b")
        mail.mailers["b"].send_messages([message("three"), message("four")])
    assert subjects(caught) == ["one", "two", "three", "four"]
    assert mailoutbox == []


def test_mail_and_files_of_other_threads_go_their_way(mailoutbox):
    storage = InMemoryStorage()
    begin, ended = threading.Event(), threading.Event()

    def work():
        begin.wait(10)
        send_mail("Theirs", "text", None, ["a@example.com"])
        storage.save("theirs.txt", ContentFile("x"))
        ended.set()

    threading.Thread(target=work).start()
    with catching(elsewhere) as caught:
        begin.set()
        assert ended.wait(10)
    assert (caught.mails, caught.files) == ([], [])
    assert [sent.subject for sent in mailoutbox] == ["Theirs"]
    assert storage.exists("theirs.txt")


def test_a_thread_that_the_tried_code_starts_is_caught_to_its_end(mailoutbox):
    begin = threading.Event()

    class Mailer(threading.Thread):
        def run(self):
            begin.wait(10)
            send_mail("Hello", "text", None, ["a@example.com"])

    with catching(elsewhere) as caught:
        mailer = Mailer()
        mailer.start()
    begin.set()
    mailer.join(10)
    assert (mailoutbox, subjects(caught)) == ([], ["Hello"])


def test_a_thread_that_serves_others_later_goes_its_way(mailoutbox, monkeypatch):
    begin = threading.Event()

    def serve():
        begin.wait(10)
        message().send()

    with catching(elsewhere) as caught:
        server = threading.Thread(target=serve)
        server.start()
    monkeypatch.setattr("mcp_django.context.rehearsing.AFTERWARDS", -1)
    begin.set()
    server.join(10)
    assert (len(mailoutbox), caught.mails) == (1, [])


def test_what_this_app_does_meanwhile_goes_its_way(monkeypatch):
    def job():
        return is_rehearsing()

    monkeypatch.setattr(job, "__module__", "mcp_django.runtime")
    with ThreadPoolExecutor(1) as pool, catching(elsewhere):
        assert not pool.submit(job).result(10)
        assert not pool.submit(partial(job)).result(10)


def test_a_pool_of_threads_is_caught_for_what_the_tried_code_gives_it(mailoutbox):
    with ThreadPoolExecutor(1) as pool:
        with catching(elsewhere) as caught:
            assert pool.submit(message().send).result(10) == 1
            assert pool.submit(lambda: is_rehearsing()).result(10)
        assert (mailoutbox, subjects(caught)) == ([], ["Hello"])
        # The thread itself was started by the tried code, and serves others now.
        pool.submit(message("Later").send).result(10)
    assert [sent.subject for sent in mailoutbox] == ["Later"]


@pytest.mark.parametrize("kind", [InMemoryStorage, FileSystemStorage])
def test_a_file_is_not_stored_and_can_be_read_again(kind, tmp_path):
    storage = kind(location=tmp_path)
    with catching(elsewhere) as caught:
        name = storage.save("folder/a.txt", ContentFile("text"))
        assert storage.save("folder/a.txt", ContentFile(b"other")) != name
        assert storage.exists(name)
        assert storage.size(name) == 4
        with storage.open(name) as file:
            assert file.read() == b"text"
        with storage.open(name, "r") as file:
            assert file.read() == "text"
        with pytest.raises(SuspiciousFileOperation):
            storage.save("../a.txt", ContentFile("text"))
    assert name == "folder/a.txt"
    assert caught.files[0] == name
    assert len(caught.files) == 2
    assert not storage.exists(name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_deleted(tmp_path):
    storage = FileSystemStorage(location=tmp_path)
    storage.save("a.txt", ContentFile("text"))
    with catching(elsewhere) as caught:
        storage.delete("a.txt")
        assert not storage.exists("a.txt")
    assert caught.files == ["a.txt"]
    assert storage.exists("a.txt")
    storage.delete("a.txt")
    assert not storage.exists("a.txt")


@pytest.mark.parametrize(("mode", "text"), [("wb", b"new"), ("w", "new")])
def test_what_is_written_to_an_open_file_is_lost(tmp_path, mode, text):
    storage = FileSystemStorage(location=tmp_path)
    storage.save("a.txt", ContentFile("text"))
    with catching(elsewhere) as caught:
        with storage.open("a.txt", mode) as file:
            file.write(text)
        with storage.open("a.txt") as file:
            assert file.read() == b""
    assert caught.files == ["a.txt"]
    with storage.open("a.txt") as file:
        assert file.read() == b"text"


def test_a_storage_that_is_made_later_is_caught_below_its_own_save(tmp_path):
    with catching(elsewhere) as caught:

        class Flat(FileSystemStorage):
            def save(self, name, content, max_length=None):
                return super().save(f"flat-{name}", content, max_length)

            def _save(self, name, content):
                raise AssertionError("this was only tried")

        assert Flat(location=tmp_path).save("a.txt", ContentFile("text")) == "flat-a.txt"
    assert caught.files == ["flat-a.txt"]


def test_a_storage_with_a_static_method_works_as_before():
    with catching(elsewhere):

        class Fixed(InMemoryStorage):
            @staticmethod
            def exists(name):
                return name == "a.txt"

        assert Fixed().exists("a.txt")
    assert (Fixed().exists("a.txt"), Fixed().exists("b.txt")) == (True, False)


def test_a_block_within_another_catches_for_itself():
    with catching(elsewhere) as outer:
        message("one").send()
        with catching(elsewhere) as inner:
            message("two").send()
        message("three").send()
    assert not is_rehearsing()
    assert (subjects(outer), subjects(inner)) == (["one", "three"], ["two"])
