"""The endpoint on two network hosts of one machine, under faults: `python -m benchmarks.two_hosts --minutes 5`."""
