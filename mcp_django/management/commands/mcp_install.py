"""``manage.py mcp_install``: print or write the configuration that connects a client to this server."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...transports.client_configs import CLIENTS, Client, Connection, SetupError
from ..command_arguments import endpoint_url, find_user


class Command(BaseCommand):
    """Print the configuration of one client for this server, or ``--write`` its file."""

    help = "Prints how to connect a client to this server; --write adds it to the client's own file."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("client", choices=sorted(CLIENTS), help="the client to set up")
        parser.add_argument("--name", help='what the client calls the server (default: name of MCP_DJANGO["SERVER"])')
        parser.add_argument("--url", help="URL of the endpoint (default: the one that urls.py mounts)")
        parser.add_argument(
            "--token", help="for clients without a browser: a token of mcp_token, - reads standard input"
        )
        parser.add_argument("--stdio", metavar="USER", help="let the client start the server itself, as USER")
        parser.add_argument("--write", action="store_true", help="add it to the client's file, and keep the rest of it")

    def handle(self, *args: Any, client: str, token: str | None, write: bool, **options: Any) -> None:
        name = options["name"] or Connection.default_name()
        if Connection.NAME.fullmatch(name) is None:
            raise CommandError("A server's name has 1 to 40 letters, digits, - and _: choose one with --name.")
        if options["stdio"] and (token or options["url"]):
            raise CommandError("Leave out --url and --token with --stdio: the client starts the server itself.")
        if token == "-":
            token = sys.stdin.readline().strip()
            if not token:
                raise CommandError("There is no token on standard input: pipe it, as in manage.py mcp_token ada | ...")
        elif token:
            self.warn("The token is in the history of your shell now. Pipe it instead, with --token -.")
        program = CLIENTS[client]
        if not program.key:
            if options["stdio"] or token or write:
                raise CommandError(f"{program.title} takes only a URL: leave out --stdio, --token and --write.")
            self.stdout.write(program.remote.format(url=options["url"] or endpoint_url("--url URL")))
            return
        if options["stdio"]:
            connection = Connection(name, command=_command(find_user(options["stdio"]).get_username(), options))
        else:
            connection = Connection(name, url=options["url"] or endpoint_url("--url URL"), token=token or "")
        if connection.url and program.remote:
            starts = f"{program.title} starts the servers in its file itself: use --stdio USER."
            raise CommandError(f"{starts} {program.remote.format(url=connection.url)}")
        (self.write if write else self.show)(program, connection)
        if words := _afterwards(program, connection):
            self.stdout.write(words)

    def show(self, client: Client, connection: Connection) -> None:
        """Print the command to run and the lines of the file."""
        if shell := client.shell(connection):
            self.stdout.write(f"Run:\n\n  {shell}\n\n")
        if client.path is not None:
            either = "Or put this into" if shell else "Put this into"
            self.stdout.write(f"{either} {client.path.absolute()}:\n\n{client.text(connection)}")
        elif not shell:
            self.stdout.write(client.text(connection))

    def write(self, client: Client, connection: Connection) -> None:
        """Add the server to the client's file."""
        if client.path is None:
            raise CommandError(f"{client.title} has no file: leave out --write.")
        path = client.path.absolute()
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            after = client.merged(connection, before)
            if after == before:
                self.stdout.write(f"{path} has it already.")
                return
            _replace(path, after, is_secret=bool(connection.token))
        except (SetupError, OSError, UnicodeDecodeError) as error:
            self.show(client, connection)
            raise CommandError(f"{path} was not changed. {error}") from None
        self.stdout.write(self.style.SUCCESS(f"Written to {path}."))
        if connection.token and any((parent / ".git").exists() for parent in path.resolve().parents):
            self.warn(f"{path} holds the token and is in a git work tree: keep it out of your commits.")

    def warn(self, text: str) -> None:
        """Print a warning."""
        self.stderr.write(self.style.WARNING(text))


def _replace(path: Path, text: str, *, is_secret: bool) -> None:
    """Replace a file atomically.

    Only its owner can read a new file, or one with a token.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() and not is_secret else 0o600
    # Keep a symbolic link, and replace the file to which it leads.
    target = path.resolve()
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
        part.chmod(mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _afterwards(client: Client, connection: Connection) -> str:
    """Return what to do next in the client, "" for nothing."""
    if connection.token:
        text = f"Choose Streamable HTTP, enter {connection.url} and, below Authentication, the token as Bearer token."
        if client.path is not None or not client.after:
            return ""
        return text
    if connection.url or client.remote:
        return client.after.format(name=connection.name, url=connection.url)
    return ""


def _command(user: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command line that serves ``user`` over stdio, with absolute paths.

    The client starts it with its own environment, so the command line has the settings of this command.
    """
    settings_module = options.get("settings") or os.environ.get("DJANGO_SETTINGS_MODULE")
    settings_options = {"--settings": settings_module, "--pythonpath": options.get("pythonpath")}
    arguments = [part for option, value in settings_options.items() if value for part in (option, value)]
    return (sys.executable, str(Path(sys.argv[0]).resolve()), "mcp_stdio", "--user", user, *arguments)
