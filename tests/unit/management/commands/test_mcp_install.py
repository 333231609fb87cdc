import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from mcp_django.transports.client_configs import CLIENTS

ROOT = Path(__file__).resolve().parents[4]
URL = "http://testserver/mcp"
# Those that a vendor hosts, and those that keep a file of their own.
HOSTED = {name for name, client in CLIENTS.items() if not client.key}
WITH_FILE = sorted(name for name, client in CLIENTS.items() if client.file and name != "claude-desktop")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Neither the person's files nor the project's are those of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def run(capsys, *args, **options):
    call_command("mcp_install", *args, **options)
    return capsys.readouterr().out


@pytest.mark.parametrize("client", sorted(set(CLIENTS) - {"claude-desktop"}))
def test_the_endpoint_is_shown_and_nothing_is_written(capsys, home, client):
    assert URL in run(capsys, client)
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("client", WITH_FILE)
def test_it_is_written_when_told_to_for_the_owner_alone(capsys, home, client):
    out = run(capsys, client, "--write", "--token", "tok-1")
    (path,) = (path for path in home.rglob("*") if path.is_file())
    assert f"Written to {path}." in out
    assert URL in path.read_text()
    assert "tok-1" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"{path} has it already." in run(capsys, client, "--write", "--token", "tok-1")


def test_a_file_that_is_there_keeps_its_mode_its_link_and_what_it_holds(capsys, home):
    kept = home / "dotfiles.json"
    kept.write_text('{"mcpServers": {"other": {"command": "x"}}}')
    kept.chmod(0o644)
    path = Path(".mcp.json")
    path.symlink_to(kept)
    run(capsys, "claude-code", "--write")
    assert path.is_symlink()
    assert set(json.loads(kept.read_text())["mcpServers"]) == {"other", "django"}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "content", ["// no JSON", '{"mcpServers": {"django": {"url": "https://other.example"}}}', b"\xff"]
)
def test_a_file_that_would_lose_something_is_left_as_it_is(capsys, content):
    before = content if isinstance(content, bytes) else content.encode()
    Path(".mcp.json").write_bytes(before)
    with pytest.raises(CommandError, match=r"\.mcp\.json was not changed"):
        run(capsys, "claude-code", "--write")
    assert Path(".mcp.json").read_bytes() == before
    assert os.listdir() == [".mcp.json"]


@pytest.mark.django_db
def test_a_client_can_start_the_server_itself(capsys):
    get_user_model().objects.create_user("ada")
    out = run(capsys, "claude-desktop", "--stdio", "ada")
    entry = json.loads(out[out.index("{") : out.rindex("}") + 1])["mcpServers"]["django"]
    assert entry["command"] == sys.executable
    assert Path(entry["args"][0]).is_absolute()
    assert entry["args"][1:] == ["mcp_stdio", "--user", "ada", "--settings", os.environ["DJANGO_SETTINGS_MODULE"]]
    assert "Restart Claude Desktop." in out


def test_claude_desktop_is_told_how_it_reaches_a_server_over_http(capsys):
    with pytest.raises(CommandError, match=f"--stdio.*Connectors.*{URL}"):
        run(capsys, "claude-desktop")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["cursor", "--stdio", "eve"], "no user 'eve'"),
        (["cursor", "--stdio", "ada", "--token", "x"], "Leave out --url and --token"),
        (["cursor", "--name", "my shop"], "1 to 40 letters"),
        (["inspector", "--write"], "has no file"),
    ],
)
def test_what_does_not_go_together_is_said(capsys, args, reason):
    get_user_model().objects.create_user("ada")
    with pytest.raises(CommandError, match=reason):
        run(capsys, *args)


def test_without_an_origin_the_url_is_asked_for(capsys, settings):
    settings.MCP_DJANGO = {"BASE_URL": None}
    with pytest.raises(CommandError, match="name the endpoint: --url URL"):
        run(capsys, "cursor")
    assert "https://else.example/mcp" in run(capsys, "cursor", "--url", "https://else.example/mcp")


@pytest.mark.urls("tests.two_sites")
def test_of_several_endpoints_one_has_to_be_named(capsys):
    with pytest.raises(CommandError, match=rf"--url URL\. Mounted are: {URL} {URL}/staff\."):
        run(capsys, "cursor")
    assert f"{URL}/staff" in run(capsys, "cursor", "--url", f"{URL}/staff")


def test_the_paths_are_those_of_the_project_whatever_the_directory(home):
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "mcp_install", "codex", "--url", URL],
        cwd=home,
        env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'url = "{URL}"' in done.stdout
    assert str(home / ".codex" / "config.toml") in done.stdout


def test_what_was_written_is_not_shown_and_what_could_not_be_is(capsys):
    out = run(capsys, "claude-code", "--write")
    assert "claude mcp add" not in out
    assert out.startswith("Written to ")
    assert out.endswith("choose django and then Authenticate.\n")
    Path(".mcp.json").write_text("// no JSON")
    with pytest.raises(CommandError):
        run(capsys, "claude-code", "--write")
    assert URL in capsys.readouterr().out


def test_parts_are_apart(capsys):
    assert f" {URL}\n\nOr put this into " in run(capsys, "claude-code")


def test_the_inspector_is_told_where_its_token_goes(capsys):
    out = run(capsys, "inspector", "--token", "tok-1")
    assert f"enter {URL} and, below Authentication, the token as Bearer token." in out


@pytest.mark.django_db
def test_the_settings_that_were_named_are_those_that_the_client_starts(capsys):
    get_user_model().objects.create_user("ada")
    out = run(capsys, "cursor", "--stdio", "ada", settings="shop.settings", pythonpath="/srv/shop")
    entry = json.loads(out[out.index("{") :])["mcpServers"]["django"]
    assert entry["args"][1:] == [
        *["mcp_stdio", "--user", "ada", "--settings", "shop.settings", "--pythonpath", "/srv/shop"]
    ]


@pytest.mark.django_db
def test_a_client_that_starts_the_server_gets_the_settings_of_the_environment(capsys, monkeypatch):
    get_user_model().objects.create_user("ada")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings_live")
    out = run(capsys, "cursor", "--stdio", "ada")
    assert json.loads(out[out.index("{") :])["mcpServers"]["django"]["args"][-2:] == [
        "--settings",
        "shop.settings_live",
    ]


def test_a_file_with_a_token_is_its_owners_alone_also_where_it_was_not(capsys):
    path = Path(".mcp.json")
    path.write_text("{}")
    path.chmod(0o644)
    run(capsys, "claude-code", "--write", "--token", "tok-1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_in_a_git_work_tree_is_warned_of(capsys, home):
    (home / "project" / ".git").mkdir()
    call_command("mcp_install", "claude-code", "--write")
    assert capsys.readouterr().err == ""
    call_command("mcp_install", "cursor", "--write", "--token", "tok-1")
    assert "git work tree" in capsys.readouterr().err


def test_a_token_is_read_from_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("tok-2\n"))
    call_command("mcp_install", "cursor", "--write", "--token", "-")
    assert capsys.readouterr().err == ""
    assert "Bearer tok-2" in Path(".cursor/mcp.json").read_text()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(CommandError, match="There is no token on standard input"):
        run(capsys, "cursor", "--token", "-")


@pytest.mark.parametrize("client", WITH_FILE)
def test_a_url_that_narrows_is_written_as_it_is(capsys, home, client):
    url = f"{URL}?read_only=1&models=shop.order,crm"
    out = run(capsys, client, "--write", "--url", url)
    (path,) = (path for path in home.rglob("*") if path.is_file())
    assert f"Written to {path}." in out
    assert url in path.read_text()


def test_a_shell_takes_a_url_that_narrows_as_one_word(capsys):
    url = f"{URL}?read_only=1&models=shop"
    assert f"'{url}'" in run(capsys, "claude-code", "--url", url)


@pytest.mark.parametrize("client", sorted(set(CLIENTS) - HOSTED - {"claude-desktop", "inspector"}))
def test_a_client_that_signs_in_needs_no_token(capsys, client):
    out = run(capsys, client)
    assert URL in out
    assert "Authorization" not in out
    assert "Bearer" not in out


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("zed", {"context_servers": {"django": {"url": URL}}}),
        ("windsurf", {"mcpServers": {"django": {"serverUrl": URL}}}),
        ("opencode", {"mcp": {"django": {"type": "remote", "url": URL}}}),
        ("cursor", {"mcpServers": {"django": {"url": URL}}}),
        ("vscode", {"servers": {"django": {"type": "http", "url": URL}}}),
        ("copilot", {"mcpServers": {"django": {"type": "http", "url": URL, "tools": ["*"]}}}),
        ("qwen", {"mcpServers": {"django": {"httpUrl": URL}}}),
        ("cline", {"mcpServers": {"django": {"type": "streamableHttp", "url": URL}}}),
        ("continue", {"mcpServers": {"django": {"type": "http", "url": URL}}}),
        ("mcporter", {"mcpServers": {"django": {"baseUrl": URL}}}),
    ],
)
def test_each_client_has_the_entry_that_it_documents(capsys, home, client, entry):
    run(capsys, client, "--write")
    (path,) = (path for path in home.rglob("*") if path.is_file())
    assert json.loads(path.read_text()) == entry


@pytest.mark.parametrize(
    ("client", "place"),
    [
        ("copilot", "home/.copilot/mcp-config.json"),
        ("qwen", "home/.qwen/settings.json"),
        ("cline", "home/.cline/data/settings/cline_mcp_settings.json"),
        ("continue", "project/.continue/mcpServers/mcp.json"),
        ("mcporter", "project/config/mcporter.json"),
    ],
)
def test_each_client_has_the_file_that_it_documents(capsys, home, client, place):
    run(capsys, client, "--write")
    assert URL in (home / place).read_text()


def test_plain_json_is_all_that_is_printed(capsys):
    assert json.loads(run(capsys, "json")) == {"mcpServers": {"django": {"type": "http", "url": URL}}}
    told = json.loads(run(capsys, "json", "--token", "tok-1"))
    assert told["mcpServers"]["django"]["headers"] == {"Authorization": "Bearer tok-1"}


def test_goose_gets_yaml_in_a_new_file_and_by_hand_in_another(capsys, home):
    run(capsys, "goose", "--write", "--token", "tok-1")
    path = home / "home" / ".config" / "goose" / "config.yaml"
    (entry,) = yaml.safe_load(path.read_text())["extensions"].values()
    assert (entry["type"], entry["uri"], entry["enabled"]) == ("streamable_http", URL, True)
    assert entry["headers"] == {"Authorization": "Bearer tok-1"}
    path.write_text("GOOSE_MODEL: x\nextensions: {}\n")
    with pytest.raises(CommandError, match="by hand"):
        run(capsys, "goose", "--write")
    assert path.read_text() == "GOOSE_MODEL: x\nextensions: {}\n"


@pytest.mark.django_db
@pytest.mark.parametrize("client", ["goose", "opencode", "zed", "windsurf", "json"])
def test_the_newer_clients_can_start_the_server_too(capsys, client):
    get_user_model().objects.create_user("ada")
    out = run(capsys, client, "--stdio", "ada")
    text = out if client == "json" else out.split(":\n\n", 1)[1]
    servers, *_ = yaml.safe_load(text).values()
    entry = servers["django"]
    command = entry["command"] if client == "opencode" else [entry.get("command", entry.get("cmd")), *entry["args"]]
    assert command[0] == sys.executable
    assert command[2:5] == ["mcp_stdio", "--user", "ada"]


def test_servers_of_the_second_version_of_opencode_stay_together(capsys):
    path = Path("opencode.json")
    path.write_text('{"mcp": {"servers": {"other": {"type": "local", "command": ["x"]}}}}')
    run(capsys, "opencode", "--write")
    assert set(json.loads(path.read_text())["mcp"]["servers"]) == {"other", "django"}
    path.write_text('{"mcp": {"servers": {"type": "local", "command": ["x"]}}}')
    run(capsys, "opencode", "--write")
    assert set(json.loads(path.read_text())["mcp"]) == {"servers", "django"}


@pytest.mark.parametrize(("client", "steps"), [("claude-ai", "Add custom connector"), ("chatgpt", "Developer mode")])
def test_what_a_vendor_hosts_is_connected_by_steps_in_words(capsys, home, client, steps):
    out = run(capsys, client, "--url", "https://shop.example/mcp")
    assert steps in out
    assert "https://shop.example/mcp" in out
    for option in (["--write"], ["--stdio", "ada"], ["--token", "tok-1"]):
        with pytest.raises(CommandError, match="takes only a URL"):
            run(capsys, client, *option)
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_a_site_with_an_odd_name_is_called_something_that_clients_take(capsys, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"name": "Ada's Söhne"}}
    assert "[mcp_servers.Ada-s-S-hne]" in run(capsys, "codex")


def test_windows_and_macos_have_places_of_their_own(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert CLIENTS["goose"].path == Path.home() / Path("AppData/Roaming/Block/goose/config/config.yaml")
    assert CLIENTS["claude-desktop"].path == Path.home() / Path("AppData/Roaming/Claude/claude_desktop_config.json")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert CLIENTS["zed"].path == Path.home() / ".config/zed/settings.json"
    support = Path.home() / "Library/Application Support"
    assert CLIENTS["claude-desktop"].path == support / "Claude/claude_desktop_config.json"
