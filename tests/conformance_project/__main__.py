"""`python -m tests.conformance_project --port N [--server uvicorn|daphne]`: the project, served until it is stopped."""

import argparse
import os

HOST = "127.0.0.1"
APPLICATION = "tests.conformance_project.asgi:application"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance_project")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--server", choices=["uvicorn", "daphne"], default="uvicorn")
    options = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.conformance_project.settings"
    print(f"MCP endpoint: http://{HOST}:{options.port}/mcp", flush=True)
    if options.server == "daphne":
        from daphne.cli import CommandLineInterface

        CommandLineInterface().run(["-b", HOST, "-p", str(options.port), "-v", "0", APPLICATION])
    else:
        import uvicorn

        uvicorn.run(APPLICATION, host=HOST, port=options.port, lifespan="off", log_level="warning")


if __name__ == "__main__":
    main()
