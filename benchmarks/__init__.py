"""Benchmarks of this project and of comparable ones. `make bench` runs every file that has a `BENCHMARK`.

`harness` declares and measures benchmarks; `process` and `worker` are the two ends of a worker process; `table`,
`picture` and `page` show the results. `loops` has one conversation in several agent loops; `messages_api` is a local
model API.
"""
