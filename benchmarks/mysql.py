"""The calls on MySQL or MariaDB: an empty database for a run."""

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

from .depth import CONNECT_TIMEOUT, Unavailable

DEFAULT_URL: Final = "mysql://root@127.0.0.1:3306/mysql"


@contextmanager
def database(url: str) -> Iterator[str]:
    """Create an empty database on a server; give its URL and drop it in the end.

    Raises:
        Unavailable: no server answers, or there is no driver.
    """
    try:
        import pymysql
    except ImportError:
        raise Unavailable("PyMySQL is not installed") from None
    parts = urlsplit(url)
    account = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    place = {"host": parts.hostname or "127.0.0.1", "port": parts.port or 3306}
    try:
        connection = pymysql.connect(**place, **account, connect_timeout=CONNECT_TIMEOUT)
    except pymysql.MySQLError as error:
        raise Unavailable(f"MySQL does not answer at {place['host']}:{place['port']}: {error}") from None

    name = f"mcp_django_bench_{uuid.uuid4().hex}"
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        try:
            yield parts._replace(path=f"/{name}").geturl()
        finally:
            connection.ping(reconnect=True)
            cursor.execute(f"DROP DATABASE `{name}`")
