"""Federated training of many clients in one process."""
