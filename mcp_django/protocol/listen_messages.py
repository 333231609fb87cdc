"""Messages of ``subscriptions/listen``: the filter of the request, the acknowledgement, notifications and the end.

See 2026-07-28, basic/patterns/subscriptions. Every message on the stream names the request that opened it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .eras import SERVER_KEY, Call
from .errors import InvalidParams
from .messages import Message, encode
from .tasks import MAX_TASK_IDS, is_task_id

SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
# Kinds of lists, by the member of the filter that subscribes to their changes.
LISTS: Final[Mapping[str, str]] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}
URIS: Final = "resourceSubscriptions"
TASKS: Final = "taskIds"


@dataclass(frozen=True, slots=True)
class ListenMessages:
    """The messages of one ``subscriptions/listen`` request, ``call``."""

    call: Call

    @staticmethod
    def read_filter(params: Mapping[str, Any]) -> tuple[frozenset[str], tuple[str, ...]]:
        """Read the filter of the request: kinds of lists, and URIs, each one once.

        Members that this server does not know are ignored.

        Raises:
            InvalidParams: there is no filter, or one of its members has the wrong type.
        """
        wanted = params.get("notifications")
        if not isinstance(wanted, Mapping):
            raise InvalidParams("Invalid params: notifications must be an object")
        for member in LISTS:
            if not isinstance(wanted.get(member, False), bool):
                raise InvalidParams(f"Invalid params: notifications.{member} must be true or false")
        uris = wanted.get(URIS, [])
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
            raise InvalidParams(f"Invalid params: notifications.{URIS} must be a list of strings")
        lists = frozenset(kind for member, kind in LISTS.items() if wanted.get(member) is True)
        return lists, tuple(dict.fromkeys(uris))

    @staticmethod
    def read_task_ids(params: Mapping[str, Any]) -> tuple[str, ...]:
        """Read the tasks that the filter of the request names, each one once (ext-tasks, Task Status Notifications).

        Raises:
            InvalidParams: they are no list of ids, or too many.
        """
        ids = params["notifications"].get(TASKS, [])
        if not isinstance(ids, list) or len(ids) > MAX_TASK_IDS or not all(map(is_task_id, ids)):
            raise InvalidParams(f"Invalid params: notifications.{TASKS} must be a list of at most {MAX_TASK_IDS} ids")
        return tuple(dict.fromkeys(ids))

    def acknowledged(self, lists: Collection[str], uris: Sequence[str]) -> bytes:
        """Return the first message: the part of the filter that the server honours."""
        honoured: dict[str, Any] = {member: True for member, kind in LISTS.items() if kind in lists}
        if uris:
            honoured[URIS] = list(uris)
        return self.tagged("notifications/subscriptions/acknowledged", {"notifications": honoured})

    def tagged(self, method: str, params: Mapping[str, Any]) -> bytes:
        """Return a notification that names the request."""
        meta = {**params.get("_meta", {}), SUBSCRIPTION_KEY: self.call.id}
        return Message(method, {**params, "_meta": meta}).encode()

    def ended(self, server: Mapping[str, Any] | None = None) -> bytes:
        """Return the last message, when the server ends the stream: the response to the request.

        ``server`` is the ``Implementation`` object of this server.
        """
        meta: dict[str, Any] = {SUBSCRIPTION_KEY: self.call.id}
        if server is not None:
            meta[SERVER_KEY] = server
        return encode(self.call.response({"resultType": "complete", "_meta": meta}))
