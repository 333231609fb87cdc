"""`manage.py mcp_erase_changes`: no value of a record is left in what was kept of changes."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import Model
from django.test import override_settings

from mcp_django.context.request import MCPRequest
from mcp_django.differences.footprints import Footprint
from mcp_django.differences.kept_changes import Changes, KeptChange
from mcp_django.models import ApprovalRequest, CallEntry, Change, Export, Task
from tests.exporting import export_of, with_storage
from tests.factories import make_author, make_book, make_superuser
from tests.making_tasks import make_task
from tests.testapp.models import Author, Book, Note, Placement, Section, Shelf, Tag
from tests.tool_calls import request_of
from tests.unit.console.test_call_log_admin import log

pytestmark = pytest.mark.django_db

CONTENTS = ("shown", "footprint", "kept", "result")


@pytest.fixture
def root() -> MCPRequest:
    return request_of(make_superuser())


@pytest.fixture
def erase(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: Any) -> str:
        call_command("mcp_erase_changes", *map(str, arguments))
        return capsys.readouterr().out

    return run


def keep(request: MCPRequest, *labels: str, **values: Any) -> KeptChange:
    given = {"using": "default", "tool": "update_record", "labels": labels, "rows": 1, "summary": "Ada renamed"}
    return Changes(request).keep(**{**given, **values})


@contextmanager
def written(request: MCPRequest, *rows: Any) -> Iterator[list[KeptChange]]:
    """Keep what the block does with these rows and all links of books."""
    footprint = Footprint("default")
    kept: list[KeptChange] = []
    with transaction.atomic():
        for model, keys in rows:
            footprint.add(model, "pk", keys)
        footprint.before()
        yield kept
        data = footprint.after().to_json()
    kept.append(keep(request, *[model._meta.label_lower for model, _ in rows], footprint=data, shown=["s3cret"]))


def is_erased(kept: KeptChange) -> bool:
    row = Change.objects.get(pk=kept.change.pk)
    contents = [bytes(getattr(row, name)) for name in CONTENTS]
    return not any(contents) and not row.summary and "erased" in row.cannot_undo


def test_a_change_of_the_record_is_erased_and_those_of_others_stay(root: MCPRequest, erase: Any) -> None:
    ada, ben = make_author("Ada"), make_author("Ben")
    with written(root, (Author, [ada.pk])) as of_ada:
        Author.objects.filter(pk=ada.pk).update(name="Ida")
    with written(root, (Author, [ben.pk])) as of_ben:
        Author.objects.filter(pk=ben.pk).update(name="Bob")
    with written(root, (Author, [ada.pk, ben.pk])) as of_both:
        Author.objects.update(email="a@example.com")
    assert erase("testapp.author", ada.pk, "--dry-run") == "Would erase the contents of 2 changes.\n"
    assert not is_erased(of_ada[0])
    assert erase("author", ada.pk) == "Erased the contents of 2 changes. They can no longer be taken back.\n"
    assert [is_erased(kept) for kept in (*of_ada, *of_ben, *of_both)] == [True, False, True]
    assert "erased" in Changes(root).own(of_ada[0].change.pk).why_not_undone
    assert Changes(root).own(of_ben[0].change.pk).why_not_undone == ""


def test_a_record_that_was_deleted_is_erased(root: MCPRequest, erase: Any) -> None:
    ada = make_author("Ada")
    pk = ada.pk
    with written(root, (Author, [pk])) as kept:
        ada.delete()
    assert "1 changes" in erase("testapp.author", pk)
    assert is_erased(kept[0])


def test_rows_that_refer_to_the_record_are_erased(root: MCPRequest, erase: Any) -> None:
    ada, ben = make_author("Ada"), make_author("Ben")
    book = make_book(author=ada)
    with written(root, (Book, [book.pk])) as from_ada:
        Book.objects.filter(pk=book.pk).update(author=ben)
    with written(root, (Book, [book.pk])) as title:
        Book.objects.filter(pk=book.pk).update(title="new")
    note = Note.objects.create(
        content_type=ContentType.objects.get_for_model(Author), object_id=str(ada.pk), text="about Ada"
    )
    of_tag = Note.objects.create(
        content_type=ContentType.objects.get_for_model(Tag), object_id=str(ada.pk), text="about a tag"
    )
    with written(root, (Note, [note.pk])) as of_note:
        Note.objects.filter(pk=note.pk).delete()
    with written(root, (Note, [of_tag.pk])) as of_other:
        Note.objects.filter(pk=of_tag.pk).delete()
    erase("testapp.author", ada.pk)
    assert [is_erased(kept) for kept in (*from_ada, *title, *of_note, *of_other)] == [True, False, True, False]


def test_parts_of_a_record_in_parent_tables_are_erased(root: MCPRequest, erase: Any) -> None:
    from tests.testapp.models import AudioBook

    author = make_author("Ada")
    audio = AudioBook.objects.create(title="a", author=author, isbn="1", price=1, narrator="Zoë")
    with written(root, (Book, [audio.pk])) as of_parent:
        Book.objects.filter(pk=audio.pk).update(title="b")
    with written(root, (AudioBook, [audio.pk])) as of_child:
        AudioBook.objects.filter(pk=audio.pk).update(narrator="Ben")
    assert "2 changes" in erase("testapp.audiobook", audio.pk, "--dry-run")
    assert "2 changes" in erase("testapp.book", audio.pk)
    assert is_erased(of_parent[0])
    assert is_erased(of_child[0])


@pytest.mark.parametrize("make", [Section, Shelf])
def test_keys_of_any_kind_are_found(make: type[Model], root: MCPRequest, erase: Any) -> None:
    key = uuid.uuid4() if make is Section else "A/1 50 %"
    column = "name" if make is Section else "code"
    row: Any = make(pk=key) if make is Shelf else Section(pk=key, name="a")
    row.save()
    with written(root, (make, [key])) as kept:
        if make is Section:
            Section.objects.update(**{column: "b"})
        else:
            row.delete()
    erase(make._meta.label, key)
    assert is_erased(kept[0])


def test_links_of_the_record_are_erased(root: MCPRequest, erase: Any) -> None:
    shelf = Shelf.objects.create(code="A/1")
    place = Placement.objects.create(shelf=shelf, book=make_book())
    with written(root, (Placement, [place.pk])) as kept:
        place.delete()
    erase("testapp.shelf", "A/1")
    assert is_erased(kept[0])


def test_what_waits_without_a_footprint_is_erased_and_withdrawn(root: MCPRequest, erase: Any) -> None:
    ada = make_author("Ada")
    given = {"state": Change.State.WAITING, "shown": {"rows": [{"pk": ada.pk, "name": "Ada"}]}}
    waiting = keep(root, "testapp.author", **given, kept={"arguments": {"pk": str(ada.pk)}})
    of_tag = keep(root, "testapp.tag", **given)
    by_uri = keep(root, "testapp.author", result={"uri": f"django://testapp/author/{ada.pk}"})
    other = keep(root, "testapp.author", shown={"rows": [{"pk": ada.pk + 1}]})
    erase("testapp.author", ada.pk)
    assert [is_erased(kept) for kept in (waiting, of_tag, by_uri, other)] == [True, False, True, False]
    assert not waiting.claim(Change.State.WAITING, Change.State.RUNNING)
    assert Change.objects.get(pk=waiting.change.pk).state == "withdrawn"


def test_a_text_is_found_in_any_content_and_in_the_sentence(root: MCPRequest, erase: Any) -> None:
    kept = [
        keep(root, "testapp.tag", summary="order of ADA Ibarra changed"),
        keep(root, "testapp.tag", summary="x", shown={"customer": ["Ada Ibarra", "Ben"]}),
        keep(root, "testapp.tag", summary="x", result={"Ada Ibarra": 1}),
        keep(root, "testapp.tag", summary="x", outcome="ada ibarra is taken"),
        keep(root, "testapp.tag", summary="x", shown={"customer": "Ada"}),
    ]
    erase("testapp.author", 10**6, "--text", "Ada Ibarra", "--text", "nothing")
    assert [is_erased(one) for one in kept] == [True, True, True, True, False]


def test_what_no_key_opens_is_left_and_said(root: MCPRequest, erase: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kept = keep(root, "testapp.author", shown={"pk": 1})
    with override_settings(SECRET_KEY="another"):
        call_command("mcp_erase_changes", "testapp.author", "1")
    told = capsys.readouterr()
    assert "0 changes" in told.out
    assert told.err.startswith("1 changes could not be looked into")
    assert not is_erased(kept)


def test_many_changes_are_read_in_batches(root: MCPRequest, erase: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.differences.erased_values.READ_AT_ONCE", 2)
    for _ in range(5):
        keep(root, "testapp.author", shown={"pk": 7})
    assert "5 changes" in erase("testapp.author", 7)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["testapp.none", "1"], "no model 'testapp.none'"),
        (["testapp.author", "x"], "'x' cannot be a primary key of testapp.author"),
        (["testapp.section", "1"], "cannot be a primary key"),
        (["testapp.author", "1", "--text", " "], "would be found everywhere"),
    ],
)
def test_a_slip_erases_nothing(arguments: list[str], told: str, root: MCPRequest) -> None:
    kept = keep(root, "testapp.author", shown={"pk": 1})
    with pytest.raises(CommandError, match=told):
        call_command("mcp_erase_changes", *arguments)
    assert not is_erased(kept)


def test_requests_for_approval_lose_their_words_and_keys(root: MCPRequest, erase: Any) -> None:
    ada = make_author("Ada")
    given = {"state": Change.State.WAITING, "summary": "1 author deleted"}
    kept = [keep(root, "testapp.author", **given) for _ in range(4)]
    rows = {"testapp.author": [str(ada.pk)], "testapp.shelf": [["A", "1"]]}
    values: list[dict[str, Any]] = [{"rows": rows}, {"reason": "Ada L. asked"}, {"word": "No, ADA L. stays"}, {}]
    for each, more in zip(kept, values, strict=True):
        given = {"rows": {"testapp.author": [str(ada.pk + 1)]}, "rule_name": "Authors", **more}
        ApprovalRequest.objects.create(change=each.change, **given)
    assert "4 changes" not in erase("author", ada.pk, "--text", "Ada L.")
    states = {row.pk: row.change.state for row in ApprovalRequest.objects.select_related("change").order_by("pk")}
    assert list(states.values()) == ["withdrawn", "withdrawn", "withdrawn", "waiting"]
    left = ApprovalRequest.objects.exclude(pk=kept[3].change.pk)
    assert {(row.reason, row.word, str(row.rows)) for row in left} == {("", "", "{}")}


def test_tasks_about_the_record_are_deleted_too(erase: Any) -> None:
    ada = make_author("Ada")
    make_task(model="testapp.author", message=f"Author {ada.pk}: Ada")
    other = make_task(model="testapp.author", message="Author")
    assert "Would delete 1 tasks with their results." in erase("author", ada.pk, "--text", "Ada", "--dry-run")
    assert Task.objects.count() == 2
    assert "Deleted 1 tasks with their results." in erase("author", ada.pk, "--text", "Ada")
    assert Task.objects.get() == other
    assert "tasks" not in erase("author", ada.pk, "--text", "Ada")


def test_every_export_is_deleted_because_it_may_hold_the_record(
    erase: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = with_storage(settings)
    ada = make_author("Ada")
    export_of(make_superuser())
    (row,) = Export.objects.all()
    assert "Would delete 1 exports" in erase("testapp.author", ada.pk, "--dry-run")
    assert storage.exists(row.stored)
    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "delete", Mock(side_effect=OSError))
        call_command("mcp_erase_changes", "testapp.author", str(ada.pk))
    assert "1 exports could not be deleted" in capsys.readouterr().err
    assert "Deleted 1 exports" in erase("testapp.author", ada.pk)
    assert not storage.exists(row.stored)
    assert not Export.objects.exists()


def test_the_calls_about_the_record_lose_its_key(erase: Any) -> None:
    ada, ben = make_author("Ada"), make_author("Ben")
    for model, pk in (("author", ada.pk), ("author", ben.pk), ("book", ada.pk)):
        log(tool="get_record", keys={(f"testapp.{model}", str(pk))}, model=f"testapp.{model}")
    told = erase("testapp.author", ada.pk, "--dry-run")
    assert "Would take its key from 1 calls in the log.\n" in told
    assert CallEntry.objects.exclude(row_key="").count() == 3
    assert "Took its key from 1 calls in the log.\n" in erase("testapp.author", ada.pk)
    rows = CallEntry.objects.order_by("pk").values_list("model", "row_key")
    assert list(rows) == [("testapp.author", ""), ("testapp.author", str(ben.pk)), ("testapp.book", str(ada.pk))]
    assert "in the log" not in erase("testapp.author", ada.pk)
