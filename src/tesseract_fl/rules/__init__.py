"""Aggregation rules: one file per rule or close family, the contract in base.py."""
