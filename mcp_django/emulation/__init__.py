"""The admin as it is: what its pages show, ask, save and log, for callers that are no browsers."""
