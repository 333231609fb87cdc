"""``python -m mcp_django`` serves a tiny shop to try the app with, and removes its data when it ends."""

import argparse
import signal
import socket
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

HOST, USUAL_PORT = "127.0.0.1", 8000


def main() -> None:
    """Serve until Ctrl+C or a signal; exit with 2 and the reason if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m mcp_django", description="Serves a tiny shop to try MCP with.")
    parser.add_argument("--port", type=int, help=f"the port (default: {USUAL_PORT}, or a free one if that is taken)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the data in this folder, for the next time too")
    options = parser.parse_args()
    if find_spec("daphne") is None:
        parser.error(f"the server is missing. Install it: {sys.executable} -m pip install daphne")
    try:
        port = usable_port(USUAL_PORT, 0) if options.port is None else usable_port(options.port)
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
    except (OSError, OverflowError) as error:
        parser.error(f"{error} (--port {options.port}, --keep {options.keep})")
    # Each ends the shop as Ctrl+C does; Windows has no SIGHUP.
    ends = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    for end in ends:
        signal.signal(end, signal.default_int_handler)
    print(f"Making a tiny shop on port {port}, which takes a few seconds.", flush=True)
    fate = f"Its data stays in {options.keep}." if options.keep else "Its data is removed then."
    try:
        with nullcontext(options.keep) if options.keep else TemporaryDirectory(prefix="mcp-django-") as folder:
            try:
                # This imports the server, which sets up an event loop at once.
                from .tryout.shop import serve

                serve(Path(folder), HOST, port, fate)
            finally:
                # People press Ctrl+C twice: the second time must not leave the data behind.
                for end in ends:
                    signal.signal(end, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.exit(130)


def usable_port(port: int, otherwise: int | None = None) -> int:
    """Return the port, or the other one if it is taken; 0 is any. Raises ``OSError`` or ``OverflowError``."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return int(probe.getsockname()[1])
    except OSError:
        if otherwise is None:
            raise
    print(f"Port {port} is taken.")
    return usable_port(otherwise)


if __name__ == "__main__":
    main()
