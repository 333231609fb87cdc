"""Writes small, valid files without any library for them."""

import struct
import zlib

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage


def store(name: str, content: bytes) -> str:
    """Keeps `content` under exactly this name: storages rename rather than overwrite."""
    default_storage.delete(name)
    return default_storage.save(name, ContentFile(content))


def png(colour: tuple[int, int, int], size: int = 48) -> bytes:
    """A square image of one colour with a lighter frame."""
    frame = bytes((part + 255) // 2 for part in colour)
    inner = frame * 4 + bytes(colour) * (size - 8) + frame * 4
    rows = [b"\0" + (inner if 4 <= y < size - 4 else frame * size) for y in range(size)]
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, data) for kind, data in chunks)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pdf(text: str) -> bytes:
    """A page with one line of plain ASCII text."""
    line = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    content = f"BT /F1 18 Tf 72 720 Td ({line}) Tj ET".encode("ascii", "replace")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body, offsets = b"%PDF-1.4\n", []
    for number, data in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, data)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(body)
    return body + b"xref\n0 6\n0000000000 65535 f \n" + table + trailer
