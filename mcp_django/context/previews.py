"""What a call would do, as it is shown to be confirmed."""

from collections.abc import Mapping
from typing import Any


class Preview:
    """What a call would do, as a confirmation shows it: in one sentence (``message``), as a ``question`` with the rows,
    and as members of the result (``shown``). A subclass can find it out when it is asked for."""

    def __init__(self, message: str, question: str, shown: Mapping[str, Any]) -> None:
        self._told = (message, question, shown)

    @property
    def message(self) -> str:
        return self._told[0]

    @property
    def question(self) -> str:
        return self._told[1]

    @property
    def shown(self) -> Mapping[str, Any]:
        return self._told[2]

    @property
    def columns(self) -> Mapping[str, Any]:
        """What is kept with the request for a person's yes besides what is shown: ``summary``, ``rows``, ``labels`` of
        models, ``using`` (database) and ``cannot_undo``; and ``digest``, if what is shown has one of its own."""
        return {"summary": self.message}
