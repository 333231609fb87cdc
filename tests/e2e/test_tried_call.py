"""What the console offers to copy of a tried call runs as it stands: the Python program and the curl command."""

import html
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.e2e.servers import Server, manage

FILTER = 'it\'s </pre> \\ "quoted" {{ x }} ürgh'


@pytest.fixture(scope="module")
def copied(example: Server) -> dict[str, str]:
    """The texts beside which the page has a button to copy, of a call of ``query_records``, by their first word."""
    with httpx2.Client(base_url=example.origin, timeout=30, follow_redirects=True) as browser:
        browser.get("/login/")
        signed_in = {"username": "admin", "password": "admin", "next": "/"}
        browser.post("/login/", data={**signed_in, "csrfmiddlewaretoken": browser.cookies["csrftoken"]})
        path = "/admin/mcp_django/callentry/try/?tool=query_records&model=shop.product"
        page = browser.get(path)
        assert 'name="arg-fields"' in page.text
        sent = {"tool": "query_records", "model": "shop.product", "site": "mcp_django", "arg-model": "shop.product"}
        sent |= {"arg-limit": "2", "arg-filters": json.dumps({"not": {"name": FILTER}}), "arg-fields": "name"}
        token = browser.cookies["csrftoken"]
        headers = {"Referer": example.origin}
        answer = browser.post(path, data={**sent, "csrfmiddlewaretoken": token}, headers=headers)
    parts = answer.text.split('data-copied="Copied">')[1:]
    texts = [html.unescape(part.split("</pre>")[0]) for part in parts]
    return {text.split()[0]: text for text in texts}


def test_the_python_program_runs_with_the_official_client(
    example: Server, copied: dict[str, str], tmp_path: Path
) -> None:
    assert repr(FILTER) in copied["import"]
    program = tmp_path / "call.py"
    program.write_text(copied["import"])
    token = manage(example, "mcp_token", "admin").split()[-1]
    env = {**os.environ, "MCP_TOKEN": token}
    done = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "'returned': 2" in done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_curl_command_runs(example: Server, copied: dict[str, str]) -> None:
    token = manage(example, "mcp_token", "admin").split()[-1]
    env = {**os.environ, "MCP_TOKEN": token}
    command = ["sh", "-c", copied["curl"].replace("curl ", "curl -sS ", 1)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert '"returned":2' in done.stdout.replace(" ", ""), done
