"""A background thread that does one kind of work, when it is woken or at intervals, and sleeps otherwise."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from django.db import close_old_connections, connections

logger = logging.getLogger("mcp_django")

# Seconds of rest during which a connection to the database is kept.
SHORT_REST: Final = 1.0
# Seconds after a failure that the work did not expect.
AFTER_FAILURE: Final = 5.0


class Worker:
    """A daemon thread around ``work``, which returns after how many seconds it wants to run again.

    None stands for "when woken". The thread is started by the first :meth:`wake` and ends with the process.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self.name, self.work = name, work
        self._wake, self._stop, self._hurry = threading.Event(), threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Have the work run soon; during a rest that it asked for, after the rest.

        Raises:
            RuntimeError: no thread can be started now.
        """
        self._wake.set()
        with self._lock:
            if self._thread is None:
                stop, hurry = threading.Event(), threading.Event()
                thread = threading.Thread(target=self._run, args=[stop, hurry], name=self.name, daemon=True)
                thread.start()
                self._thread, self._stop, self._hurry = thread, stop, hurry

    def hurry(self) -> None:
        """End a rest that the work asked for; where there is none, nothing happens or the next one is left out."""
        self._hurry.set()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread, within ``timeout`` seconds or when its work is done; the next :meth:`wake` starts another."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        self._hurry.set()
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self, stop: threading.Event, hurry: threading.Event) -> None:
        while not stop.is_set():
            self._wake.wait()
            self._wake.clear()
            while not stop.is_set() and (rest := self._once()) is not None:
                if rest >= SHORT_REST:
                    connections.close_all()
                hurry.wait(rest)
                if not stop.is_set():
                    hurry.clear()
            connections.close_all()

    def _once(self) -> float | None:
        close_old_connections()
        try:
            return self.work()
        except BaseException:
            # Whatever a hook of the project raises, such as an exit: nobody would start the thread again.
            logger.exception("The thread %s failed", self.name)
            return AFTER_FAILURE
