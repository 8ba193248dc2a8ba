"""The benchmark of memory with so few conversations that a test can wait for them."""

from benchmarks import memory

memory.CONVERSATIONS = 4
BENCHMARK = memory.BENCHMARK
