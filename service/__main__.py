"""`python -m service` is `amplifier-slack`."""

from service.cli.main import main

main(prog_name="amplifier-slack")
