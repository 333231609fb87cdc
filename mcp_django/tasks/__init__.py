"""Calls that outlive their request: what a worker runs, and the engines that hand it to one."""
