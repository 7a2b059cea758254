"""Addresses as users write them: a host and a port."""

from __future__ import annotations

import ipaddress
import re
import socket

from collapipe_env.execution.transport.tcp import Address

_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65_535
_LONGEST_HOST = 255


def is_wildcard(host: str) -> bool:
    """Return whether a host stands for all addresses of a machine, such as ``0.0.0.0`` and ``::``."""
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # a name
        return False
    return any(ipaddress.ip_address(address[0]).is_unspecified for *_, address in found)


def host_and_port(text: str) -> Address | None:
    """Return the address that a text names; ``None`` if it names none.

    Args:
        text: ``HOST:PORT``; an IPv6 address may stand in brackets. Port 0 stands for any free port.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    fits = 0 < len(host) <= _LONGEST_HOST and host.isprintable() and " " not in host
    if not fits or not _PORT.fullmatch(port) or int(port) > _LAST_PORT:
        return None
    return host, int(port)
