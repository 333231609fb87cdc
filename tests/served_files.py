"""A project that serves files which are not what their exports say, for real servers: no database is asked."""

# ruff: noqa: E402

import os
import sys
from io import BytesIO
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django
from django.conf import settings

django.setup()
settings.ALLOWED_HOSTS = ["*"]
settings.MIDDLEWARE = []
settings.ROOT_URLCONF = __name__

from django.core.asgi import get_asgi_application
from django.core.servers.basehttp import run
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from mcp_django.transports.http.export_page import ExportView

BODY = b"x" * 300_000
# The sizes that the rows of the exports have.
SIZES = {"whole": len(BODY), "shorter": len(BODY) + 50_000, "longer": len(BODY) - 50_000, "failing": len(BODY)}
SIZES["large"] = 100_000_000


class Failing(BytesIO):
    """A file whose storage goes away in its middle."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() > len(BODY) // 3:
            raise ConnectionError("the storage is away")
        return super().read(size)


class Large:
    """A file that counts how many bytes of all such files were read."""

    was_read = 0

    def __init__(self) -> None:
        self.left = SIZES["large"]

    def read(self, size: int) -> bytes:
        size = min(size, self.left)
        self.left -= size
        Large.was_read += size
        return b"x" * size

    def close(self) -> None:
        pass


FILES = {"failing": Failing, "large": lambda body: Large()}


def file(request: Any, kind: str) -> Any:
    view = ExportView()
    view.request = request
    kept: Any = SimpleNamespace(row=SimpleNamespace(name="a.csv", size=SIZES[kind], call="0"), mime_type="text/csv")
    return view._file(kept, FILES.get(kind, BytesIO)(BODY))


urlpatterns = [
    path("file/<kind>", file),
    path("next", lambda request: HttpResponse("THE NEXT ANSWER")),
    path("read", lambda request: HttpResponse(f"READ {Large.was_read}.")),
]
asgi = get_asgi_application()
wsgi = get_wsgi_application()

if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), wsgi, threading=True)
