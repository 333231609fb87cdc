"""`python -m benchmarks.serve NAME`: one contender under uvicorn, on a free port that it prints.

It ends when its standard input does, so that none is left behind by a harness that was killed.
"""

import argparse
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

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


def sdk_token_application() -> Any:
    """The official SDK's server, which checks the token and asks for the permission."""
    import django

    django.setup(set_prefix=False)
    from .project.sdk import guarded_application

    return guarded_application()


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
    "sdk_token": sdk_token_application,
    "sdk_streams": sdk_streams_application,
}


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("application", choices=APPLICATIONS)
    parser.add_argument("--cpu", type=int, help="the core to stay on")
    parser.add_argument("--count-queries", action="store_true", help="say in each answer how many it took")
    parser.add_argument("--workers", type=int, default=1, help="as the option of uvicorn")
    options = parser.parse_args()
    if options.workers > 1:
        serve_by_workers(options.application, options.workers)
        return
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

    with_input(lambda: setattr(server, "should_exit", True))
    server.run(sockets=[listener])


def serve_by_workers(name: str, workers: int) -> None:
    """Serve as `uvicorn --workers` does, with the socket that uvicorn makes."""
    application = f"benchmarks.serve:{APPLICATIONS[name].__name__}"
    config = uvicorn.Config(application, factory=True, workers=workers, port=0, log_level="warning", access_log=False)
    listener = config.bind_socket()
    threading.Thread(target=announce, args=[listener.getsockname()], daemon=True).start()
    supervisor = Multiprocess(config, sockets=[listener])
    with_input(supervisor.should_exit.set)
    supervisor.run()


def announce(address: tuple[str, int]) -> None:
    """Print the port once a worker listens."""
    while True:
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            print(address[1], flush=True)
            return


def with_input(end: Callable[[], None]) -> None:
    """Call ``end`` when standard input ends."""

    def wait() -> None:
        sys.stdin.read()
        end()

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main()
