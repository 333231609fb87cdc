"""Event streams of calls stored in the database, to resume them (2025-11-25, Resumability and Redelivery).

A session's call writes its messages here, and the worker that the client is connected to reads them. So no message is
lost when the connection breaks or the client reaches another worker. The life of a stream:

=========  ==================================================  =====================================================
state      who works on it                                     next states
=========  ==================================================  =====================================================
RUNNING    a worker, which says every two seconds that it is   ASKING (``ask``), DONE (``finish``), or DONE with an
           alive                                               error if the worker is silent
ASKING     nobody: the client has to answer questions          RUNNING, in the worker that gets the last answer
                                                               (:meth:`SessionStreams.answer`), DONE (``cancel``),
                                                               or DONE with an error after ``QUESTION_TIMEOUT``
DONE       nobody                                              deleted after ``STREAM_MAX_AGE``, or to make room
=========  ==================================================  =====================================================

The reader of a stream ends it when it has timed out (:meth:`StoredStream.read` with ``end_if_abandoned``): nothing else
checks streams.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connections, router, transaction
from django.db.models import Expression, F, Q, QuerySet, Sum
from django.db.models.functions import Length
from django.db.models.lookups import Exact, LessThan
from django.utils import timezone

from ..conf import settings
from ..context.questions import Answers, Question
from ..models import Session, Stream, StreamEvent
from ..orm.own_tables import OwnTable
from ..protocol.errors import InternalError
from ..protocol.messages import ClientResponse, Id, Message, encode
from ..subscriptions.bus import bus
from .sessions import ClientSession

PAGE: Final = 200
# Maximum number of messages that a call may have sent but not stored when its worker died.
MOST_UNSTORED: Final = 1_000_000
CANCELLED: Final = "notifications/cancelled"
SESSION, STATE, ALIVE = (Stream._meta.get_field(name) for name in ("session", "state", "alive"))
USER: Final = Session._meta.get_field("user")
# The size in bytes of a stored stream.
SIZE: Final = F("size") + Length("call")


@dataclass(frozen=True, slots=True)
class Events:
    """Numbered messages of a stored stream, in order, and whether the stream ends with them.

    ``is_silent`` says that its worker has given no sign of life for so long that it may be dead.
    """

    messages: Sequence[tuple[int, bytes]]
    is_over: bool
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class Resumption:
    """A call on a stored stream whose questions have all been answered: this worker must run it again.

    ``last`` is the number of the newest message on its stream.
    """

    stream_id: str
    call: bytes
    version: str
    answers: Answers
    last: int


class StoredStream:
    """The stream of a session's call in the database, by its id: its messages and questions."""

    # Seconds between two signs of life of a call's worker, and seconds of silence after which a reader takes it for
    # dead. A reader checks twice, because the database may have been unavailable to reader and worker.
    ALIVE_EVERY: Final = 2.0
    DEAD_AFTER: Final = 6

    __slots__ = ("id",)

    def __init__(self, stream_id: str) -> None:
        self.id = stream_id

    @property
    def topic(self) -> str:
        """The topic of the bus on which each change of the stream is told."""
        return f"stream:{self.id}"

    def is_owned_by(self, session: ClientSession) -> bool:
        """Return whether the stream is the session's."""
        # The database may ignore case.
        return self.id in Stream.objects.filter(pk=self.id, session_id=session.id).values_list("pk", flat=True)

    def append(self, messages: Sequence[bytes], first: int | None = None, **values: Any) -> bool:
        """Append messages, and set ``values`` of the stream's row; delete the oldest messages beyond its limits.

        ``first`` is the number of the first message if the stream's only writer numbers them; otherwise this method
        does. Return False, and do nothing, if the stream is over.
        """
        size = sum(map(len, messages))
        last: Any = F("events") + len(messages) if first is None else first + len(messages) - 1
        counted = {"events": last, "size": F("size") + size}
        rows = Stream.objects.filter(pk=self.id).exclude(state=Stream.State.DONE)
        with transaction.atomic(using=router.db_for_write(Stream)):
            # Update first: it locks the row, so that each number is used once.
            alive = timezone.now() if "state" in values else _sign_of_life()
            is_open = bool(rows.update(alive=alive, **counted, **values))
            if is_open:
                last, kept = Stream.objects.values_list("events", "size").get(pk=self.id)
                StreamEvent.objects.bulk_create(
                    StreamEvent(stream_id=self.id, number=last - len(messages) + offset, data=message.decode())
                    for offset, message in enumerate(messages, 1)
                )
                if kept > settings.STREAM_BYTES:
                    self._drop_oldest(last)
                elif last > settings.STREAM_EVENTS:
                    too_many = StreamEvent.objects.filter(stream_id=self.id, number__lte=last - settings.STREAM_EVENTS)
                    too_many.delete()
        bus.publish(self.topic, None)
        return is_open

    def finish(self, *messages: bytes, first: int | None = None) -> bool:
        """End the stream, with its last messages, if any; see :meth:`append`."""
        return self.append(messages, first, state=Stream.State.DONE, call="", questions=[])

    def ask(self, questions: Sequence[Question], answers: Answers, version: str) -> list[bytes]:
        """Store questions to the client as requests on the stream; the call waits until they are answered.

        Return the requests; the list is empty if the stream is over.
        """
        waiting = []
        messages = []
        for number, question in enumerate(questions):
            identifier = f"{self.id}.{secrets.token_hex(4)}.{number}"
            wire = question.to_wire(version)
            messages.append(Message(wire["method"], wire.get("params", {}), identifier).encode())
            waiting.append({"id": identifier, "key": question.key, "method": question.method})
        state = answers.state(questions)
        is_open = self.append(messages, state=Stream.State.ASKING, questions=waiting, answers=state)
        return messages if is_open else []

    def read(self, after: int, *, end_if_abandoned: bool = False) -> Events:
        """Read the messages after number ``after``; a stream that does not exist is over.

        With ``end_if_abandoned``, a stream whose worker is silent ends with an error.
        """
        row = Stream.objects.filter(pk=self.id).values_list("state", "events", "alive", "request_id").first()
        if row is None:
            return Events([], True)
        state, last, alive, request_id = row
        is_silent = state != Stream.State.DONE and not _is_alive(state, alive)
        if is_silent and end_if_abandoned:
            self._end_abandoned(state, request_id, after)
            return self.read(after)
        if after >= last:
            return Events([], state == Stream.State.DONE, is_silent)
        rows = StreamEvent.objects.filter(stream_id=self.id, number__gt=after).order_by("number")[:PAGE]
        messages = [(number, data.encode()) for number, data in rows.values_list("number", "data")]
        is_complete = bool(messages) and messages[-1][0] >= last
        return Events(messages, state == Stream.State.DONE and (is_complete or not messages), is_silent)

    def discard(self) -> None:
        """Delete the stream, which has no messages."""
        OwnTable(Stream, router.db_for_write(Stream)).delete(self.id)

    @staticmethod
    def keep_alive(stream_ids: Collection[str]) -> None:
        """Write a sign of life of this worker to the streams of its calls."""
        Stream.objects.filter(pk__in=stream_ids).exclude(state=Stream.State.DONE).update(alive=_sign_of_life())

    @staticmethod
    def has_one_writer() -> bool:
        """Return whether the database lets only one transaction write at a time (SQLite)."""
        return connections[router.db_for_write(Stream)].vendor == "sqlite"

    @staticmethod
    def clear_expired() -> int:
        """Delete streams that can no longer be resumed; return how many."""
        return _clear(Stream.objects.all())

    def _drop_oldest(self, last: int) -> None:
        """Delete the oldest messages of the stream beyond its limits, but never the newest."""
        events = StreamEvent.objects.filter(stream_id=self.id, number__gt=last - settings.STREAM_EVENTS)
        # Delete down to half of the limit at once, so that this does not happen for each message.
        size = 0
        keep_from = last
        for number, data in events.order_by("-number").values_list("number", "data"):
            length = len(data.encode())
            if number < last and size + length > settings.STREAM_BYTES // 2:
                break
            size = size + length
            keep_from = number
        StreamEvent.objects.filter(stream_id=self.id, number__lt=keep_from).delete()
        Stream.objects.filter(pk=self.id).update(size=size)

    def _end_abandoned(self, state: str, request_id: Id | None, after: int) -> None:
        """End the stream, whose worker is dead. ``after`` is the number of the last message that the client has."""
        with transaction.atomic(using=router.db_for_write(Stream)):
            dead = Stream.objects.filter(pk=self.id, state=state)
            # Lock the row, on every database, so that the end is written only once.
            if not dead.update(alive=F("alive")):
                return
            stream = dead.get()
            if _is_alive(state, stream.alive):
                return
            # The server must say that it no longer waits for answers (basic/utilities/cancellation).
            unanswered = [item["id"] for item in stream.questions if "result" not in item]
            messages = [Message(CANCELLED, {"requestId": identifier}).encode() for identifier in unanswered]
            if request_id is not None and state == Stream.State.ASKING:
                messages.append(_error(request_id, "The question was not answered in time; nothing was changed"))
            elif request_id is not None:
                messages.append(SessionStreams.interrupted(request_id))
            first = max(stream.events, min(after, MOST_UNSTORED + stream.events)) + 1
            self.finish(*messages, first=first)


class SessionStreams:
    """The stored streams of one session: of its calls, or the one that they share."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    @staticmethod
    def new_id() -> str:
        """Return an id for a stream that is stored later."""
        return secrets.token_hex(16)

    def open(self, request_id: Id | None, call: bytes, version: str, stream_id: str | None = None) -> StoredStream:
        """Store a new stream for a call and return it; ``call`` is the call's JSON-RPC message.

        Without a ``request_id`` all calls of the session share the stream (2024-11-05).
        """
        session = self.session
        using = router.db_for_write(Stream)
        table = OwnTable(Stream, using)
        values = {"session_id": session.id, "request_id": request_id, "call": call.decode(), "version": version}
        with transaction.atomic(using=using):
            stream = Stream(pk=stream_id or self.new_id(), alive=_sign_of_life(), **values)
            done, silent = _expiry_times()
            session.remember()
            columns = [(SESSION, session.id), (STATE, Stream.State.DONE), (ALIVE, done), (ALIVE, silent)]
            if table.read(_old_streams, *columns):
                _clear(Stream.objects.filter(session_id=session.id))
            table.insert(stream)
            # A user without streams has no row with a sum.
            [(size,)] = table.read(_kept_bytes, (USER, session.user_pk)) or [(0,)]
            if size > settings.USER_STREAM_BYTES:
                self._make_room(stream.pk, size - settings.USER_STREAM_BYTES)
        return StoredStream(stream.pk)

    def shared(self) -> StoredStream | None:
        """Return the stream that all calls of the session share (2024-11-05), None if each has its own."""
        shared = Stream.objects.filter(session_id=self.session.id, request_id__isnull=True)
        stream_id = shared.values_list("pk", flat=True).first()
        if stream_id is None:
            return None
        return StoredStream(stream_id)

    def answer(self, response: ClientResponse) -> Resumption | None:
        """Store the client's answer to a question on a stream; other answers are ignored.

        Return the call to run again if this was the last answer that it was waiting for.
        """
        stream_id = str(response.id).partition(".")[0]
        with transaction.atomic():
            rows = Stream.objects.filter(pk=stream_id, session_id=self.session.id, state=Stream.State.ASKING)
            # Lock the row, on every database, so that two answers do not overwrite each other.
            if not rows.update(alive=F("alive")):
                return None
            stream = rows.get()
            unanswered = (item for item in stream.questions if "result" not in item)
            question = next((item for item in unanswered if item["id"] == response.id), None)
            if question is None:
                return None
            question["result"] = response.result if response.result is not None else {"error": response.error}
            if all("result" in item for item in stream.questions):
                stream.state = Stream.State.RUNNING
                stream.alive = _sign_of_life()
            stream.save(update_fields=["questions", "state", "alive"])
        if stream.state != Stream.State.RUNNING:
            return None
        results = {item["key"]: item["result"] for item in stream.questions}
        return Resumption(
            stream.pk, stream.call.encode(), stream.version, Answers(results, stream.answers), stream.events
        )

    def cancel(self, request_id: Id) -> None:
        """Cancel a call for its client (basic/utilities/cancellation).

        The stored stream of a call that waits for an answer ends here; the worker that runs the call is told.
        """
        waiting = Stream.objects.filter(session_id=self.session.id, state=Stream.State.ASKING, request_id=request_id)
        for stream_id, asked in list(waiting.values_list("pk", "request_id")):
            # The database may ignore spaces at the end.
            if asked == request_id:
                StoredStream(stream_id).finish()
        bus.publish(self.session.topic, {"cancelled": request_id})

    @staticmethod
    def interrupted(request_id: Id) -> bytes:
        """Return the error response to a call whose worker died."""
        return _error(request_id, "The call was interrupted; check what it did before you repeat it")

    def _make_room(self, newest: str, surplus: int) -> None:
        """Delete the user's oldest streams on which no worker works, to free ``surplus`` bytes."""
        streams = Stream.objects.filter(session__user_id=self.session.user_pk, request_id__isnull=False)
        idle = streams.exclude(state=Stream.State.RUNNING).exclude(pk=newest)
        oldest = []
        for stream_id, length in idle.order_by("alive").values_list("pk", SIZE):
            if surplus <= 0:
                break
            oldest.append(stream_id)
            surplus -= length
        Stream.objects.filter(pk__in=oldest).delete()
        for stream_id in oldest:
            bus.publish(StoredStream(stream_id).topic, None)


def _sign_of_life() -> Any:
    """Return the time to store as a sign of life of the worker that runs the call."""
    # On SQLite, a call that writes blocks signs of life, for up to CALL_TIMEOUT.
    ahead = settings.CALL_TIMEOUT if StoredStream.has_one_writer() else 0
    return timezone.now() + timedelta(seconds=ahead)


def _kept_bytes(user: Expression) -> QuerySet[Any]:
    """Return the query for the size in bytes of a user's streams, without those of HTTP with SSE."""
    own = Stream.objects.filter(Q(Exact(F("session__user_id"), user)), request_id__isnull=False)
    return own.values("session__user_id").annotate(total=Sum(SIZE)).values_list("total")


def _is_alive(state: str, alive: Any) -> bool:
    """Return whether a worker still runs the call, or the client may still answer its questions."""
    patience = settings.QUESTION_TIMEOUT if state == Stream.State.ASKING else StoredStream.DEAD_AFTER
    return bool(timezone.now() - alive < timedelta(seconds=patience))


def _error(request_id: Id, text: str) -> bytes:
    return encode(InternalError(text).response(request_id, modern=False))


# Deletion of old streams


def _is_old(state: Any, done: Any, silent: Any) -> Q:
    """Return the condition for streams that have been over, or silent, since these times."""
    is_done = Q(Exact(F("state"), state)) & Q(LessThan(F("alive"), done))
    return is_done | Q(LessThan(F("alive"), silent))


def _expiry_times() -> tuple[datetime, datetime]:
    """Return the times before which finished streams, and silent ones, are old enough to be deleted."""
    done = timezone.now() - timedelta(seconds=settings.STREAM_MAX_AGE)
    return done, done - timedelta(seconds=max(settings.QUESTION_TIMEOUT, StoredStream.DEAD_AFTER))


def _old_streams(session: Expression, state: Expression, done: Expression, silent: Expression) -> QuerySet[Any]:
    """Return the query for the streams of a session that are old enough to be deleted."""
    own = Q(Exact(F("session_id"), session))
    return Stream.objects.filter(own & _is_old(state, done, silent)).values_list("pk")


def _clear(streams: QuerySet[Stream]) -> int:
    old = streams.filter(_is_old(Stream.State.DONE, *_expiry_times()))
    return old.delete()[1].get(Stream._meta.label, 0)
