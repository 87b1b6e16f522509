"""Settings: the keys of broker.conf, how they are read, written and changed at run time."""
