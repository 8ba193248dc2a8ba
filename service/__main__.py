"""`python -m service` is `amplifier-slack`."""

from service.cli import main

main(prog_name="amplifier-slack")
