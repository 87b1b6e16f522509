"""Access: the users and policies of a broker, in one file, and what they are changed by."""
