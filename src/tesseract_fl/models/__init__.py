"""Models, and the flat vector in which a model's parameters live."""
