"""Which network addresses may be connected to. The tables do not depend on the Python version, as `ipaddress` does."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_KINDS = {
    # Metadata services of clouds come first: some have addresses of another kind.
    "link-local or a metadata service": "169.254.0.0/16 168.63.129.16/32 100.100.100.200/32 fd00:ec2::/32 fd20:ce::/32 "
    "fe80::/10",
    "loopback": "127.0.0.0/8 ::1/128",
    "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7",
    "multicast": "224.0.0.0/4 ff00::/8",
    "reserved": "0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 "
    "240.0.0.0/4 2001::/23 2001:db8::/32 2002::/16 3fff::/20",
}
_NETWORKS = [(ip_network(each), kind) for kind, networks in _KINDS.items() for each in networks.split()]
_ALLOWED_BY_CONFIGURATION = {"loopback", "private"}
_GLOBAL_IPV6 = IPv6Network("2000::/3")
# An IPv4 address is in the last 32 bits: mapped addresses, and NAT64.
_EMBEDDING = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
# ISATAP: bits 32 to 63 of the address of an interface; an IPv4 address follows. The second is for global addresses.
_ISATAP = (0x00005EFE, 0x02005EFE)


def refused_kind(address: str, *, allow_private: bool) -> str:
    """Return the kind of an address that must not be connected to, such as "loopback"; blank: it may be.

    `allow_private` allows private and loopback addresses, but no metadata services.

    Raises:
        ValueError: the text is no IP address.
    """
    kind = _kind(ip_address(address.partition("%")[0]))
    return "" if allow_private and kind in _ALLOWED_BY_CONFIGURATION else kind


def _kind(address: IPv4Address | IPv6Address) -> str:
    for network, kind in _NETWORKS:
        if address in network:
            return kind
    if isinstance(address, IPv4Address):
        return ""
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _EMBEDDING):
        return _kind(last)
    if address not in _GLOBAL_IPV6:
        return "reserved"
    return _kind(last) if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP else ""
