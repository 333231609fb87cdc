"""Threads, timers, the shared cache and rate limits: they run calls without knowing about calls."""
