"""Run conversations in simulated time."""

import sys

from simulated.campaign import main

if __name__ == "__main__":
    sys.exit(main())
