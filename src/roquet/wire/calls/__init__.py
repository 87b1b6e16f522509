"""Every conversation of the protocol, one module each, request beside reply."""
