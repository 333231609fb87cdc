"""Plugin of pytest (`-p tests.without_compiled_queries`): the ORM runs everything, whatever else a test sets."""

from dataclasses import replace

from mcp_django.conf.defaults import SETTINGS

SETTINGS["COMPILED_QUERIES"] = replace(SETTINGS["COMPILED_QUERIES"], default=False)
