"""A reverse proxy that serves a project below a path, as a web server in front of it does."""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.e2e.servers import HOST

# Headers of one connection alone.
HOP = ("connection", "keep-alive", "transfer-encoding", "te", "upgrade")
TIMEOUT = 30


@contextmanager
def run_proxy(upstream: int, prefix: str, *, strips: bool, well_known: bool) -> Iterator[tuple[str, list[str]]]:
    """Pass on what is below `prefix`, with `strips` without it, until the block ends; anything else is another site's.

    `well_known` passes on the documents of this project at the root too. Gives the origin, and the paths of the
    requests that were another site's.
    """
    elsewhere: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def answer(self) -> None:
            documents = self.path.startswith("/.well-known/oauth-") and self.path.endswith((prefix, f"{prefix}/mcp"))
            if self.path.startswith(f"{prefix}/"):
                self.pass_on(self.path.removeprefix(prefix) if strips else self.path)
            elif documents and well_known:
                self.pass_on(self.path)
            else:
                elsewhere.append(self.path)
                self.send_response(404)
                self.end_headers()
                self.wfile.write(b"<h1>Another site</h1>")

        do_GET = do_POST = do_DELETE = do_OPTIONS = answer

        def pass_on(self, path: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            with closing(http.client.HTTPConnection(HOST, upstream, timeout=TIMEOUT)) as connection:
                connection.request(self.command, path, body, headers)
                response = connection.getresponse()
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.end_headers()
                while part := response.read1(65536):
                    self.wfile.write(part)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}", elsewhere
        finally:
            server.shutdown()
            thread.join()
