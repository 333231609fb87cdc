"""`python -m benchmarks.serve NAME`: one contender under uvicorn, one worker, on a free port that it prints.

It ends when its standard input does, so that none is left behind by a harness that was killed.
"""

import argparse
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from .counting import count_queries


def django_application() -> Any:
    """Django's own handler: the bare views and the plain road."""
    from django.core.asgi import get_asgi_application

    return get_asgi_application()


def fast_application() -> Any:
    """The application that hands the endpoint's requests straight to the consumer."""
    import django

    django.setup(set_prefix=False)
    from mcp_django.asgi import get_asgi_application

    return get_asgi_application()


def sdk_application() -> Any:
    """The official SDK's server."""
    import django

    django.setup(set_prefix=False)
    from .project.sdk import application

    return application()


def sdk_streams_application() -> Any:
    """The official SDK's server with streams and sessions."""
    import django

    django.setup(set_prefix=False)
    from .project.sdk import streaming_application

    return streaming_application()


APPLICATIONS: dict[str, Callable[[], Any]] = {
    "django": django_application,
    "fast": fast_application,
    "sdk": sdk_application,
    "sdk_streams": sdk_streams_application,
}


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("application", choices=APPLICATIONS)
    parser.add_argument("--cpu", type=int, help="the core to stay on")
    parser.add_argument("--count-queries", action="store_true", help="say in each answer how many it took")
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    application = APPLICATIONS[options.application]()
    if options.count_queries:
        application = count_queries(application)
    # Named TCP, or asyncio would not switch Nagle's algorithm off, and each answer would wait for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(application, log_level="warning", access_log=False)
    server = uvicorn.Server(config)

    def end_with_input() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=end_with_input, daemon=True).start()
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
