from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connector.inbound.signature import flaw_of, signature_of

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


def test_the_example_in_the_documentation_of_slack_is_valid():
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
        b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url="
        b"https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
        b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert flaw_of(SECRET, "1531420618", signature, body, 1_531_420_618) is None


@given(st.binary(max_size=200), st.integers(0, 10**9), st.data())
def test_a_signature_is_valid_for_one_body_and_one_secret(body, number, data):
    timestamp = str(number)
    signature = signature_of(SECRET, timestamp, body)
    assert flaw_of(SECRET, timestamp, signature, body, number) is None
    other = data.draw(st.binary(max_size=200).filter(lambda drawn: drawn != body))
    assert flaw_of(SECRET, timestamp, signature, other, number) is not None
    assert flaw_of(f"{SECRET}x", timestamp, signature, body, number) is not None


@given(st.text(max_size=80), st.text(max_size=80))
def test_arbitrary_headers_are_refused_without_an_error(timestamp, signature):
    assert flaw_of(SECRET, timestamp, signature, b"{}", 1_531_420_618) is not None
