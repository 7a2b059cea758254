"""Tokens: a secret that the processes of an execution share, and proofs of knowing it [X].

A token is never sent. Each side of a new connection draws a number for this connection alone, and the other
side answers with an HMAC (SHA-256) over both numbers and its account of itself. So a recorded answer is of no
use for another connection, and one side's answer is of no use to the other.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
from pathlib import Path

from collapipe_env.ground.errors import CollaPipeError, shown
from collapipe_env.ground.files import read_regular

SHORTEST_TOKEN = 16
"""Fewest characters of a token from a file, or of one for an address that other machines can reach."""
LARGEST_TOKEN = 4096
"""Most bytes of a token's file."""
MAKE_ONE = 'python -c "import secrets; print(secrets.token_hex(32))" > secret'


class TokenError(CollaPipeError):
    """A token is missing, cannot be read, or is too short."""


def new_nonce() -> str:
    """Return a number that is used once, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def proof(token: str, *said: str) -> str:
    """Return the proof that its sender knows a token.

    Args:
        said: Everything that the proof vouches for, in order.

    Returns:
        The HMAC, as hexadecimal digits.
    """
    # As a JSON list, in which no text can pass for two.
    return hmac.new(token.encode(), json.dumps(said).encode(), hashlib.sha256).hexdigest()


def proven(claimed: object, token: str, *said: str) -> bool:
    """Return whether a proof is right; the time taken says nothing about the right one.

    Args:
        claimed: The proof as it came from the other side.
        token: The token of this side.
        said: What it must vouch for, in order.
    """
    right = proof(token, *said).encode()
    # A text may hold half a surrogate pair, which has no code.
    return isinstance(claimed, str) and hmac.compare_digest(claimed.encode(errors="replace"), right)


def token_of_file(path: Path) -> str:
    """Return the token in a file, without white space around it.

    Raises:
        TokenError: If it cannot be read, is not text, or has fewer than :data:`SHORTEST_TOKEN` characters.
    """
    remedy = f"put at least {SHORTEST_TOKEN} characters in it, such as by {MAKE_ONE}"
    try:
        token = read_regular(path, LARGEST_TOKEN).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise TokenError(f"--token-file {path} is not text: {remedy}") from None
    except OSError as error:
        raise TokenError(f"--token-file {path} cannot be read ({error.strerror}): {remedy}") from None
    if len(token) < SHORTEST_TOKEN:
        held = f"holds {len(token)} characters" if token else "is empty"
        raise TokenError(f"--token-file {path} {held}: {remedy}")
    return token


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
    """Refuse to listen where other machines can connect, unless they must know a token.

    Args:
        token: The token; may be empty if only this machine can connect.
        host: Address to listen at.

    Raises:
        TokenError: If the address is not loopback and the token is missing or short.
    """
    if len(token) < SHORTEST_TOKEN and not is_loopback(host):
        held = f"has {len(token)} characters" if token else "is missing"
        raise TokenError(
            f"other machines can connect to the address {shown(host)}, and the token {held}: give a token of "
            f"at least {SHORTEST_TOKEN} characters, the same one to all processes, or listen at 127.0.0.1"
        )
