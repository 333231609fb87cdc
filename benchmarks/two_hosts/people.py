"""What the clients do, over and over: each of one kind, each of a person of their own."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import httpx2

from benchmarks.calls import LEGACY, MODERN

from .client import NO_ANSWER, PATIENCE, TOOL_ERROR, Client, Stream, Trouble, content_of, pause, result_of
from .promises import RIGHT, Book

Found = TypeVar("Found")

# Seconds in which something has to be done, with all repeats: longer than any fault lasts.
DEADLINE = 150
# Seconds that a client waits before it asks again, unless it is told when.
LONGEST_WAIT = 5
PAGE = 50
STEPS, STEP_SECONDS = 8, 0.3
TASK_SECONDS = 0.4
# Words with which a tool says that it does not know whether it has done something.
UNSURE = ("may have been done", "belongs to a call", "is still running", "failed half-way")


class Person:
    """One client, who works until the run is over."""

    kind = ""
    era = MODERN
    elicits = tasks = False

    def __init__(self, run: "Run", number: int) -> None:
        self.run, self.number, self.book = run, number, run.book
        self.known = run.people[number]
        self.client = Client(run.http, self.known["token"], era=self.era, elicits=self.elicits, tasks=self.tasks)
        self.turn = 0

    async def work(self) -> None:
        """Do it over and over, each time after a pause."""
        # Not all begin at the same moment.
        await pause(self.run.pause * (self.number % 16) / 16, self.run.over)
        while not self.run.over.is_set():
            self.turn += 1
            await self.once()
            await pause(self.run.pause, self.run.over)

    async def once(self) -> None:
        """Do it once."""
        raise NotImplementedError

    def key(self) -> str:
        """Return the key of this turn's entry."""
        return f"{self.kind}-{self.number}-{self.turn}"

    async def ask(self, what: str, request: Callable[[], Awaitable[Found]], refused_by: str = "") -> Found:
        """Make one request, and write down how it went; with these words it is refused as it should be.

        Raises:
            Trouble: it was not answered as it should be.
        """
        began = time.monotonic()
        try:
            found = await request()
        except Trouble as trouble:
            if refused_by and refused_by in trouble.text:
                self.book.request(what, RIGHT, time.monotonic() - began)
                raise
            self.book.request(what, trouble.kind, time.monotonic() - began, trouble.text)
            if trouble.text.startswith("401"):
                self.book.lost("session", f"the token of {self.number} is refused: {trouble}")
            raise
        self.book.request(what, "answered", time.monotonic() - began)
        return found

    async def insist(self, what: str, request: Callable[[], Awaitable[Found]]) -> Found:
        """Make a request again until it is answered.

        Raises:
            Trouble: it was not, in all the time that there is; or the tool does not know what it has done.
        """
        began = time.monotonic()
        while True:
            try:
                return await self.ask(what, request)
            except Trouble as trouble:
                is_final = trouble.text.startswith(("401", "404")) or any(word in trouble.text for word in UNSURE)
                if is_final or time.monotonic() - began > DEADLINE:
                    raise
                await asyncio.sleep(min(trouble.again, LONGEST_WAIT))

    async def create(self, key: str) -> dict[str, Any]:
        """Create an entry, once."""
        arguments = {"model": "ledger.entry", "values": {"key": key}, "idempotency_key": key}
        return await self.insist("create_record", lambda: self.client.call("create_record", **arguments))

    async def begin_session(self) -> None:
        """Begin the session of the client, where it has none."""
        if self.client.session is None:
            await self.insist("initialize", self.client.initialize)


class Writer(Person):
    """Writes within a session that it keeps for the whole run."""

    kind = "write"
    era = LEGACY

    async def once(self) -> None:
        await self.begin_session()
        key, began = self.key(), time.monotonic()
        self.book.expect("write", key, 0, 1)
        try:
            await self.create(key)
        except Trouble as trouble:
            if trouble.text.startswith("404"):
                self.book.lost("session", f"{key}: {trouble}")
                self.client.session = None
            elif not any(word in trouble.text for word in UNSURE):
                self.book.lost("write", f"{key} was never answered: {trouble}")
            return
        self.book.expect("write", key, 1)
        self.book.kept("write", time.monotonic() - began)
        self.book.kept("session", time.monotonic() - began)


class Reader(Person):
    """Reads a long table, page after page."""

    kind = "page"
    cursor: str | None = None
    reached = 0

    async def once(self) -> None:
        more = {"cursor": self.cursor} if self.cursor else {}
        began = time.monotonic()

        async def read() -> dict[str, Any]:
            fields = {"fields": ["number"], "ordering": ["number"], "limit": PAGE}
            return await self.client.call("query_records", model="ledger.row", **fields, **more)

        try:
            page = await self.insist("query_records", read)
        except Trouble as trouble:
            self.book.lost("page", f"no page after {self.reached}: {trouble}")
            return
        numbers = [row[-1] for row in page["rows"]]
        if numbers == list(range(self.reached, self.reached + len(numbers))):
            self.book.kept("page", time.monotonic() - began)
        else:
            self.book.lost("page", f"after {self.reached} came {numbers[:3]} ...")
        self.reached += len(numbers)
        self.cursor = page.get("next_cursor")
        if self.cursor is None:
            if self.reached != self.run.rows:
                self.book.lost("page", f"the last page ends at {self.reached} of {self.run.rows}")
            self.reached = 0


class Changer(Person):
    """Changes what others watch, in turns."""

    kind = "change"

    async def once(self) -> None:
        mine = self.run.watched[self.run.changers.index(self) :: len(self.run.changers)]
        if not mine:
            return
        subscriber = mine[self.turn % len(mine)]
        counter, value = subscriber.known["counter"], self.turn
        began = time.monotonic()

        async def change() -> dict[str, Any]:
            return await self.client.call("update_record", model="ledger.counter", pk=counter, values={"value": value})

        try:
            await self.insist("update_record", change)
        except Trouble:
            return
        subscriber.changed(began, time.monotonic(), value)


class Subscriber(Person):
    """Watches a counter on a stream of its own, and looks again when it hears of a change or has to open the stream
    anew."""

    kind = "subscription"

    def __init__(self, run: "Run", number: int) -> None:
        super().__init__(run, number)
        self.uri = f"django://ledger/counter/{self.known['counter']}"
        # When each change was begun, when it was answered, and its value; and when this client heard something.
        self.changes: list[tuple[float, float, int]] = []
        self.news: list[float] = []

    def changed(self, began: float, answered: float, value: int) -> None:
        """Be told, by who did it, that there is something to hear of."""
        self.changes.append((began, answered, value))

    async def work(self) -> None:
        while not self.run.closed.is_set():
            began = time.monotonic()
            try:
                await self.watch()
            except Trouble as trouble:
                self.book.request("stream", trouble.kind, time.monotonic() - began, trouble.text)
                if trouble.text.startswith("404"):
                    self.book.lost("session", f"the session of the subscription of {self.number}: {trouble}")
                    self.client.session = None
                await pause(min(trouble.again, 1), self.run.closed)
            else:
                self.book.request("stream", "ended in order", time.monotonic() - began)

    async def watch(self) -> None:
        """Open the stream and read it to its end."""
        listening = {"notifications": {"resourceSubscriptions": [self.uri]}}
        message = self.client.message("subscriptions/listen", listening)
        async with self.client.post(message) as response:
            stream = Stream(response)
            if await stream.message() is None:
                raise Trouble(NO_ANSWER, "the stream ended at once")
            await self.read(stream)

    async def read(self, stream: Stream) -> None:
        """Read an open stream to its end."""
        began = time.monotonic()
        self.hear()
        try:
            while (message := await stream.message()) is not None:
                if message.get("method") == "notifications/resources/updated":
                    self.hear()
        finally:
            self.book.streams[self.era].append((stream.size, time.monotonic() - began))

    def hear(self) -> None:
        """Hear of something, or begin to."""
        self.news.append(time.monotonic())
        self.run.looks.add(look := asyncio.ensure_future(self.look()))
        look.add_done_callback(self.run.looks.discard)

    async def look(self) -> None:
        """Read the counter, and note whether the value is older than one that was written before."""
        asked = time.monotonic()
        expected = max((value for _, answered, value in self.changes if answered < asked), default=0)
        try:
            found = await self.insist("get_record", lambda: self.client.call("get_record", uri=self.uri))
        except Trouble:
            return
        if found["fields"]["value"] < expected:
            self.book.notes["reads after a change that were older than it"] += 1

    def settle(self) -> None:
        """Compare what was changed with what was heard."""
        for began, answered, value in self.changes:
            heard = [moment for moment in self.news if moment >= began]
            if heard:
                self.book.kept("change", heard[0] - answered)
            else:
                self.book.lost("change", f"value {value} of counter {self.known['counter']} ({self.era})")


class SessionSubscriber(Subscriber):
    """The same within a session: a subscription, and the stream of GET."""

    era = LEGACY

    async def watch(self) -> None:
        if self.client.session is None:
            await self.ask("initialize", self.client.initialize)
            await self.ask("resources/subscribe", lambda: self.client.result("resources/subscribe", {"uri": self.uri}))
        async with self.client.listen() as stream:
            await self.read(stream)


class Confirmer(Person):
    """Confirms what it is shown, by turns a deletion and a tool that could be run twice, and sends each confirmation
    once more."""

    kind = "confirmation"
    # The last call that was confirmed and could be run twice.
    sent: dict[str, Any] | None = None

    async def once(self) -> None:
        key = self.key()
        if self.turn % 2:
            await self.confirmed("pay", key, {"key": key}, before=0, after=1)
            return
        self.book.expect("confirmation", key, 0, 1)
        try:
            made = await self.create(key)
        except Trouble:
            return
        await self.confirmed("delete_record", key, {"model": "ledger.entry", "pk": made["pk"]}, before=1, after=0)

    async def confirmed(self, tool: str, key: str, arguments: dict[str, Any], before: int, after: int) -> None:
        """Call a tool, and confirm three of four calls; so many entries there are before it has done anything."""
        self.book.expect("confirmation", key, before)
        began = time.monotonic()
        try:
            shown = await self.insist(tool, lambda: self.client.call(tool, **arguments))
        except Trouble as trouble:
            self.book.lost("confirmation", f"{key} cannot be shown: {trouble}")
            return
        if self.turn % 8 in (3, 4):
            return
        self.book.expect("confirmation", key, 0, 1)
        sent = {**arguments, "confirm_token": shown["confirm_token"]}
        if not await self.confirm(tool, key, sent):
            return
        self.book.expect("confirmation", key, after)
        self.book.kept("confirmation", time.monotonic() - began)
        # This one and an older one: whatever is answered, the entries tell at the end what was done twice.
        for old in [sent] if self.sent is None or tool != "pay" else [sent, self.sent]:
            refused_by = "No such record" if tool == "delete_record" else "was used"
            with contextlib.suppress(Trouble):
                await self.ask(f"{tool} once more", partial(self.client.call, tool, **old), refused_by)
        if tool == "pay":
            self.sent = sent

    async def confirm(self, tool: str, key: str, sent: dict[str, Any]) -> bool:
        """Send the confirmation until it is answered; return whether it was taken."""
        began = time.monotonic()
        unsure = False
        while time.monotonic() - began < DEADLINE:
            try:
                await self.ask(tool, lambda: self.client.call(tool, **sent))
            except Trouble as trouble:
                if trouble.kind == TOOL_ERROR and unsure:
                    # The first one was taken, or will never be: both are right.
                    return False
                if trouble.kind == TOOL_ERROR and "was used" in trouble.text:
                    self.book.lost("confirmation", f"{key}: a new token is refused: {trouble}")
                    return False
                # A function of the project that met an outage may have done its work before.
                unsure = unsure or trouble.kind == NO_ANSWER or "Look at the data" in trouble.text
                await asyncio.sleep(min(trouble.again, LONGEST_WAIT))
            else:
                return True
        self.book.lost("confirmation", f"the confirmation of {key} was never answered")
        return False


class SessionCall(Person):
    """A call of a session whose messages come on a stream, from whichever worker the client reaches."""

    era = LEGACY
    elicits = True

    async def follow(self, params: dict[str, Any], drop_after: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Make a call; return its messages and its answer. The connection is dropped after so many messages.

        Raises:
            Trouble: there is no answer.
        """
        message = self.client.message("tools/call", params)
        found: list[Any] = []
        last_id: str | None = None
        began = time.monotonic()
        try:
            async with self.client.post(message) as response:
                if not response.headers["content-type"].startswith("text/event-stream"):
                    return found, json.loads(await response.aread())
                stream = Stream(response)
                try:
                    if answer := await self.read(stream, found, drop_after):
                        return found, answer
                finally:
                    last_id = stream.last_id
        except Trouble as trouble:
            self.book.request("stream of a call", trouble.kind, time.monotonic() - began, trouble.text)
            if last_id is None:
                raise
        return await self.come_back(found, last_id)

    async def come_back(self, found: list[Any], last_id: str | None) -> tuple[list[Any], dict[str, Any]]:
        """Read the rest of a call's stream, at any worker, as often as that takes."""
        began = time.monotonic()
        while time.monotonic() - began < DEADLINE:
            try:
                async with self.client.listen(last_id) as stream:
                    stream.last_id = last_id
                    try:
                        if answer := await self.read(stream, found, 0):
                            self.book.request("stream of a call", "answered", time.monotonic() - began)
                            return found, answer
                    finally:
                        last_id = stream.last_id
            except Trouble as trouble:
                self.book.request("stream of a call", trouble.kind, time.monotonic() - began, trouble.text)
                await asyncio.sleep(min(trouble.again, LONGEST_WAIT))
            else:
                await asyncio.sleep(0.5)
        raise Trouble(NO_ANSWER, f"the stream of the call never ended; last id {last_id}")

    async def read(self, stream: Stream, found: list[Any], drop_after: int) -> dict[str, Any] | None:
        """Read a stream; return the answer, None where it ends or is dropped before."""
        while (message := await stream.message()) is not None:
            if "method" not in message:
                answer: dict[str, Any] = message
                return answer
            if message["method"] == "elicitation/create":
                await self.answer(message)
            found.append(message)
            if drop_after and len(found) == drop_after:
                return None
        return None

    async def answer(self, question: dict[str, Any]) -> None:
        """Answer a question, on a request of its own."""
        [name] = question["params"]["requestedSchema"]["properties"]
        told = {"id": question["id"], "result": {"action": "accept", "content": {name: "Ann"}}}
        await self.insist("answer", lambda: self.client.tell(told))


class Signer(SessionCall):
    """Calls what asks a question."""

    kind = "question"

    async def once(self) -> None:
        await self.begin_session()
        key, began = self.key(), time.monotonic()
        self.book.expect("question", key, 0, 1)
        try:
            _, answer = await self.follow({"name": "sign", "arguments": {"key": key}})
            said = content_of(result_of(answer))
        except Trouble as trouble:
            if "never ended" in trouble.text:
                self.book.lost("question", f"{key}: {trouble}")
            elif "interrupted" in trouble.text:
                self.book.notes["calls that were interrupted, and said so"] += 1
                self.book.kept("question", time.monotonic() - began)
            return
        self.book.expect("question", key, 1)
        self.book.kept("question", time.monotonic() - began)
        if said["text"] != f"{key} signed by Ann":
            self.book.lost("question", f"{key} is answered with {said}")


class Counting(SessionCall):
    """Calls what reports its progress, and drops the connection in the middle of every second call."""

    kind = "stream"

    async def once(self) -> None:
        await self.begin_session()
        began = time.monotonic()
        arguments = {"steps": STEPS, "pause": STEP_SECONDS}
        params = {"name": "count_to", "arguments": arguments, "_meta": {"progressToken": f"{self.number}-{self.turn}"}}
        name = f"call {self.number}-{self.turn}"
        try:
            found, answer = await self.follow(params, drop_after=STEPS // 2 if self.turn % 2 else 0)
        except Trouble as trouble:
            if "never ended" in trouble.text:
                self.book.lost("stream", f"{name}: {trouble}")
            return
        seconds = time.monotonic() - began - STEPS * STEP_SECONDS
        steps = [message["params"]["progress"] for message in found]
        if steps != list(range(1, len(steps) + 1)):
            self.book.lost("stream", f"{name} told of the steps {steps}")
        elif "error" in answer:
            self.book.notes["calls that were interrupted, and said so"] += 1
            self.book.kept("stream", seconds)
        elif len(steps) != STEPS:
            self.book.lost("stream", f"{name} ended after the steps {steps}")
        else:
            self.book.kept("stream", seconds)


class Tasker(Person):
    """Has work done by tasks, of which every second is one transaction."""

    kind = "task"
    tasks = True

    async def once(self) -> None:
        key, began = self.key(), time.monotonic()
        at_once = self.turn % 2 == 0
        self.book.expect("task", key, 0, 1)
        arguments = {"key": key, "pause": TASK_SECONDS, "idempotency_key": key}
        params = {"name": "settle" if at_once else "post", "arguments": arguments}
        try:
            made = await self.insist("tools/call", lambda: self.client.result("tools/call", params))
            # A version from before there were tasks does the work within the call.
            ended = await self.end(made["taskId"]) if made.get("resultType") == "task" else {"status": "completed"}
        except Trouble as trouble:
            if not any(word in trouble.text for word in UNSURE):
                self.book.lost("task", f"{key}: {trouble}")
            return
        seconds = time.monotonic() - began
        status = ended["status"]
        if status == "completed":
            self.book.expect("task", key, 1)
            self.book.kept("task", seconds)
        elif status == "failed" and any(word in str(ended.get("error")) for word in UNSURE):
            self.book.notes["tasks that may have been done, and said so"] += 1
            self.book.kept("task", seconds)
        else:
            self.book.lost("task", f"{key}: {ended}")

    async def end(self, task_id: str) -> dict[str, Any]:
        """Return how a task ended.

        Raises:
            Trouble: it has not, in all the time that there is.
        """
        began = time.monotonic()
        while time.monotonic() - began < DEADLINE:
            found = await self.insist("tasks/get", lambda: self.client.result("tasks/get", {"taskId": task_id}))
            if found["status"] != "working":
                return found
            await asyncio.sleep(found["pollIntervalMs"] / 1000)
        raise Trouble(NO_ANSWER, f"the task {task_id} has not ended")


class Run:
    """What the clients have in common. `closed` comes after `over`: until then streams are read."""

    def __init__(self, people: list[dict[str, Any]], rows: int, wait: float) -> None:
        self.people, self.rows, self.pause = people, rows, wait
        self.book = Book()
        self.over, self.closed = asyncio.Event(), asyncio.Event()
        self.http = httpx2.AsyncClient(
            timeout=PATIENCE, limits=httpx2.Limits(max_connections=500, keepalive_expiry=5), trust_env=False
        )
        self.watched: list[Subscriber] = []
        self.changers: list[Changer] = []
        self.looks: set[asyncio.Future[None]] = set()
