"""Rows of an audit's tables: dicts whose keys are the columns of the CSV files, and the samples' numbers."""

from __future__ import annotations

from typing import TypedDict


class Suspect(TypedDict):
    """A training sample, and how far leave-one-out contradicts its label."""

    rank: int
    index: int
    id: str
    label: str
    predicted: str
    margin: float
    label_probability: float
    predicted_probability: float
    suspicious: bool


class Pair(TypedDict):
    """Two training samples that are nearly the same to the model."""

    similarity: float
    index: int
    id: str
    other_index: int
    other: str
    label: str
    other_label: str
    same_file: bool


class Informative(TypedDict):
    """A training sample, and how much it informs the model."""

    rank: int
    index: int
    id: str
    label: str
    information: float
    rank_in_class: int
    of_class: int


class Confused(TypedDict):
    """A class that leave-one-out takes for another one."""

    label: str
    predicted: str
    n: int
    share: float
