"""Access: which requests of a user are allowed, and which changes of users and policies."""
