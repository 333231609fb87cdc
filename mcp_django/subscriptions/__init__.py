"""Changes of data, on their way from the ORM's signals to subscribers' streams, in this and in other processes."""
