"""Tokens: a secret that the processes of an execution share, and proofs of knowing it [X].

A token is never sent. Each side of a new connection draws a number for this connection alone, and the other
one answers with an HMAC (SHA-256) over both numbers and what it says of itself, so that a recorded answer is
of no use for another connection, and one side's not for the other's.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets

from collapipe_env.errors import CollaPipeError, shown

SHORTEST_TOKEN = 16
"""Characters of a token, at least, where other machines can connect."""


class TokenError(CollaPipeError):
    """A token is missing, or too short, where other machines can connect."""


def new_token() -> str:
    """Return a token that nobody can guess: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def new_nonce() -> str:
    """Return a number that is used once, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def proof(token: str, *said: str) -> str:
    """Return the proof that its sender knows a token.

    Args:
        token: The token.
        said: Everything that the proof vouches for, in order.

    Returns:
        The HMAC, as hexadecimal digits.
    """
    # As a JSON list, in which no text can pass for two.
    return hmac.new(token.encode(), json.dumps(said).encode(), hashlib.sha256).hexdigest()


def proven(claimed: object, token: str, *said: str) -> bool:
    """Return whether a proof is right, in a time that says nothing about the right one.

    Args:
        claimed: The proof as it came from the other side.
        token: The token of this side.
        said: What it must vouch for, in order.
    """
    return isinstance(claimed, str) and hmac.compare_digest(claimed.encode(), proof(token, *said).encode())


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    Args:
        host: Address of a network interface, or its name. Any name but ``localhost`` counts as reachable.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_token(token: str, host: str) -> None:
    """Refuse to listen where other machines can connect without a token that they have to know.

    Args:
        token: The token; may be empty on this machine alone.
        host: Address that is listened at.

    Raises:
        TokenError: If the address is not loopback and the token is missing or short.
    """
    if len(token) < SHORTEST_TOKEN and not is_loopback(host):
        held = f"has {len(token)} characters" if token else "is missing"
        raise TokenError(
            f"other machines can connect to the address {shown(host)}, and the token {held}: give a token of "
            f"at least {SHORTEST_TOKEN} characters, the same one to all processes, or listen at 127.0.0.1"
        )
