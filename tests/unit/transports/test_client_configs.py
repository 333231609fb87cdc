import json
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from mcp_django.transports.client_configs import CLIENTS, Connection, SetupError

HTTP = Connection("shop", url="https://shop.example/mcp")
TOKEN = Connection("shop", url="https://shop.example/mcp", token="tok")
STDIO = Connection("shop", command=("python", "manage.py", "mcp_stdio", "--user", 'Ada "L" O\'Neil'))
# Those that a vendor hosts have nothing to write, and what is YAML is not read.
WRITTEN = [name for name, client in CLIENTS.items() if client.key]
READ = [name for name in WRITTEN if CLIENTS[name].format != "yaml"]
WAYS = {"http": HTTP, "token": TOKEN, "stdio": STDIO}


def read(client, text):
    return {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}[client.format](text)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WRITTEN)
def test_every_client_is_told_where_the_server_is_and_no_more_than_it_needs(name, way):
    client, connection = CLIENTS[name], WAYS[way]
    entry = read(client, client.text(connection))[client.key]["shop"]
    text = json.dumps(entry)
    assert ("https://shop.example/mcp" in text) is (way != "stdio")
    assert ("Bearer tok" in text) is (way == "token")
    arguments = entry.get("args", entry["command"][1:] if isinstance(entry.get("command"), list) else None)
    assert (arguments == list(STDIO.command[1:])) is (way == "stdio")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if client.add[0]])
def test_commands_can_be_pasted_into_a_shell(name, way):
    line = CLIENTS[name].shell(WAYS[way])
    words = shlex.split(line)
    assert bool(words) is not (name == "codex" and way == "token")
    if way == "stdio" and name != "vscode":
        assert words[-5:] == list(STDIO.command)
    assert line.count("\n") == 0


@pytest.mark.parametrize("name", READ)
def test_what_the_file_holds_stays(name):
    client = CLIENTS[name]
    before = (
        "# mine\nmodel = \"o9\"\n\n[mcp_servers.other]\ncommand = 'x'"
        if client.format == "toml"
        else json.dumps({"theme": "dark", client.key: {"other": {"command": "ü"}}}, ensure_ascii=False)
    )
    after = client.merged(TOKEN, before)
    found, kept = read(client, after), read(client, before)
    assert found[client.key].pop("shop") == client.entry(TOKEN)
    assert found == kept
    assert client.merged(TOKEN, after) == after
    if client.format == "toml":
        assert after.startswith(before)
    else:
        assert "ü" in after


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("before", ["", "\n"])
def test_an_empty_file_is_begun(name, before):
    client = CLIENTS[name]
    assert read(client, client.merged(HTTP, before)) == {client.key: {"shop": client.entry(HTTP)}}


@pytest.mark.parametrize("name", READ)
def test_another_server_of_the_name_is_not_replaced(name):
    client = CLIENTS[name]
    with pytest.raises(SetupError, match="already has another server 'shop'"):
        client.merged(TOKEN, client.merged(HTTP, ""))


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(
    "before",
    [
        "// comment\n{}",
        "[1",
        '{"mcpServers": 5, "servers": [], "mcp_servers": "", "mcp": 1, "context_servers": 0}',
        "= 3",
    ],
)
def test_a_file_that_cannot_be_read_is_not_changed(name, before):
    with pytest.raises(SetupError, match="by hand"):
        CLIENTS[name].merged(HTTP, before)


@pytest.mark.parametrize("before", ["mcp_servers = {other = {command = 'x'}}", "mcp_servers = {}"])
def test_a_table_that_takes_no_more_is_not_broken(before):
    with pytest.raises(SetupError, match="by hand"):
        CLIENTS["codex"].merged(HTTP, before)


@pytest.mark.parametrize("name", sorted(set(CLIENTS) - {"json"}))
def test_every_client_has_a_page_that_is_listed(name):
    docs = Path(__file__).parents[3] / "docs"
    assert (docs / "clients" / f"{name}.md").exists()
    assert f"(clients/{name}.md)" in (docs / "clients.md").read_text()
    assert f"clients/{name}\n" in (docs / "index.md").read_text()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("copilot", {"type": "http", "url": HTTP.url, "tools": ["*"]}),
        ("qwen", {"httpUrl": HTTP.url}),
        ("cline", {"type": "streamableHttp", "url": HTTP.url}),
        ("continue", {"type": "http", "url": HTTP.url}),
        ("mcporter", {"baseUrl": HTTP.url}),
    ],
)
def test_the_entries_are_those_that_the_clients_read(name, entry):
    assert CLIENTS[name].entry(HTTP) == entry
