"""Slow oracles, written from the definitions with plain loops. They import nothing from the package."""
