"""As the tests of the transport, which most timers are of."""

from tests.unit.transports.http.conftest import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
