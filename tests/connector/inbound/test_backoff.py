from __future__ import annotations

from connector.inbound.backoff import Backoff


def test_each_delay_is_longer_than_the_one_before_up_to_a_limit_with_a_random_part():
    longest, shortest = Backoff(0.1, 30, lambda: 1.0), Backoff(0.1, 30, lambda: 0.0)
    assert longest.delay_s(0) == 0
    delays = [longest.delay_s(failures) for failures in range(1, 12)]
    assert delays == sorted(delays)
    assert delays[:3] == [0.1, 0.2, 0.4]
    assert longest.delay_s(10_000) == 30
    assert all(shortest.delay_s(n) == longest.delay_s(n) / 2 for n in range(1, 12))
