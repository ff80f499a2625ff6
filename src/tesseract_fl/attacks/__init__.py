"""Attacks: one file per idea, the contract and what an attacker may see in base.py."""
