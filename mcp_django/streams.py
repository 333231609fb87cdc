"""Event streams of calls, as a log in the database (2025-11-25, basic/transports, Resumability and Redelivery).

A call of a session writes what it has to tell here, and whichever worker the client is connected to reads it: the
connection may break, and the worker may change, without a message being lost. A question to the client is kept with the
call, which is run again when the answers are there, by the worker that got the last of them; nobody waits meanwhile.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from .conf import settings
from .events import hub
from .models import Stream, StreamEvent
from .protocol.errors import InternalError
from .protocol.messages import ClientResponse, Id, encode, error_response, notification, request
from .questions import Answers, Question
from .sessions import ClientSession

__all__ = [
    "Events",
    "Resumption",
    "answer_question",
    "append",
    "ask",
    "cancel",
    "clear_streams",
    "finish",
    "is_alive",
    "keep_alive",
    "open_stream",
    "owns",
    "read_events",
    "shared_stream",
    "topic",
]

# Seconds between two signs of life of a call's worker, and of silence after which it is taken for dead.
ALIVE_EVERY: Final = 10
DEAD_AFTER: Final = 30
PAGE: Final = 200
CANCELLED: Final = "notifications/cancelled"


@dataclass(frozen=True, slots=True)
class Events:
    """Numbered messages of a stream, in order, and whether the stream ends with them."""

    messages: Sequence[tuple[int, bytes]]
    is_over: bool


@dataclass(frozen=True, slots=True)
class Resumption:
    """A call whose questions have all been answered: this worker has taken it over and must run it again."""

    stream_id: str
    call: bytes
    version: str
    answers: Answers


def topic(stream_id: str) -> str:
    """Return the hub's topic for news of the stream."""
    return f"stream:{stream_id}"


def open_stream(session: ClientSession, request_id: Id | None, call: bytes, version: str) -> str:
    """Return the id of a new stream for a call of the session; ``call`` is its JSON-RPC message."""
    session.remember()
    _clear(Stream.objects.filter(session_id=session.id))
    stream = Stream.objects.create(
        id=secrets.token_hex(16),
        session_id=session.id,
        request_id=request_id,
        call=call.decode(),
        version=version,
        alive=timezone.now(),
    )
    return stream.pk


def shared_stream(session: ClientSession) -> str | None:
    """Return the id of the session's stream of many calls, if it has one open (2024-11-05, HTTP with SSE)."""
    found: str | None = (
        Stream.objects.filter(session_id=session.id, request_id__isnull=True).values_list("pk", flat=True).first()
    )
    return found


def owns(session: ClientSession, stream_id: str) -> bool:
    """Return whether the stream is one of the session's."""
    return Stream.objects.filter(pk=stream_id, session_id=session.id).exists()


# Writing


def append(stream_id: str, messages: Iterable[bytes]) -> None:
    """Add messages to the stream; the oldest go when it keeps more than ``STREAM_EVENTS`` or ``STREAM_BYTES``."""
    with transaction.atomic():
        _write(stream_id, list(messages))
    hub.publish(topic(stream_id), None)


def _write(stream_id: str, messages: Sequence[bytes], **values: Any) -> None:
    """Number and store messages. The update comes first: it locks the row, so that numbers are given once."""
    size = sum(map(len, messages))
    counted = {"events": F("events") + len(messages), "size": F("size") + size}
    if not Stream.objects.filter(pk=stream_id).update(alive=timezone.now(), **counted, **values):
        return
    last, kept = Stream.objects.values_list("events", "size").get(pk=stream_id)
    StreamEvent.objects.bulk_create(
        StreamEvent(stream_id=stream_id, number=last - len(messages) + offset, data=message.decode())
        for offset, message in enumerate(messages, 1)
    )
    if kept > settings.STREAM_BYTES:
        _drop_oldest(stream_id, last)
    elif last > settings.STREAM_EVENTS:
        StreamEvent.objects.filter(stream_id=stream_id, number__lte=last - settings.STREAM_EVENTS).delete()


def _drop_oldest(stream_id: str, last: int) -> None:
    """Delete what is beyond the bounds, but never the newest message."""
    events = StreamEvent.objects.filter(stream_id=stream_id, number__gt=last - settings.STREAM_EVENTS)
    # Down to half of the bound at once, so that this is not done for each message.
    size, keep_from = 0, last
    for number, data in events.order_by("-number").values_list("number", "data"):
        length = len(data.encode())
        if number < last and size + length > settings.STREAM_BYTES // 2:
            break
        size, keep_from = size + length, number
    StreamEvent.objects.filter(stream_id=stream_id, number__lt=keep_from).delete()
    Stream.objects.filter(pk=stream_id).update(size=size)


def keep_alive(stream_id: str) -> None:
    """Say that the worker of the call is there."""
    Stream.objects.filter(pk=stream_id).update(alive=timezone.now())


def finish(stream_id: str, message: bytes | None) -> None:
    """End the stream, with the answer to the call if there is one to give."""
    with transaction.atomic():
        _write(stream_id, [message] if message is not None else [], state=Stream.State.DONE, call="", questions=[])
    hub.publish(topic(stream_id), None)


def ask(stream_id: str, questions: Sequence[Question], answers: Answers, version: str) -> None:
    """Put questions to the client as requests on the stream; the call rests until they are answered."""
    asked, messages = [], []
    for number, question in enumerate(questions):
        identifier = f"{stream_id}.{secrets.token_hex(4)}.{number}"
        wire = question.to_wire(version)
        messages.append(encode(request(identifier, wire["method"], wire.get("params", {}))))
        asked.append({"id": identifier, "key": question.key, "method": question.method})
    with transaction.atomic():
        state = answers.state(questions)
        _write(stream_id, messages, state=Stream.State.ASKING, questions=asked, answers=state)
    hub.publish(topic(stream_id), None)


# Answers of the client


def answer_question(session: ClientSession, response: ClientResponse) -> Resumption | None:
    """Take the client's answer to a question of this session's calls; an answer to anything else is ignored.

    Returns what has to be run again when this was the last answer that a call was waiting for.
    """
    stream_id = str(response.id).partition(".")[0]
    with transaction.atomic():
        rows = Stream.objects.filter(pk=stream_id, session_id=session.id, state=Stream.State.ASKING)
        # Locks the row on every database, so that two answers do not overwrite each other.
        if not rows.update(alive=F("alive")):
            return None
        stream = rows.get()
        asked = next((item for item in stream.questions if item["id"] == response.id and "result" not in item), None)
        if asked is None:
            return None
        asked["result"] = response.result if response.result is not None else {"error": response.error}
        if all("result" in item for item in stream.questions):
            stream.state = Stream.State.RUNNING
        stream.alive = timezone.now() if stream.state == Stream.State.RUNNING else stream.alive
        stream.save(update_fields=["questions", "state", "alive"])
    if stream.state != Stream.State.RUNNING:
        return None
    given = {item["key"]: item["result"] for item in stream.questions}
    return Resumption(stream.pk, stream.call.encode(), stream.version, Answers(given, stream.answers))


def cancel(session: ClientSession, request_id: Id) -> None:
    """Give up a call that waits for its client (basic/utilities/cancellation); its stream ends without an answer."""
    waiting = Stream.objects.filter(session_id=session.id, state=Stream.State.ASKING, request_id=request_id)
    for stream_id in list(waiting.values_list("pk", flat=True)):
        finish(stream_id, None)


# Reading


def read_events(stream_id: str, after: int) -> Events:
    """Return the messages of a stream that come after number ``after``; a stream that is not there is over."""
    row = Stream.objects.filter(pk=stream_id).values_list("state", "events", "alive", "request_id").first()
    if row is None:
        return Events([], True)
    state, last, alive, request_id = row
    if state != Stream.State.DONE and not is_alive(state, alive):
        _bury(stream_id, state, request_id)
        return read_events(stream_id, after)
    if after >= last:
        return Events([], state == Stream.State.DONE)
    found = StreamEvent.objects.filter(stream_id=stream_id, number__gt=after).order_by("number")[:PAGE]
    messages = [(number, data.encode()) for number, data in found.values_list("number", "data")]
    is_complete = bool(messages) and messages[-1][0] >= last
    return Events(messages, state == Stream.State.DONE and (is_complete or not messages))


def is_alive(state: str, alive: Any) -> bool:
    """Return whether the call is still being worked on, or its question still open."""
    patience = settings.QUESTION_TIMEOUT if state == Stream.State.ASKING else DEAD_AFTER
    return bool(timezone.now() - alive < timedelta(seconds=patience))


def _bury(stream_id: str, state: str, request_id: Id | None) -> None:
    if state == Stream.State.ASKING:
        error = InternalError("The question was not answered in time; nothing was changed")
    else:
        error = InternalError("The call was interrupted; see what it has done before you repeat it")
    with transaction.atomic():
        dead = Stream.objects.filter(pk=stream_id, state=state)
        if not dead.update(state=Stream.State.DONE):
            return
        # Who no longer waits for an answer says so (basic/utilities/cancellation).
        unanswered = [item["id"] for item in Stream.objects.get(pk=stream_id).questions if "result" not in item]
        messages = [encode(notification(CANCELLED, {"requestId": identifier})) for identifier in unanswered]
        if request_id is not None:
            messages.append(encode(error_response(request_id, error, modern=False)))
        _write(stream_id, messages, call="", questions=[])


# Cleaning


def _clear(streams: Any) -> int:
    horizon = timezone.now() - timedelta(seconds=settings.STREAM_MAX_AGE)
    patience = timedelta(seconds=max(settings.QUESTION_TIMEOUT, DEAD_AFTER))
    old = streams.filter(state=Stream.State.DONE, alive__lt=horizon) | streams.filter(alive__lt=horizon - patience)
    _, by_model = old.delete()
    found: int = by_model.get(Stream._meta.label, 0)
    return found


def clear_streams() -> int:
    """Delete streams whose time to be resumed is over; return how many."""
    return _clear(Stream.objects.all())
