"""`lqf demo`: defects of solar cells from 400 labelled images, with every number measured, and a page of results."""

from lqf.demo.run import run_demo
from lqf.demo.text import show

__all__ = ["run_demo", "show"]
