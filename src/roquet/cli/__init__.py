"""Words on a command line."""
