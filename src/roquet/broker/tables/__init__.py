"""Tables: the state of the broker besides the log, each saved as JSON."""
