"""A fitted model as one ordinary network: for other programs, servers and devices, without this library."""

from lqf.export.files import Exported, export
from lqf.export.module import ExportedModel, as_module

__all__ = ["Exported", "ExportedModel", "as_module", "export"]
