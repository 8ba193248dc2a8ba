"""Conversations in simulated time: `python tests/simulation --seeds 0:1000`, or one with its story: `--seeds 17`."""

import sys

from simulated.command import main

if __name__ == "__main__":
    sys.exit(main())
