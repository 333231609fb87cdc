"""The methods of the protocol that this server answers, as a table."""

from collections.abc import Mapping
from typing import Final

from .handler_interface import Handler
from .lifecycle_and_subscriptions import discover, initialize, listen, ping, set_log_level, subscribe, unsubscribe
from .resources_and_prompts import complete, get_prompt, list_prompts, list_resources, list_templates, read_resource
from .tasks import cancel_task, get_task, update_task
from .tools import call_tool, list_tools

__all__ = ["METHODS"]

# The schema of each revision, and of its extension, decides which methods it has, before this table is used.
METHODS: Final[Mapping[str, Handler]] = {
    "initialize": initialize,
    "ping": ping,
    "server/discover": discover,
    "tools/list": list_tools,
    "tools/call": call_tool,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
    "logging/setLevel": set_log_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "subscriptions/listen": listen,
    "tasks/get": get_task,
    "tasks/update": update_task,
    "tasks/cancel": cancel_task,
}
