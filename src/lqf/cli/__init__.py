"""The command line: `lqf fit`, `evaluate`, `predict`, `explain`, `audit`, `summarize`, `report`, ….

One file per command, each with `SUMMARY`, `add_options`, `run` (computes a JSON object) and `show` (says it to a
person). torch is imported inside `run`, so that `lqf --help` answers at once.
"""

from lqf.cli.app import main

__all__ = ["main"]
