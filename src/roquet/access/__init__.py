"""Access: signatures of requests checked, and what each one needs, before they are served."""
