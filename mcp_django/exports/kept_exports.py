"""Exports as they are kept: each one a row of :class:`Export`, and its file in ``STORAGES["mcp_exports"]``.

Without this storage there are no exports. The name of a file in the storage is made of random bits: nothing of the
caller's goes into it. Nobody ever gets the storage's own URL, because that would outlive the caller's rights.
"""

import logging
import re
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import IO, Any, ClassVar, Final

import orjson
from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.db import router
from django.db.models import Q, QuerySet
from django.utils import timezone

from ..context.caller_authority import authority
from ..context.request import MCPRequest
from ..context.signing import StoredSeal
from ..differences.kept_changes import KeptChange
from ..exceptions import NotFound
from ..models import Export
from ..operating.switches import board
from ..orm.own_tables import fitting_texts, text_lengths
from .known_formats import known_formats
from .questions import Question

logger = logging.getLogger("mcp_django.exports")

ALIAS: Final = "mcp_exports"
FOLDER: Final = "mcp_exports"
# Until when a file can be fetched. It holds what its user could see when it was made, so not for long.
KEPT_FOR: Final = timedelta(days=1)
# Number of exports that are kept for one user: more would only fill the storage.
MOST: Final = 20
LENGTHS: Final = text_lengths(Export)
# The types of files that hold the result of a tool, by format.
OF_RESULTS: Final = {"json": "application/json", "txt": "text/plain"}
OPEN: Final = "Give the user this url: they open it in a browser, signed in as themselves, until it expires."
READ: Final = "Read the uri as a resource."
# Digits of an id: 128 random bits.
DIGITS: Final = 32
DELETED_AT_ONCE: Final = 100
# The names of files in the storage, also as a storage has changed them.
STORED: Final = re.compile(r"(look-)?[0-9a-f]{32}(_\w+)?(\.\w+)?")


class KeptExport:
    """One row of :class:`Export`, and its file."""

    # The scheme of the URIs of exports, the part of their URLs after the endpoint's, and the tool that makes them.
    SCHEME: ClassVar = "export:"
    PURPOSE: ClassVar = "exports"
    TOOL: ClassVar = "export_records"
    # Maximum bytes of a file: more is a job for a dump of the database, not for a person's spreadsheet.
    MAX_BYTES: ClassVar = 1024**3

    def __init__(self, row: Export) -> None:
        self.row = row

    @staticmethod
    def storage() -> Storage | None:
        """Return the storage of exports, None where the project has none."""
        return storages[ALIAS] if ALIAS in storages.backends else None

    @classmethod
    def look(cls) -> str:
        """Return why the storage does not give back what it takes, "" if it does; nothing is left in it."""
        storage: Any = cls.storage()
        content = secrets.token_bytes(DIGITS)
        try:
            name = storage.save(f"{FOLDER}/look-{content.hex()[:DIGITS]}", ContentFile(content))
            try:
                with storage.open(name, "rb") as file:
                    is_the_same = file.read() == content
            finally:
                storage.delete(name)
        except Exception as error:
            return type(error).__name__
        return "" if is_the_same else "it gives back something else"

    @staticmethod
    def rows() -> QuerySet[Export]:
        """Return all rows of exports, from the database for writes: a replica may be late."""
        return Export.objects.using(router.db_for_write(Export))

    # Making and finding

    @classmethod
    def new(
        cls,
        request: MCPRequest,
        *,
        model: str,
        format: str,
        extension: str,
        question: Mapping[str, Any],
        result: Mapping[str, Any] | None = None,
    ) -> "KeptExport":
        """Return a new export of the caller, whose file is not there yet; the oldest of too many are deleted.

        ``model`` is the model's label, and ``question`` are the arguments, a value for JSON. For the ``result`` of
        another tool, they are the ``tool``, the one that was ``called`` in its place, the ``action`` that it has run,
        and whether it is ``read_only``.
        """
        mcp = request.mcp
        now = timezone.now()
        export_id = secrets.token_hex(DIGITS // 2)
        columns = {
            "user": KeptChange.owner_of(request.user),
            "username": getattr(request.user, "get_username", str)(),
            "client_id": mcp.client_id,
            "client_name": mcp.client.name,
            "site": mcp.site.name,
            "resource": mcp.resource,
            "model": model,
            "call": mcp.record.id.hex,
            "format": format,
            "name": f"{_safe(model if result is None else result['tool'])}-{now:%Y-%m-%d}.{extension}",
            "stored": f"{FOLDER}/{export_id}.{extension}",
        }
        # What hooks may ask of whoever asks again.
        caller = {"scopes": sorted(mcp.scopes), "facts": dict(mcp.facts)}
        kept = {"arguments": question, "caller": caller}
        if result is not None:
            kept["result"] = {**result, "authority": authority(request)}
        row = Export(
            id=export_id,
            created=now,
            expires=now + KEPT_FOR,
            question=_seal(export_id).seal(orjson.dumps(kept)),
            **_fitting(columns),
        )
        row.save(using=cls.rows().db, force_insert=True)
        others = cls.rows().filter(user=row.user).order_by("-created", "-pk")
        for old in list(others[MOST : MOST + DELETED_AT_ONCE]):
            cls(old).delete()
        return cls(row)

    @classmethod
    def find(cls, user: Any, site: str, export_id: Any, *, client_id: str | None = None) -> "KeptExport":
        """Return a user's export at the site of this name; with ``client_id``, only one that this client has made.

        Raises ``NotFound`` if there is no such export, if its file is not finished, or if it has expired.
        """
        owner = KeptChange.owner_of(user)
        if not owner or not isinstance(export_id, str) or len(export_id) != DIGITS:
            raise NotFound
        named = _fitting({"user": owner, "site": site} | ({} if client_id is None else {"client_id": client_id}))
        is_there = Q(pk=export_id, size__isnull=False, expires__gt=timezone.now(), **named)
        row = cls.rows().filter(is_there).first()
        # MySQL compares texts without their case.
        if row is None or row.pk != export_id or any(getattr(row, name) != value for name, value in named.items()):
            raise NotFound
        return cls(row)

    @classmethod
    def of_uri(cls, request: MCPRequest, uri: str) -> "KeptExport":
        """Return the export of the caller, made by the same client, that a URI names, once its question was checked.

        Raises ``NotFound`` if there is none, and whatever :meth:`check` raises.
        """
        export_id = uri.removeprefix(cls.SCHEME).partition("/")[0]
        found = cls.find(request.user, request.mcp.site.name, export_id, client_id=request.mcp.client_id)
        if found.uri != uri:
            raise NotFound
        found.check(request)
        return found

    # What it is

    @property
    def uri(self) -> str:
        """The URI of the file as a resource."""
        return f"{self.SCHEME}{self.row.pk}/{self.row.name}"

    @property
    def url(self) -> str | None:
        """The URL that the user opens in a browser, None for an endpoint without URLs (stdio)."""
        resource = self.row.resource
        return f"{resource.rstrip('/')}/{self.PURPOSE}/{self.row.pk}" if "://" in resource else None

    @property
    def told(self) -> dict[str, Any]:
        """What the caller is told of the file, and how to get it."""
        row = self.row
        told = {
            "file": row.name,
            "format": row.format,
            "rows": row.rows,
            "bytes": row.size,
            "uri": self.uri,
            "expires": row.expires.isoformat(timespec="seconds"),
            "next": READ if self.url is None else OPEN,
        }
        return told if self.url is None else {**told, "url": self.url}

    @property
    def mime_type(self) -> str:
        """The MIME type of the file."""
        if self.row.format in OF_RESULTS:
            return OF_RESULTS[self.row.format]
        kind = known_formats().get(self.row.format)
        return "application/octet-stream" if kind is None else kind.mime_type

    @property
    def is_text(self) -> bool:
        """Whether the file is text in UTF-8."""
        return self.row.format in ("csv", "jsonl", *OF_RESULTS)

    @cached_property
    def _sealed(self) -> dict[str, Any]:
        data = _seal(self.row.pk).open(bytes(self.row.question))
        if data is None:
            # The SECRET_KEY is gone that it needs.
            raise NotFound
        found: dict[str, Any] = orjson.loads(data)
        return found

    @property
    def question(self) -> dict[str, Any]:
        """The arguments of the call; raises ``NotFound`` if they can no longer be opened."""
        arguments: dict[str, Any] = self._sealed["arguments"]
        return arguments

    @property
    def caller(self) -> dict[str, Any]:
        """The ``scopes`` and ``facts`` of the call, raises ``NotFound`` if they can no longer be opened."""
        caller: dict[str, Any] = self._sealed["caller"]
        return caller

    def check(self, request: MCPRequest) -> None:
        """Read the question again for a request of its user, by today's rights and switches. The result of another tool
        is for those who may call it, with the permissions with which it was made.

        Raises ``NotFound``, ``ToolError`` or ``CallRefused`` if they could not ask it now: for want of a permission,
        because a column is hidden from them, or by a switch.
        """
        given = self.question
        result: Mapping[str, Any] | None = self._sealed.get("result")
        made = result or {"tool": self.TOOL, "action": "", "read_only": True}
        mcp = request.mcp
        if mcp.off is None:
            mcp.off = board.current()
        if mcp.off is not None:
            for tool in {made["tool"], made.get("called", made["tool"])}:
                switched = mcp.off.call(tool, self.row.model, made["action"], read_only=made["read_only"])
                if switched is not None:
                    raise switched.refusal()
        if mcp.site.get_tool(request, made["tool"]) is None:
            raise NotFound
        if result is None:
            Question.again(request, given)
        elif result["authority"] != authority(request):
            raise NotFound

    # The file

    def open(self) -> IO[bytes]:
        """Open the file; raise ``NotFound`` if it is gone."""
        storage = self.storage()
        if storage is None:
            raise NotFound
        try:
            found: Any = storage.open(self.row.stored, "rb")
        except FileNotFoundError:
            raise NotFound from None
        opened: IO[bytes] = found
        return opened

    def finish(self, written: IO[bytes], rows: int) -> None:
        """Store what was written, and let the file be fetched; raise ``NotFound`` if the export was deleted."""
        storage = self.storage()
        if storage is None:
            raise NotFound
        size = written.seek(0, 2)
        written.seek(0)
        stored = storage.save(self.row.stored, File(written))
        changed = {"stored": stored, "size": size, "rows": rows, "expires": timezone.now() + KEPT_FOR}
        if not self.rows().filter(pk=self.row.pk, size=None).update(**changed):
            storage.delete(stored)
            raise NotFound
        for name, value in changed.items():
            setattr(self.row, name, value)

    def delete(self) -> bool:
        """Delete the file and then the row; return False if the storage fails.

        The row then stays: a later try finds the file by it.
        """
        if not self.delete_file():
            return False
        self.rows().filter(pk=self.row.pk).delete()
        return True

    def delete_file(self) -> bool:
        """Delete the file alone; return False if the storage fails."""
        storage = self.storage()
        if storage is not None:
            try:
                storage.delete(self.row.stored)
            except Exception as error:
                logger.warning("The file of the export %s could not be deleted: %s", self.row.pk, error)
                return False
        return True

    @classmethod
    def purge(cls, *, every: bool = False) -> int:
        """Delete the exports that have expired, also those that no worker has finished, or every one; return how many.

        A worker that is writing one then finds that it is gone, and leaves no file. Files without a row, which a killed
        worker has left, are deleted too.
        """
        last = ""
        deleted = 0
        found = cls.rows() if every else cls.rows().filter(expires__lte=timezone.now())
        while batch := list(found.order_by("pk").filter(pk__gt=last)[:DELETED_AT_ONCE]):
            last = batch[-1].pk
            deleted += sum(cls(row).delete() for row in batch)
        for kind in known_formats().values():
            kind.clear_left(KEPT_FOR)
        before = timezone.now()
        if not every:
            # A younger file may belong to a row whose transaction has not ended.
            before -= 2 * KEPT_FOR
        try:
            cls._delete_unknown(before)
        except Exception as error:
            logger.warning("The files without an export could not be looked for: %s", error)
        return deleted

    @classmethod
    def _delete_unknown(cls, before: datetime) -> None:
        """Delete the files of the storage that no row knows and that were written before a time."""
        storage = cls.storage()
        if storage is None:
            return
        try:
            names = [f"{FOLDER}/{name}" for name in storage.listdir(FOLDER)[1] if STORED.fullmatch(name)]
        except (FileNotFoundError, NotImplementedError):
            # There is none, or the storage cannot list its files.
            return
        for start in range(0, len(names), DELETED_AT_ONCE):
            some = names[start : start + DELETED_AT_ONCE]
            known = set(cls.rows().filter(stored__in=some).values_list("stored", flat=True))
            for name in some:
                if name not in known and storage.get_modified_time(name) < before:
                    storage.delete(name)


def _seal(export_id: str) -> StoredSeal:
    return StoredSeal("mcp_django.exports", export_id)


def _fitting(columns: Mapping[str, Any]) -> dict[str, Any]:
    return fitting_texts(columns, LENGTHS, Export._meta.db_table, router.db_for_write(Export))


def _safe(label: str) -> str:
    """Return a model's label with the characters that are safe in the name of a file everywhere."""
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in label.lower())
    return safe[:100].strip(".")
