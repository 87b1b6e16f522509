"""What the broker remembers besides the log, each a table saved as JSON."""
