"""Changes of the data, from the signal of the ORM to the streams of subscribers, in this process and in others."""
