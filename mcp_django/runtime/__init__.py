"""Threads, timers, the shared cache and counting: what runs calls, and knows nothing of them."""
