"""Names of what a model's folder has in it."""

from __future__ import annotations

FORMAT = "lqf-model"
VERSION, STACKED = 1, 2
"""Versions of the format: of one model, and of a stack, which older readers do not know."""
DESCRIPTION, WEIGHTS, SAMPLES = "model.json", "weights.safetensors", "samples.csv"
BACKBONE, RUNGS, QUESTIONS = "backbone.safetensors", "rungs.safetensors", "questions.safetensors"
CARD = "README.md"
