"""A project that serves files which are not what their exports say, for real servers: no database is asked."""

# ruff: noqa: E402

import os
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
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from mcp_django.transports.http.export_page import ExportView

BODY = b"x" * 300_000
# The sizes that the rows of the exports have.
SIZES = {"whole": len(BODY), "shorter": len(BODY) + 50_000, "longer": len(BODY) - 50_000, "failing": len(BODY)}


class Failing(BytesIO):
    """A file whose storage goes away in its middle."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() > len(BODY) // 3:
            raise ConnectionError("the storage is away")
        return super().read(size)


def file(request: Any, kind: str) -> Any:
    view = ExportView()
    view.request = request
    kept: Any = SimpleNamespace(row=SimpleNamespace(name="a.csv", size=SIZES[kind], call="0"), mime_type="text/csv")
    return view._file(kept, Failing(BODY) if kind == "failing" else BytesIO(BODY))


urlpatterns = [path("file/<kind>", file), path("next", lambda request: HttpResponse("THE NEXT ANSWER"))]
asgi = get_asgi_application()
wsgi = get_wsgi_application()
