"""What a Python client of any generation does at the conformance project, told as JSON: a line for each step.

It is run by the interpreter that has the client's package and nothing else of this project; `sdk1` and `sdk2` are what
the generations differ in. A step that fails tells its error, and the walk goes on.
"""

import importlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

# Seconds for what is waited for, and for a whole step.
TIMEOUT = 10
STEP_TIMEOUT = 25
WATCHED = "test://watched-resource"
UPDATED = "notifications/resources/updated"
MESSAGE = "notifications/message"
ROOT = {"uri": "file:///srv/notes", "name": "notes"}
# What a person fills into forms, by the name of the field.
FORM = {"name": "Ada", "username": "ada", "email": "ada@example.com", "ok": True, "context": "a walk"}


class Ear:
    """All that the server says of its own accord, in the order in which it came."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.troubles: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self._changed = anyio.Event()

    def hear(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))
        self._wake()

    def watch_http(self, module: Any) -> None:
        """Note each HTTP request of a client that is made with this module (httpx or its successor)."""
        original = module.AsyncClient.send

        async def send(client: Any, request: Any, **options: Any) -> Any:
            response = await original(client, request, **options)
            session = response.headers.get("mcp-session-id")
            self.requests.append({"method": request.method, "status": response.status_code, "session": session})
            self._wake()
            return response

        module.AsyncClient.send = send

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, what: str, condition: Callable[[], Any]) -> None:
        with anyio.move_on_after(TIMEOUT):
            while not condition():
                await self._changed.wait()
            return
        raise TimeoutError(f"not heard within {TIMEOUT} s: {what}; heard: {self.heard[-10:]}")

    def count(self, method: str, **params: Any) -> int:
        return sum(name == method and params.items() <= told.items() for name, told in self.heard)

    def texts(self) -> list[Any]:
        return [params["data"] for method, params in self.heard if method == MESSAGE]

    @property
    def session(self) -> str | None:
        return next((request["session"] for request in self.requests if request["session"]), None)

    async def until_stream(self) -> None:
        """Wait for the stream that a client of the handshake era opens on its own."""
        await self.until(
            "a GET stream", lambda: any(r["method"] == "GET" and r["status"] == 200 for r in self.requests)
        )


def answer(params: dict[str, Any]) -> dict[str, Any]:
    """What a person answers to a question (`ElicitResult`)."""
    for action in ("decline", "cancel"):
        if action in params["message"].lower():
            return {"action": action}
    fields = params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: FORM.get(name, _any(field)) for name, field in fields.items()}}


def _any(field: dict[str, Any]) -> Any:
    """A value that a field takes: of choices the first."""
    choices = field.get("oneOf") or field.get("anyOf")
    if choices:
        return choices[0]["const"]
    if "enum" in field:
        return field["enum"][0]
    if field["type"] == "array":
        return [_any(field["items"])]
    if field["type"] == "string":
        # An older revision has no lists: the choices stand in the text.
        return field.get("description", "something").rpartition(": ")[2].partition(",")[0]
    return {"boolean": True, "integer": 1, "number": 1.5}[field["type"]]


def sampled(params: dict[str, Any]) -> dict[str, Any]:
    """What a model answers (`CreateMessageResult`)."""
    return {"role": "assistant", "content": {"type": "text", "text": "Paris."}, "model": "a-model-of-the-test"}


# Steps


async def hello(client: Any) -> dict[str, Any]:
    return client.hello()


async def ping(client: Any) -> dict[str, Any]:
    return await client.ping()


async def lists(client: Any) -> dict[str, Any]:
    keys = {"tools": "name", "resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
    found: dict[str, list[str]] = {}
    for member, key in keys.items():
        page = await client.page(member, None)
        found[member] = [item[key] for item in page[member]]
        while "nextCursor" in page:
            page = await client.page(member, page["nextCursor"])
            found[member] += [item[key] for item in page[member]]
    return found


async def results(client: Any) -> dict[str, Any]:
    names = "simple_text image_content audio_content embedded_resource multiple_content_types error_handling"
    found = {name: await client.call(f"test_{name}", {}) for name in [*names.split(), "resource_link"]}
    return {**found, "structured": await client.call("test_structured", {"city": "Kiel"})}


async def progress(client: Any) -> list[Any]:
    told: list[Any] = []
    await client.call("test_tool_with_progress", {}, progress=told)
    return told


async def resources(client: Any) -> dict[str, Any]:
    uris = {"text": "test://static-text", "binary": "test://static-binary", "template": "test://template/123/data"}
    found = {name: (await client.read(uri))["contents"][0] for name, uri in uris.items()}
    found["page"] = json.loads((await client.read("django://conformance/shelf000"))["contents"][0]["text"])
    return {**found, "missing": await client.code(lambda: client.read("test://missing"))}


async def prompts(client: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "test_simple_prompt": None,
        "test_prompt_with_arguments": {"arg1": "one", "arg2": "two"},
        "test_prompt_with_embedded_resource": {"resourceUri": "test://x"},
        "test_prompt_with_image": None,
    }
    found = {name: (await client.prompt(name, arguments))["messages"] for name, arguments in given.items()}
    return {**found, "missing": await client.code(lambda: client.prompt("missing", None))}


async def completions(client: Any) -> dict[str, Any]:
    template = "django://{app_label}/{model_name}/{pk}"
    return {
        "prompt": await client.complete({"type": "ref/prompt", "name": "test_completed_prompt"}, "city", "K"),
        "template": await client.complete({"type": "ref/resource", "uri": template}, "app_label", "conf"),
    }


async def logs(client: Any) -> dict[str, Any]:
    ear = client.ear
    await client.call("test_logging_tool", {})
    found: dict[str, Any] = {"before": ear.texts()}
    await client.call("test_tool_with_logging", {}, level="info")
    await ear.until("three log messages", lambda: len(ear.texts()) >= 3)
    found["info"] = ear.texts()
    await client.call("test_tool_with_logging", {}, level="error")
    await client.call("test_logging_tool", {}, level="debug")
    await ear.until("one more log message", lambda: len(ear.texts()) > len(found["info"]))
    return {**found, "after": ear.texts()[len(found["info"]) :]}


async def updates(client: Any) -> dict[str, Any]:
    ear = client.ear
    await client.ready()
    title = "a note of the walk"
    note = await client.structured("write_note", {"title": title})
    pk = note["uri"].rpartition("/")[2]
    async with client.watch([WATCHED]):
        async with client.watch([note["uri"]]):
            await client.call("change_note", {"note": pk, "title": "changed"})
            await ear.until("an update of the note", lambda: ear.count(UPDATED, uri=note["uri"]))
        before = ear.count(UPDATED, uri=note["uri"])
        watched = ear.count(UPDATED, uri=WATCHED)
        await client.call("change_note", {"note": pk, "title": "changed again"})
        await client.call("change_watched_resource", {})
        await ear.until("an update of the watched resource", lambda: ear.count(UPDATED, uri=WATCHED) > watched)
    row = json.loads((await client.read(note["uri"]))["contents"][0]["text"])
    unasked = ear.count(UPDATED, uri=note["uri"]) - before
    return {"title": row["fields"]["title"], "updates": before, "unasked": unasked}


async def list_changes(client: Any) -> dict[str, Any]:
    ear = client.ear
    await client.ready()
    found = {}
    async with client.watch([], ["tools", "prompts"]):
        for kind in ("tools", "prompts"):
            method = f"notifications/{kind}/list_changed"
            before = ear.count(method)
            await client.call(f"test_trigger_{kind[:-1]}_change", {})
            await ear.until(method, lambda method=method, before=before: ear.count(method) > before)
            found[kind] = True
    return found


async def questions(client: Any) -> dict[str, Any]:
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "accepted": ("test_elicitation", {"message": "Who are you?"}),
        "declined": ("test_elicitation", {"message": "Please decline."}),
        "cancelled": ("test_elicitation", {"message": "Please cancel."}),
        "sampled": ("test_sampling", {"prompt": "What is the capital of France?"}),
        "roots": ("test_input_required_result_list_roots", {}),
        "several": ("test_input_required_result_multiple_inputs", {}),
        "rounds": ("test_input_required_result_multi_round", {}),
        "choices": ("test_elicitation_sep1330_enums", {}),
    }
    found: dict[str, Any] = {}
    for name, (tool, arguments) in calls.items():
        found[name] = await client.outcome(lambda tool=tool, arguments=arguments: client.call(tool, arguments))
    found["prompt"] = await client.outcome(lambda: client.prompt("test_input_required_result_prompt", None))
    text = found["accepted"]["content"][0]["text"]
    if "input_required" in text:
        found["by_hand"] = await client.call(*by_hand(*calls["accepted"], json.loads(text)))
    return {**found, "asked": client.asked}


def by_hand(tool: str, arguments: dict[str, Any], asked: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The call that brings the answers, from a client whose person is asked by the model."""
    forms = asked["answers"]["properties"]
    answers = {key: answer({"message": "", "requestedSchema": form})["content"] for key, form in forms.items()}
    return tool, {**arguments, "answers": answers, "confirm_token": asked["confirm_token"]}


async def cancellation(client: Any) -> dict[str, Any]:
    name = client.unique("cancelled")

    async def state() -> str:
        return (await client.call("look_for_cancellation", {"name": name}))["content"][0]["text"]

    async def reaches(wanted: str) -> None:
        with anyio.fail_after(TIMEOUT):
            while await state() != wanted:
                await anyio.sleep(0.05)

    await client.abandon("wait_for_cancellation", {"name": name}, lambda: reaches("started"))
    await reaches("cancelled")
    return {"became": await state()}


async def reconnection(client: Any) -> dict[str, Any]:
    result = await client.call("test_reconnection", {})
    gets = [r for r in client.ear.requests if r["method"] == "GET" and r["status"] == 200]
    return {"result": result, "gets": len(gets)}


async def return_visit(client: Any) -> dict[str, Any]:
    """What a session remembers when its client comes back on a new connection."""
    ear = client.ear
    await client.ping()
    await client.call("test_logging_tool", {})
    await ear.until("a log message", ear.texts)
    return {"logged": ear.texts()}


STEPS = [
    hello,
    ping,
    lists,
    results,
    progress,
    resources,
    prompts,
    completions,
    logs,
    updates,
    list_changes,
    questions,
    cancellation,
    reconnection,
]


def tell(step: str, **told: Any) -> None:
    print(json.dumps({"step": step, **told}), flush=True)


async def take(client: Any, step: Callable[[Any], Awaitable[Any]]) -> None:
    try:
        with anyio.fail_after(STEP_TIMEOUT):
            tell(step.__name__, told=await step(client))
    except Exception:
        tell(step.__name__, error=traceback.format_exc())


async def visit(
    name: str, given: dict[str, Any], ear: Ear, session: str | None, steps: Sequence[Callable[[Any], Awaitable[Any]]]
) -> None:
    """Connect, take the steps, and tell of what went wrong on the way."""
    connect = importlib.import_module(given["sdk"]).connect
    try:
        async with connect(given, ear, session) as client:
            for step in steps:
                await take(client, step)
            # What happens while the connection is closed is the client's own affair.
            tell(name, told={"session": ear.session, "troubles": list(ear.troubles)})
    except Exception:
        tell(name, error=traceback.format_exc())


async def walk(given: dict[str, Any]) -> None:
    ear = Ear()
    keep = given["transport"] == "http" and not given["modern"]
    await visit("first_visit", {**given, "keep": keep}, ear, None, STEPS)
    if keep and ear.session:
        again = Ear()
        again.requests.append({"method": "-", "status": 0, "session": ear.session})
        await visit("second_visit", {**given, "keep": True}, again, ear.session, [return_visit])
        await visit("last_visit", given, Ear(), None, [])


if __name__ == "__main__":
    anyio.run(walk, json.loads(sys.argv[1]))
