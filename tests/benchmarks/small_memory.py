"""The benchmark of memory with fewer conversations, but enough that what they share weighs little in each."""

from benchmarks import memory

memory.CONVERSATIONS = 12
BENCHMARK = memory.BENCHMARK
