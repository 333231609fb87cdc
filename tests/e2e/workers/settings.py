"""The example project as several workers serve it: one database, one cache and one channel layer for all of them."""

import os
from typing import Any

from mcp_django.conf import Settings
from tests.e2e.settings import *  # noqa: F403
from tests.e2e.settings import INSTALLED_APPS as EXAMPLE_APPS
from tests.e2e.settings import MCP_DJANGO as EXAMPLE_MCP

INSTALLED_APPS = [*EXAMPLE_APPS, "tests.e2e.workers"]

# Servers of several test runs may share one Redis.
PREFIX = os.environ["WORKERS_PREFIX"]
CACHES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": os.environ["REDIS_URL"],
        "KEY_PREFIX": PREFIX,
    }
}
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [os.environ["REDIS_URL"]], "prefix": PREFIX},
    }
}
MCP_DJANGO = {
    **EXAMPLE_MCP,
    # Requests that are being answered count as refused ones until they are found good.
    "RATES": {"calls": None, "refusals": None},
    "SERVICE_ACCOUNTS": True,
}
Settings.MAX_STREAMS = Settings.MAX_CONCURRENT_CALLS = 500
