"""A local https server by a private certificate authority, which answers each path with the bytes it is told to."""

import contextlib
import datetime
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mcp_django.oauth.document_fetcher import Fetcher

# An address of the public network, at which nothing of a test is.
PUBLIC = "93.184.215.14"
# What an answer is made of, or a function that writes it.
Answer = bytes | Callable[[socket.socket], None]


class Authority:
    """A certificate authority of a test; ``path`` is its certificate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
        made = _builder(self._name, self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        made = made.add_extension(usage, True).add_extension(_identifier(self._key), False)
        self.path = directory / "authority.pem"
        self.path.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def context(self, *hosts: str) -> ssl.SSLContext:
        """What a server of these hosts needs."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = _builder(name, self._name, key).add_extension(names, False).add_extension(issuer, False)
        pem = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path = self.directory / f"{hosts[0]}.pem"
        path.write_bytes(pem + key.private_bytes(serialization.Encoding.PEM, *plain))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _builder(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    return made.not_valid_after(now + datetime.timedelta(days=1))


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def answer(body: Any, kind: str = "application/json", status: str = "200 OK", **headers: str) -> bytes:
    """An answer with a body, which is JSON where it is no bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Content-Type": kind, "Content-Length": str(len(data))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


def dripping(data: bytes, seconds: float = 0.3) -> Callable[[socket.socket], None]:
    """An answer that comes byte by byte."""

    def write(connection: socket.socket) -> None:
        for number in range(len(data)):
            connection.sendall(data[number : number + 1])
            time.sleep(seconds)

    return write


class TLSServer:
    """The server; ``answers`` by URL without the scheme, ``asked`` the heads of the requests that came."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.connections = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def urls(self) -> list[str]:
        """The URLs that were asked for, without the scheme."""
        return [_url(head) for head in self.asked]

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def close(self) -> None:
        # A thread that waits in accept keeps a listener that is closed.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _answer(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as connection:
            head = b""
            while b"\r\n\r\n" not in head and (part := connection.recv(4096)):
                head += part
            if not head:
                return
            self.asked.append(head.decode())
            found = self.answers.get(_url(head.decode()), answer({}, status="404 Not Found"))
            if callable(found):
                found(connection)
            else:
                connection.sendall(found)


def _url(head: str) -> str:
    lines = head.split("\r\n")
    host = next(line.partition(": ")[2] for line in lines if line.lower().startswith("host: "))
    return host + lines[0].split()[1]


@contextmanager
def serving(context: ssl.SSLContext) -> Iterator[TLSServer]:
    """Serve until the block ends."""
    server = TLSServer(context)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(5)


class Proxy:
    """An HTTP proxy for TLS (CONNECT): every name leads to the server of the test; ``asked`` are the heads."""

    def __init__(self, server: TLSServer, status: str = "200 Connection established") -> None:
        self.asked: list[str] = []
        self._server, self._status = server, status
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            head = b""
            while b"\r\n\r\n" not in head and (part := client.recv(4096)):
                head += part
            self.asked.append(head.decode())
            client.sendall(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
            if not self._status.startswith("2"):
                return
            with socket.create_connection(("127.0.0.1", self._server.port)) as server:
                back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                back.start()
                _pass_on(client, server)
                back.join(5)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def proxying(server: TLSServer, status: str = "200 Connection established") -> Iterator[Proxy]:
    """Have a proxy until the block ends."""
    proxy = Proxy(server, status)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(5)


class Redirected(Fetcher):
    """Names lead to a public address, which is the server of the test; ``looks`` are the addresses by turn."""

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(self, server: TLSServer, authority: Authority, looks: list[list[str]] | None = None) -> None:
        super().__init__(authorities=str(authority.path))
        self.server = server
        self.looks = looks or [[PUBLIC]]
        self.resolved = 0
        self.connected: list[str] = []

    def resolve(self, host: str, port: int) -> list[str]:
        self.resolved += 1
        return self.looks[min(self.resolved, len(self.looks)) - 1]

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        self.connected.append(address)
        return socket.create_connection(("127.0.0.1", self.server.port), seconds)
