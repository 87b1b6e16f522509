"""Timer: messages with a delivery time, from the timer topic over the wheel to their queues."""
