"""Reading: queues pulled, messages handed to handlers, retries, and committed offsets."""
