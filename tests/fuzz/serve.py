"""`python -m tests.fuzz.serve DATABASE`: the conformance project on a free port, which is printed.

On SIGUSR1 it prints how many tasks its event loop has.
"""

import asyncio
import os
import signal
import socket
import sys


async def serve(listener: socket.socket) -> None:
    import uvicorn

    from tests.conformance_project.__main__ import APPLICATION

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: print(len(asyncio.all_tasks()), flush=True))
    config = uvicorn.Config(APPLICATION, lifespan="off", log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    print(listener.getsockname()[1], flush=True)
    await server.serve(sockets=[listener])


def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    # Who connects from now on waits.
    listener.listen(128)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.conformance_project.settings"
    os.environ["CONFORMANCE_PORT"] = str(listener.getsockname()[1])
    os.environ["CONFORMANCE_DATABASE"] = sys.argv[1]
    from tests.conformance_project.__main__ import prepare

    prepare()
    asyncio.run(serve(listener))


if __name__ == "__main__":
    main()
