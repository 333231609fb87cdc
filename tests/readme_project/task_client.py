"""Run within the README's project: a client that takes tasks. Each line of standard input is a request, and each line
of standard output its result, with the number of this process."""

import json
import os
import sys

import django

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.test.utils import setup_test_environment  # noqa: E402

from mcp_django.protocol.tasks import EXTENSION  # noqa: E402
from mcp_django.testing import MCPClient  # noqa: E402

setup_test_environment()
user = get_user_model().objects.get(username="ada")
client = MCPClient(user, capabilities={"extensions": {EXTENSION: {}}})
for line in sys.stdin:
    print(json.dumps({"pid": os.getpid(), **client.request(**json.loads(line))}), flush=True)
