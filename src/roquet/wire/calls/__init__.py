"""The calls of the protocol, by subject: requests with their replies and bodies."""
