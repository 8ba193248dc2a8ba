"""What things cost here, and what they cost elsewhere: `make bench` runs every file that has a `BENCHMARK`.

`harness` says what a benchmark declares, and measures it; `process` and `worker` are the two ends of a side's process;
`table`, `picture` and `page` show what came of it. `loops` has one conversation in several agent loops, `messages_api`
stands in for a model's API.
"""
