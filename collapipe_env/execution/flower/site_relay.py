"""Relay from a federated client to its cluster's site: brings the round's command, fetches the update."""

from __future__ import annotations

import queue
import secrets
from pathlib import Path

from collapipe_env.errors import CollaPipeError
from collapipe_env.execution.frames import Frame
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.files import read_regular

RELAY, FAILED = "relay", "failed"
"""Kinds of frames: where a relay listens, and a site that cannot go on."""
LARGEST_TOKEN = 1024
"""Largest token file [bytes]."""
_PREFIX = "relay-"


class SiteError(CollaPipeError):
    """A site does not answer, or cannot go on."""


def is_relay(name: str) -> bool:
    """Whether a peer is a relay, of which there is a new one for every message."""
    return name.startswith(_PREFIX)


def read_token(path: Path) -> str:
    """Secret of a token file.

    Raises:
        SiteError: The file cannot be read.
    """
    try:
        return read_regular(path, LARGEST_TOKEN).decode("utf-8").strip()
    except (OSError, ValueError) as error:
        raise SiteError(f"cannot read the token file {path} ({error}): put 32 letters or more in it") from None


def ask_site(command: Frame, cluster: int, site: Address, token: str, patience: float) -> Frame:
    """Bring a round's command to a site, and wait for its update.

    Args:
        command: The command.
        cluster: Number of the cluster.
        site: Host and port of the site.
        token: Secret that it shares.
        patience: Longest wait [s].

    Returns:
        The update.

    Raises:
        SiteError: The site is lost, cannot go on, or takes too long.
    """
    news: queue.SimpleQueue[Frame | str] = queue.SimpleQueue()
    name, place = f"c{cluster}", f"the site of cluster {cluster} at {site[0]}:{site[1]}"
    endpoint = TcpEndpoint(f"{_PREFIX}{secrets.token_hex(8)}", ("127.0.0.1", 0), token)
    try:
        endpoint.listen(lambda _, frame: news.put(frame), lambda _, why: news.put(why))
        endpoint.connect({name: site})
        host, port = endpoint.address
        endpoint.send(name, Frame(RELAY, meta={"host": host, "port": port}))
        endpoint.send(name, command)
        try:
            item = news.get(timeout=patience)
        except queue.Empty:
            raise SiteError(f"{place} has not answered for {patience:g} s: raise the patience, or look at its log") from None
        if isinstance(item, str):
            raise SiteError(f"{place} is lost ({item}): start it before the run, with the same token")
        if item.kind != "update":
            raise SiteError(f"{place} cannot go on: {item.meta.get('why', item.kind)}")
        return item
    finally:
        endpoint.close()
