"""Opening a directory: recovery after a stop or a crash, and the scrub of the older log."""
