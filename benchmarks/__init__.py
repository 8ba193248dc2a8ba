"""What things cost here, and what they cost elsewhere: `make bench` runs every file that has a `BENCHMARK`."""
