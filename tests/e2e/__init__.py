"""Tests through running servers: official clients, the conformance suite, the roads of the transport."""
