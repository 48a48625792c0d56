"""Trials, the runner that every method goes through, and paired statistics."""
