"""The timer store: a wheel of delivery times and a log of the messages that wait for them."""
