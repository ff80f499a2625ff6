"""An example federation."""
