"""Addresses that `web_fetch` refuses: private ones in all forms, redirects to them, and those of no page."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_site import WebSite, http, web_site, web_tools

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.modules.tool_web.addresses import refused_kind
from orchestrator_interactive.modules.tool_web.download import Downloader, parsed_url, redirect_target
from orchestrator_interactive.modules.tool_web.http_client import WebError
from orchestrator_interactive.modules.tool_web.options import WebOptions
from orchestrator_interactive.modules.tool_web.tools import WebFetch

Fetch = Callable[..., Awaitable[ToolResult]]

REFUSED_ADDRESSES = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1"),  # noqa: S104
    "127.255.0.1",
    *("169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
    *("192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:10::1"),
    *("2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00::1"),
    *("fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "ff02::1", "ff0e::1"),
    *("2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1"),
]
PUBLIC_ADDRESSES = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
    ),
    *("2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2606:4700::5efe:8.8.8.8"),
]
NEVER_ALLOWED = [
    "169.254.169.254",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "fe80::1",
    "0.0.0.0",  # noqa: S104
    "224.0.0.1",
]

# `{port}` is the port of a server on 127.0.0.1.
LOOPBACK_URLS = {
    "plain": "http://127.0.0.1:{port}/",
    "other address": "http://127.9.9.9:{port}/",
    "name": "http://localhost:{port}/",
    "name in capitals": "http://LOCALHOST:{port}/",
    "name with a dot": "http://localhost.:{port}/",
    "name with two dots": "http://localhost..:{port}/",
    "address with a dot": "http://127.0.0.1.:{port}/",
    "decimal": "http://2130706433:{port}/",
    "hexadecimal": "http://0x7f000001:{port}/",
    "octal": "http://017700000001:{port}/",
    "octal parts": "http://0177.0.0.01:{port}/",
    "hexadecimal parts": "http://0x7f.0x0.0x0.0x1:{port}/",
    "mixed parts": "http://0x7f.0.1:{port}/",
    "two parts": "http://127.1:{port}/",
    "three parts": "http://127.0.1:{port}/",
    "zero": "http://0:{port}/",
    "zeros": "http://0.0.0.0:{port}/",
    "leading zeros": "http://127.000.000.001:{port}/",
    "overflowing part": "http://127.0.0.257:{port}/",
    "IPv6": "http://[::1]:{port}/",
    "IPv6 in full": "http://[0:0:0:0:0:0:0:1]:{port}/",
    "IPv6 unspecified": "http://[::]:{port}/",
    "mapped": "http://[::ffff:127.0.0.1]:{port}/",
    "mapped in hexadecimal": "http://[::ffff:7f00:1]:{port}/",
    "compatible": "http://[::127.0.0.1]:{port}/",
    "translated": "http://[::ffff:0:127.0.0.1]:{port}/",
    "NAT64": "http://[64:ff9b::7f00:1]:{port}/",
    "6to4": "http://[2002:7f00:1::]:{port}/",
    "Teredo": "http://[2001:0:7f00:1::]:{port}/",
    "zone": "http://[fe80::1%25lo]:{port}/",
    "fullwidth digits": "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11:{port}/",
    "circled digits": "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460:{port}/",
    "ideographic dots": "http://127\u30020\u30020\u30021:{port}/",
    "fullwidth name": "http://\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54:{port}/",
    "encoded dot": "http://127%2e0.0.1:{port}/",
    "encoded name": "http://%6cocalhost:{port}/",
    "soft hyphen": "http://local\u00adhost:{port}/",
    "zero-width space": "http://local\u200bhost:{port}/",
    "Kelvin sign": "http://loc\u212alhost:{port}/",
    "https": "https://127.0.0.1:{port}/",
}
REFUSED_URLS = {
    "file": "file:///etc/passwd",
    "file with a host": "file://localhost/etc/passwd",
    "gopher": "gopher://127.0.0.1:6379/_INFO",
    "data": "data:text/html,hello",
    "ftp": "ftp://example.com/x",
    "javascript": "javascript:alert(1)",
    "dict": "dict://127.0.0.1:11211/stat",
    "ldap": "ldap://127.0.0.1/",
    "ws": "ws://example.com/",
    "unix": "http+unix://%2Fvar%2Frun%2Fdocker.sock/info",
    "view-source": "view-source:http://example.com/",
    "blob": "blob:http://example.com/1",
    "no scheme": "example.com/page",
    "relative": "//example.com/page",
    "path": "/etc/passwd",
    "blank": " ",
    "no host": "http://",
    "no host, path": "http:///etc/passwd",
    "only dots": "http://.../",
    "user": "http://user@example.com/",
    "user and password": "http://user:secret@example.com/",
    "user that looks like a host": "http://example.com:80@127.0.0.1/",
    "encoded user": "http://a%40b@example.com/",
    "backslash before the host": "http:\\\\127.0.0.1\\",
    "backslash and user": "http://example.com\\@127.0.0.1/",
    "line feed": "http://example.com/\nHost: internal",
    "CRLF": "http://example.com/\r\nX-Injected: 1",
    "CRLF in the host": "http://example.com\r\nX-Injected: 1/",
    "tab in the scheme": "ht\ttp://127.0.0.1/",
    "NUL": "http://example.com/\x00",
    "NEL": "http://example.com/\x85x",
    "line separator": "http://example.com/\u2028x",
    "space in the host": "http://exam ple.com/",
    "bracket": "http://[::1",
    "brackets around a name": "http://[example]/",
    "port 0": "http://example.com:0/",
    "port too large": "http://example.com:65536/",
    "negative port": "http://example.com:-80/",
    "port that is no number": "http://example.com:abc/",
    "port of SSH": "http://example.com:22/",
    "port of Redis": "http://example.com:6379/",
    "port of mail": "http://example.com:25/",
    "too long": f"http://example.com/{'a' * 5_000}",
    "name too long": f"http://{'a' * 300}.example/",
    "label too long": f"http://{'a' * 64}.example/",
    "lone surrogate": "http://example.com/\ud800",
    "invalid punycode": "http://xn--\u2603/",
}
REDIRECTS = {
    "metadata": "http://169.254.169.254:{port}/latest/meta-data/",
    "metadata over IPv6": "http://[fd00:ec2::254]:{port}/",
    "metadata of Alibaba": "http://100.100.100.200:{port}/",
    "metadata of Azure": "http://168.63.129.16:{port}/",
    "mapped metadata": "http://[::ffff:169.254.169.254]:{port}/",
    "metadata as a number": "http://2852039166:{port}/",
    "metadata without a scheme": "//169.254.169.254:{port}/",
    "unspecified": "http://0.0.0.0:{port}/target",
    "multicast": "http://224.0.0.1:{port}/",
    "denied host": "http://denied.localhost:{port}/target",
    "other port": "http://127.0.0.1:22/target",
    "file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:{port}/target",
    "data": "data:text/html,hello",
    "javascript": "javascript:alert(1)",
    "user": "http://user:pass@127.0.0.1:{port}/target",
    "backslash": "http:\\\\127.0.0.1:{port}\\target",
    "tab": "http://127.0.0.1:{port}/\ttarget",
    "invalid host": "http://[::1/target",
    "invalid port": "http://127.0.0.1:99999/target",
    "blank": "",
    "itself": "/start",
    "too long": "/" + "a" * 6_000,
}


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert refused_kind(address, allow_private=False)


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses_are_not_refused(address: str) -> None:
    assert refused_kind(address, allow_private=False) == ""


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_in_an_ipv6_address_is_judged_as_itself(address: IPv4Address) -> None:
    kind = refused_kind(str(address), allow_private=False)
    for embedding in (f"::ffff:{address}", f"64:ff9b::{address}", f"2606:4700::5efe:{address}"):
        assert refused_kind(embedding, allow_private=False) == kind


@given(st.ip_addresses())
def test_no_address_passes_that_python_knows_as_not_global(address: IPv4Address | IPv6Address) -> None:
    if not refused_kind(str(address), allow_private=False) and not str(address).startswith(("::ffff:", "64:ff9b:")):
        assert address.is_global
        assert not address.is_multicast


@given(st.text() | st.from_regex(r"https?:[/\\\\]{0,3}[\w.@:%\[\]-]*(?:/.*)?"))
def test_any_text_is_an_address_of_a_page_or_refused(text: str) -> None:
    with suppress(WebError):
        url = parsed_url(text)
        assert url.scheme in {"http", "https"}
        assert url.raw_host
        assert url.raw_user is None
        assert "@" not in url.raw_authority


@pytest.mark.parametrize("address", NEVER_ALLOWED)
def test_metadata_services_stay_refused_if_private_addresses_are_allowed(address: str) -> None:
    assert refused_kind("192.168.0.1", allow_private=True) == refused_kind("::1", allow_private=True) == ""
    assert refused_kind(address, allow_private=True)


@pytest.mark.parametrize("url", LOOPBACK_URLS.values(), ids=LOOPBACK_URLS)
async def test_no_form_of_an_address_reaches_this_machine(site: WebSite, fetch: Fetch, url: str) -> None:
    site.pages["/"] = http("secret")
    result = await fetch(url.format(port=site.port), allow_private=False)
    assert not result.success
    assert site.requests == []


@pytest.mark.parametrize("url", REFUSED_URLS.values(), ids=REFUSED_URLS)
async def test_other_addresses_are_refused_with_a_sentence(url: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host}:{port} was resolved")

    # A name that is too long is known only to the resolver.
    options = WebOptions(robots=False)
    tool = WebFetch(options, Downloader(options, resolve) if "aaaa." not in url else Downloader(options))
    result = await tool.execute({"url": url})
    assert not result.success
    assert result.error is not None
    assert result.error["message"].endswith((".", "=1"))
    assert result.error["message"].isprintable()
    assert tool.label({"url": url})
    assert tool.canonical({"url": url})


@pytest.mark.parametrize("location", REDIRECTS.values(), ids=REDIRECTS)
async def test_a_redirect_is_checked_like_an_address(site: WebSite, fetch: Fetch, location: str) -> None:
    site.pages["/start"] = http(status="302 Found", Location=location.format(port=site.port))
    site.pages["/target"] = http("secret")
    result = await fetch("/start", deny=["denied.localhost"], timeout_s=5)
    assert not result.success
    assert set(site.requests) == {"/start"}
    assert len(site.requests) <= 6


async def test_redirects_are_followed_up_to_a_limit(site: WebSite, fetch: Fetch) -> None:
    for number in range(7):
        site.pages[f"/{number}"] = http(status="301 Moved Permanently", Location=f"/{number + 1}")
    site.pages["/5"] = http("There it is.", "text/plain")
    result = await fetch("/0")
    assert f"Page: {site.url}/5" in str(result.output)
    del site.pages["/5"]
    site.pages["/5"] = http(status="307 Temporary Redirect", Location="/6")
    assert "more than 5 redirects" in str(await fetch("/0"))


@pytest.mark.parametrize("location", ["http://example.com/x", "HTTP://other.example", "http://example.com:443/"])
def test_a_redirect_away_from_encryption_is_shown_and_not_followed(location: str) -> None:
    with pytest.raises(WebError, match=r"redirects to http://.* not encrypted"):
        redirect_target(parsed_url("https://example.com/"), location)


async def test_a_host_is_resolved_once_and_the_connection_goes_to_that_address(site: WebSite) -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    asked = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return next(answers)

    async with web_site("127.0.0.2", site.port) as other:
        site.pages["/"] = other.pages["/"] = http("Hello.", "text/plain")
        options = WebOptions(allow_private=True, robots=False, ports=frozenset({site.port}))
        tool = WebFetch(options, Downloader(options, rebinding))
        result = await tool.execute({"url": f"http://rebind.example:{site.port}/"})
        assert result.success, result
        assert asked == [("rebind.example", site.port)]
        assert f"Host: rebind.example:{site.port}" in site.heads[0]
        assert other.requests == []


@pytest.mark.parametrize(
    "answer", [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["2606:4700::1", "::1"], []], ids=str
)
async def test_one_private_address_of_a_host_is_enough_to_refuse_it(site: WebSite, answer: list[str]) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return answer

    options = WebOptions(robots=False, ports=frozenset({site.port}))
    result = await WebFetch(options, Downloader(options, resolve)).execute({"url": f"http://x.example:{site.port}/"})
    assert not result.success
    assert site.requests == []


async def test_each_redirect_is_resolved_and_checked_again(site: WebSite, logs) -> None:
    """The name leads to an allowed address first, and then to a metadata service."""
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])

    async def rebinding(_host: str, _port: int) -> list[str]:
        return next(answers)

    site.pages["/"] = http(status="302 Found", Location="/again")
    options = WebOptions(allow_private=True, robots=False, ports=frozenset({site.port}))
    result = await WebFetch(options, Downloader(options, rebinding)).execute({"url": f"http://x.example:{site.port}/"})
    assert "not a public host" in str(result)
    assert site.requests == ["/"]
    assert logs.tell("warning", "web.address_refused", "x.example", "169.254.169.254")


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("http://127.0.0.1:{port}/", False),
        ("http://localhost:{port}/", True),
        ("http://LocalHost.:{port}/", True),
        ("http://sub.localhost:{port}/", True),
        ("http://notlocalhost:{port}/", False),
        ("http://bad.localhost:{port}/", False),
        ("http://very.bad.localhost:{port}/", False),
    ],
)
async def test_allowed_and_denied_hosts_include_their_subdomains(site: WebSite, url: str, is_allowed: bool) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    site.pages["/"] = http("Hello.", "text/plain")
    hosts = {"allow": frozenset({"localhost"}), "deny": frozenset({"bad.localhost"})}
    options = WebOptions(allow_private=True, robots=False, ports=frozenset({site.port}), **hosts)
    result = await WebFetch(options, Downloader(options, resolve)).execute({"url": url.format(port=site.port)})
    assert result.success == is_allowed
    assert len(site.requests) == is_allowed


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow": ["https://example.com"]},
        {"allow": ["example.com/path"]},
        {"deny": [""]},
        {"deny": ["a b"]},
        {"ports": [0]},
        {"user_agent": "a\r\nCookie: b"},
        {"timeout_s": 0},
        {"search": {"engine": "brave"}},
        {"search": {"engine": "searxng"}},
        {"search": {"url": "file:///etc/passwd"}},
        {"search": {"engine": "tavily", "key": "a b"}},
        {"robot": True},
    ],
    ids=str,
)
async def test_wrong_options_are_refused_with_a_sentence(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"^tool-web: .*\.$"):
        await web_tools(**wrong)


@pytest.mark.parametrize("library", ["trafilatura", "protego"])
async def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleLoadError, match=rf"{library} is not installed.*pip install 'amplifier-slack\[web\]'"):
        await web_tools()


async def test_approval_rules_see_the_address_that_is_fetched() -> None:
    tool = (await web_tools())["web_fetch"]
    given = {"url": " HTTPS://EXAMPLE.com.:443/a/../b%20c?x=1#part ", "raw": True}
    assert tool.canonical(given) == {"url": "https://example.com./b%20c?x=1", "host": "example.com", "raw": True}
    assert (tool.side_effect_free, tool.destructive) == (True, False)
    assert parsed_url("http://xn--bcher-kva.example/") == parsed_url("http://b\u00fccher.example/")
