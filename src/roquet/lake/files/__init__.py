"""Files of tables: written by tasks, staged until a commit names them, durable on a disk."""
