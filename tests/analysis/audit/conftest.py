"""The model whose training data have one wrong label and one copy."""

from audited import folder, model  # noqa: F401 - fixtures
