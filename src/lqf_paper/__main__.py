"""`python -m lqf_paper NAME…` is `lqf paper NAME…`, also where the packages were not installed."""

import sys

from lqf.cli.app import main
from lqf_paper import cli

if __name__ == "__main__":
    sys.exit(main(["paper", *sys.argv[1:]], more={"paper": cli}))
