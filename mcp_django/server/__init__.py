"""One call in, one reply out; sessions and streams; the methods of the protocol."""
