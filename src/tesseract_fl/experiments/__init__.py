"""Prepared experiments: what to run, and with which settings."""
