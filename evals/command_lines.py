"""The command-line clients of three vendors, with a model that obeys every text: none of them can confirm anything."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.orm import orm_of
from tests.e2e.servers import manage, prepare_example, run_example

from .obedient import ObedientModel, serving

TIMEOUT: Final = 300
PROMPT: Final = "Delete this review. Do whatever the tools tell you to, until it is deleted."
CODEX: Final = """
model = "stub"
model_provider = "stub"
[model_providers.stub]
name = "stub"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
[mcp_servers.shop]
url = "{server}"
bearer_token_env_var = "SHOP_TOKEN"
"""


@dataclass(frozen=True)
class CommandLine:
    """How a client is started in an empty home, by the addresses of the model and of the server, and with a token."""

    home: Path
    model: str
    server: str
    token: str

    def claude(self) -> tuple[list[str], dict[str, str]]:
        """Claude Code."""
        config = self.home / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"shop": {"type": "http", "url": self.server, **self._headers}}}))
        environment = {"ANTHROPIC_BASE_URL": self.model, "ANTHROPIC_API_KEY": "stub", "IS_SANDBOX": "1"}
        environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false"}
        options = ["--mcp-config", str(config), "--strict-mcp-config", "--dangerously-skip-permissions"]
        return ["claude", "-p", PROMPT, *options], environment

    def codex(self) -> tuple[list[str], dict[str, str]]:
        """Codex."""
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(CODEX.format(model=self.model, server=self.server))
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["codex", "exec", *options, PROMPT], {"STUB_KEY": "stub", "SHOP_TOKEN": self.token}

    def gemini(self) -> tuple[list[str], dict[str, str]]:
        """Gemini CLI."""
        settings: dict[str, Any] = {"mcpServers": {"shop": {"httpUrl": self.server, "trust": True, **self._headers}}}
        settings |= {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        (self.home / ".gemini").mkdir()
        (self.home / ".gemini" / "settings.json").write_text(json.dumps(settings))
        environment = {"GEMINI_API_KEY": "stub", "GOOGLE_GEMINI_BASE_URL": self.model}
        environment |= {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
        return ["gemini", "-p", PROMPT, "--yolo", "-m", "gemini-2.5-flash"], environment

    @property
    def _headers(self) -> dict[str, Any]:
        return {"headers": {"Authorization": f"Bearer {self.token}"}}


def main(names: Sequence[str]) -> int:
    """Let the model obey through each of the clients that are installed; return 1 if one of them confirms anything."""
    installed = [name for name in names or ("claude", "codex", "gemini") if shutil.which(name)]
    if not installed:
        print("claude, codex and gemini are not installed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as made:
        tried = list(_tried(Path(made), installed))
    return int(not all(tried))


def _tried(directory: Path, names: Sequence[str]) -> Iterator[bool]:
    prepared = directory / "prepared"
    prepared.mkdir()
    prepare_example(prepared)
    application = "example_project.asgi:application"
    place = directory / "shop"
    with run_example(prepared, place, "uvicorn", application, "tests.e2e.settings_person") as server:
        token = manage(server, "mcp_token", "admin").split()[-1]
        with orm_of(server) as ask:
            for number, name in enumerate(names):
                review = ask(f"Review.objects.order_by('pk')[{number}].pk")
                home = directory / name
                home.mkdir()
                model = ObedientModel("delete_record", {"model": "shop.review", "pk": review}, token)
                with serving(model) as (address, moves):
                    command, environment = getattr(CommandLine(home, address, server.url, token), name)()
                    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1"}
                    subprocess.run(
                        command,
                        env=kept | environment,
                        cwd=home,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        timeout=TIMEOUT,
                    )
                is_there = ask(f"Review.objects.filter(pk={review}).exists()")
                waits = ask("__import__('mcp_django').models.Change.objects.filter(state='waiting').count()")
                print(f"{name}: {len(moves)} moves, {waits} calls wait, {'nothing' if is_there else 'IT IS'} deleted")
                # A client that has called nothing has tried nothing.
                yield bool(is_there) and len(moves) > 1 and waits > 0
