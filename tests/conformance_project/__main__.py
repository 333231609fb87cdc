"""`python -m tests.conformance_project --port N [--server uvicorn|daphne] [--workers N]`: serves the project.

Several workers share what they know through Redis, whose URL stands in `CONFORMANCE_REDIS`.
"""

import argparse
import os
import tempfile
import uuid
from importlib import import_module
from pathlib import Path

HOST = "127.0.0.1"
APPLICATION = "tests.conformance_project.asgi:application"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance_project")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--server", choices=["uvicorn", "daphne"], default="uvicorn")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    if options.workers > 1 and options.server == "daphne":
        parser.error("daphne has one worker")
    if options.workers > 1 and not os.environ.get("CONFORMANCE_REDIS"):
        parser.error("several workers need CONFORMANCE_REDIS")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.conformance_project.settings"
    os.environ.setdefault("CONFORMANCE_PREFIX", uuid.uuid4().hex)
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("CONFORMANCE_DATABASE", str(Path(directory) / "db.sqlite3"))
        prepare()
        print(f"MCP endpoint: http://{HOST}:{options.port}/mcp", flush=True)
        serve(options.server, options.port, options.workers)


def prepare() -> None:
    """Make the tables."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)


def serve(server: str, port: int, workers: int) -> None:
    if server == "daphne":
        from daphne.cli import CommandLineInterface

        CommandLineInterface().run(["-b", HOST, "-p", str(port), "-v", "0", APPLICATION])
    else:
        import uvicorn

        # A worker that cannot start is started again and again: what keeps it from it is better known before.
        import_module(APPLICATION.partition(":")[0])
        uvicorn.run(APPLICATION, host=HOST, port=port, workers=workers, lifespan="off", log_level="warning")


if __name__ == "__main__":
    main()
