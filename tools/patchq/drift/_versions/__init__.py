"""Two versions of an upstream: their trees, their statements, and the state of their comparison."""
