"""`python -m lqf` is `lqf`."""

import sys

from lqf.cli import main

if __name__ == "__main__":
    sys.exit(main())
