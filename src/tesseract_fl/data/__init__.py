"""Data sets, one reader each, and how they are dealt out to clients."""
