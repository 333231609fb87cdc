import json
import logging
import threading

import pytest
from django.db import IntegrityError

from mcp_django import ToolError, site
from mcp_django.context.request import build_request
from mcp_django.exceptions import InsufficientScope, NotFound
from mcp_django.protocol.eras import LEGACY_ERA, MODERN_ERA, Call
from mcp_django.server.kernel import METHODS, Kernel, Reply
from mcp_django.server.methods.handler_interface import Later


def call(method="ping", era=LEGACY_ERA, version="2025-11-25"):
    return Call(era=era, version=version, method=method, params={}, id=1, client={}, capabilities={})


def request():
    return build_request({"method": "POST", "path": "/mcp", "headers": []}, {}, site)


def message(reply):
    assert isinstance(reply, Reply)
    return json.loads(reply.body)


def raising(error):
    def work():
        raise error

    return Later(work)


def test_a_call_is_answered_with_its_id():
    assert message(Kernel(request(), call()).serve()) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize(
    ("era", "version", "status"), [(LEGACY_ERA, "2025-11-25", 200), (MODERN_ERA, "2026-07-28", 404)]
)
def test_D58_a_method_that_this_server_lacks_is_unknown(era, version, status):
    reply = Kernel(request(), call("rpc.discover", era, version)).serve()
    assert reply.status == status
    assert message(reply)["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [(ToolError("Say which."), -32602, "Say which."), (NotFound(), -32602, "Not found")],
)
def test_what_the_client_got_wrong_is_told(error, code, text):
    reply = Kernel(request(), call()).resume(raising(error))
    assert message(reply)["error"] == {"code": code, "message": text}


def test_K190_what_failed_inside_is_told_by_an_opaque_id_that_the_log_knows(caplog):
    with caplog.at_level(logging.ERROR, "mcp_django"):
        reply = Kernel(request(), call()).resume(raising(IntegrityError("UNIQUE constraint failed: secret.column")))
    error = message(reply)["error"]
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert "secret" not in str(message(reply))
    assert error["data"]["errorId"] in caplog.text
    assert len(caplog.records) == 1


def test_a_missing_scope_is_left_to_the_transport(monkeypatch):
    def refuse(request, params):
        raise InsufficientScope(["mcp:write"])

    monkeypatch.setitem(METHODS, "ping", refuse)
    with pytest.raises(InsufficientScope):
        Kernel(request(), call()).serve()


def test_a_result_that_is_no_json_is_a_failure_inside_and_not_a_broken_answer(caplog):
    reply = Kernel(request(), call()).resume(Later(lambda: {"number": 2**70}))
    assert message(reply)["error"]["code"] == -32603


async def test_work_of_an_async_tool_runs_on_the_loop():
    async def work():
        return {"thread": threading.current_thread().name}

    reply = await Kernel(request(), call()).resume_async(Later(work, is_async=True))
    assert message(reply)["result"] == {"thread": threading.current_thread().name}


async def test_an_async_failure_is_mapped_like_any_other():
    async def work():
        raise ToolError("Say which.")

    reply = await Kernel(request(), call()).resume_async(Later(work, is_async=True))
    assert message(reply)["error"]["message"] == "Say which."
