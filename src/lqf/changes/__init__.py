"""A fitted model changed to the exact optimum of another problem: add, forget, other strengths, constraints."""
