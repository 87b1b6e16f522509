"""What tests of brokers need, ours and our users'."""
