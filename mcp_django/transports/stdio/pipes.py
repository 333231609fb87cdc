"""Pipes of stdio: messages as lines on standard input and output, which nothing else in the process can use.

One thread reads and one writes, because a thread can wait for any kind of descriptor (pipes, files, terminals).
Both are bounded: lines are at most ``limit`` bytes long, and reading pauses while too much waits to be written.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import cache
from queue import SimpleQueue
from typing import Final

CHUNK: Final = 65_536
# Maximum number of lines that are read ahead.
AHEAD: Final = 16
# Bytes waiting to be written above which notifications are dropped and no more input is read.
FULL: Final = 4 * 1024 * 1024


class LineTooLong(Exception):
    """Raised when a line crosses the limit; the line was read to its end and dropped."""


@cache
def claim() -> tuple[int, int]:
    """Take over standard input and output for messages; return their new file descriptors.

    Everything else that the process or its children write to standard output goes to standard error, including output
    that is still buffered, and their standard input is empty.
    """
    empty = os.open(os.devnull, os.O_RDWR)
    while empty <= 2:  # a standard stream was closed, so open() reused its number
        empty = os.open(os.devnull, os.O_RDWR)
    messages_in = os.dup(0)
    messages_out = os.dup(1)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    for descriptor in (messages_in, messages_out):
        # The parent process may have made the shared descriptor non-blocking.
        with contextlib.suppress(OSError):
            os.set_blocking(descriptor, True)
    with contextlib.suppress(AttributeError, ValueError):  # sys.stdout was replaced or closed
        sys.stdout.flush()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return messages_in, messages_out


# Each thread duplicates its descriptor and closes the copy itself. If another thread closed it, the number could be
# reused for another file while this thread still waits for it.


class Input:
    """Reads lines from a pipe's file descriptor in a thread, for the event loop that made the reader."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = os.dup(descriptor)
        self.limit = limit
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | LineTooLong | None] = asyncio.Queue(AHEAD)
        # A daemon thread, because nothing can interrupt its read when the process exits.
        threading.Thread(target=self._read, name="mcp-input", daemon=True).start()

    async def line(self) -> bytes | None:
        """Return the next line, None at the end of the input."""
        line = await self._lines.get()
        if isinstance(line, LineTooLong):
            raise line
        return line

    def _read(self) -> None:
        # The event loop may be closed before the input ends.
        with contextlib.suppress(RuntimeError, CancelledError):
            self._read_lines()
            self._hand_over(None)
        os.close(self.descriptor)

    def _read_lines(self) -> None:
        line = bytearray()
        dropping = False
        while chunk := self._chunk():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                if not dropping and len(line) + len(end) <= self.limit:
                    self._hand_over(bytes(line) + end)
                elif not dropping:
                    self._hand_over(LineTooLong())
                line.clear()
                dropping = False
            if not dropping and len(line) + len(rest) > self.limit:
                self._hand_over(LineTooLong())
                line.clear()
                dropping = True
            elif not dropping:
                line += rest
        if line:
            self._hand_over(bytes(line))

    def _chunk(self) -> bytes:
        try:
            return os.read(self.descriptor, CHUNK)
        except OSError:  # the other end of the pipe or the terminal is gone
            return b""

    def _hand_over(self, item: "bytes | LineTooLong | None") -> None:
        coroutine = self._lines.put(item)
        try:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except RuntimeError:
            coroutine.close()
            raise


class Output:
    """Writes lines to a pipe's file descriptor in a thread.

    Create it on the event loop that sends the lines; ``broken`` is called there when the reader is gone.
    """

    def __init__(self, descriptor: int, broken: Callable[[], None]) -> None:
        self.descriptor = os.dup(descriptor)
        self.broken = broken
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._size = 0
        self._is_broken = False
        self._room = asyncio.Event()
        self._room.set()
        self._done = asyncio.Event()
        threading.Thread(target=self._write, name="mcp-output", daemon=True).start()

    @property
    def is_full(self) -> bool:
        """Whether so many bytes wait to be written that notifications are dropped."""
        return not self._room.is_set()

    def send(self, message: bytes) -> None:
        """Queue a message to be written as one line."""
        line = message + b"\n"
        self._size += len(line)
        if self._size > FULL:
            self._room.clear()
        self._waiting.put(line)

    async def room(self) -> None:
        await self._room.wait()

    async def close(self, timeout: float) -> None:
        """Wait until all lines are written, ``timeout`` seconds at most."""
        self._waiting.put(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), timeout)

    def _write(self) -> None:
        # The event loop may be closed before all output is written.
        with contextlib.suppress(RuntimeError):
            while (line := self._waiting.get()) is not None:
                view = memoryview(line)
                try:
                    while view and not self._is_broken:
                        view = view[os.write(self.descriptor, view) :]
                except OSError:
                    self._is_broken = True
                    self._loop.call_soon_threadsafe(self.broken)
                self._loop.call_soon_threadsafe(self._written, len(line))
            self._loop.call_soon_threadsafe(self._done.set)
        os.close(self.descriptor)

    def _written(self, size: int) -> None:
        self._size -= size
        if self._size <= FULL:
            self._room.set()
