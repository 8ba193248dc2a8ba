"""The benchmark of memory with so few conversations that a test can wait for them."""

from benchmarks import memory

memory.CONVERSATIONS = 2
BENCHMARK = memory.BENCHMARK
