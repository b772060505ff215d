"""Operations with derivatives of their own, faster than those that automatic differentiation finds."""
