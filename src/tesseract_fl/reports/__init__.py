"""Tables and plots: they read results, they never run anything."""
