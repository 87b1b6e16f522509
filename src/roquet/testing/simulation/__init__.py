"""The whole cluster simulated: one seed is one course of events, and the checks that judge it."""
