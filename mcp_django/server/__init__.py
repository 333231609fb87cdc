"""The kernel that turns a call into a reply; sessions and stored streams; the protocol's methods."""
