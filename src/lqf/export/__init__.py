"""A fitted model as one ordinary network: for other programs, servers and devices, without this library."""

from lqf.export.files import SUFFIXES, Exported, export, sample_inputs
from lqf.export.module import ExportedModel, as_module

__all__ = ["SUFFIXES", "Exported", "ExportedModel", "as_module", "export", "sample_inputs"]
