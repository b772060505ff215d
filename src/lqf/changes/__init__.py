"""Changes of a fitted model, each to the exact optimum of the changed problem: add, forget, other strengths, constraints."""
