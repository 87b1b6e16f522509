"""What operators ask of brokers, of name servers and of the members of a group."""
