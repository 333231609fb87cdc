"""The end of a worker: open streams are ended in order, and the log of calls is written, before the server stops.

Servers wait for connections to close, or cut them, without telling the application, and nothing here may need ASGI's
lifespan: so the first request of a process puts a handler before the server's own for SIGTERM and SIGINT. It has the
log written, as some servers end by the signal itself, ends the streams, and then hands the signal on.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from ...operating.log import drain

# Seconds that streams have to end before the server is told to stop, and between two looks at them.
PATIENCE: Final = 3.0
LOOK_EVERY: Final = 0.05
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

# Whether the handler is there, as far as it can be.
installed = False
# How each open stream is ended, and the loop that it lives on.
_streams: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}
_previous: dict[int, Any] = {}
_state = {"closing": False}


def is_closing() -> bool:
    """Return whether the worker is about to stop and opens no more streams."""
    return _state["closing"]


def register(end: Callable[[], object]) -> Callable[[], None]:
    """Have ``end`` called, on the event loop, when the worker stops; return what takes it off the list again."""
    install()

    def end_once() -> None:
        end()

    _streams[end_once] = asyncio.get_running_loop()

    def unregister() -> None:
        _streams.pop(end_once, None)

    return unregister


def install() -> None:
    """Put the handler before the server's."""
    global installed
    installed = True
    # Only the main thread may set handlers; a loop elsewhere is some program's own, which stops it as it likes.
    if _previous or threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        _previous[number] = signal.signal(number, _close)


def _close(number: int, frame: FrameType | None) -> None:
    first, _state["closing"] = not _state["closing"], True
    if first:
        drain()
    if not first or not _streams:
        _hand_on(number, frame)
        return
    for end, loop in list(_streams.items()):
        loop.call_soon_threadsafe(end)
    loop.call_soon_threadsafe(lambda: asyncio.ensure_future(_wait_and_hand_on(number)))


async def _wait_and_hand_on(number: int) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while _streams and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(LOOK_EVERY)
    _hand_on(number, None)


def _hand_on(number: int, frame: FrameType | None) -> None:
    previous = _previous.get(number)
    if callable(previous):
        previous(number, frame)
    elif previous == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
