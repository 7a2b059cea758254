"""Checked settings of a federation's apps, as Flower passes them [X]."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collapipe_env.errors import shown
from collapipe_env.execution.addresses import host_and_port
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.tokens import TokenError, token_of_file
from collapipe_env.execution.transport.tcp import Address

RESULT_FILE, WEIGHTS_FILE, FAILED_FILE = "result.json", "weights.npz", "failed.json"
"""Files of the folder ``out``: figures of the rounds, the weights at the end, and the cause of a failure."""


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the run, from ``flwr run --run-config``; Flower itself refuses unknown ones.

    Attributes:
        scenario: Name or file of the scenario.
        scheduler: Name of the scheduler.
        seed: Seed of the episode.
        rounds: Rounds to play.
        bind: Host and port at which control units reach the head.
        token: Secret of the server and of control units.
        out: Folder of the results.
        patience_s: Longest wait for nodes, and for a round [s].
    """

    scenario: str
    scheduler: str
    seed: int
    rounds: int
    bind: Address
    token: str
    out: Path
    patience_s: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ServerSettings:
        """Read the settings.

        Raises:
            ExecutionError: If one is unknown, missing or wrong.
        """
        usual = {
            "scenario": "small",
            "scheduler": "dssra",
            "seed": 0,
            "rounds": 3,
            "bind": "127.0.0.1:0",
            "token-file": "",
            "out": "",
            "patience": 600.0,
        }
        given = _merged(usual, config, "--run-config")
        if not given["out"]:
            raise ExecutionError("--run-config has no out: name the folder for the results")
        host, port = _address(given["bind"], "--run-config")
        if not (given["rounds"] > 0 and given["patience"] > 0.0):
            raise ExecutionError(
                f"--run-config has rounds = {given['rounds']} and patience = {given['patience']}: use "
                "positive numbers"
            )
        return cls(
            scenario=given["scenario"],
            scheduler=given["scheduler"],
            seed=given["seed"],
            rounds=given["rounds"],
            bind=(host, port),
            token=_token(given["token-file"]),
            out=Path(given["out"]),
            patience_s=float(given["patience"]),
        )


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a node, from ``flower-supernode --node-config``.

    Attributes:
        cluster: Its cluster, from 0.
        bind: Host to listen at, by which the server reaches the node.
        token: Secret of the server and of control units.
    """

    cluster: int
    bind: str
    token: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ClientSettings:
        """Read the settings.

        Raises:
            ExecutionError: If one is unknown, missing or wrong.
        """
        given = _merged({"cluster": -1, "bind": "127.0.0.1", "token-file": ""}, config, "--node-config")
        if given["cluster"] < 0:
            raise ExecutionError("--node-config has no cluster: write cluster=0 for the first one, and so on")
        host, _ = _address(f"{given['bind']}:0", "--node-config")
        return cls(given["cluster"], host, _token(given["token-file"]))


def _merged(usual: Mapping[str, Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the given settings, completed by defaults; a node's settings for other apps are left out."""
    known = {name: given[name] for name in usual if name in given}
    for name, value in known.items():
        wanted = type(usual[name])
        number = wanted is float and type(value) is int
        if type(value) is not wanted and not number:
            raise ExecutionError(f"{where} has {name} = {shown(value)}: use a value such as {usual[name]!r}")
    return {**usual, **known}


def _address(text: str, where: str) -> Address:
    """Return host and port of ``HOST:PORT``."""
    address = host_and_port(text)
    if address is None:
        raise ExecutionError(
            f"{where} has bind = {shown(text)}: expected HOST:PORT, such as 192.168.1.5:29500"
        )
    host, port = address
    try:
        anywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        anywhere = False
    if anywhere:
        raise ExecutionError(
            f"{where} has bind = {shown(text)}, which other machines cannot connect to: give an "
            "address of this machine that they can reach"
        )
    return host, port


def _token(path: str) -> str:
    """Return the secret in a file; empty without a file."""
    try:
        return token_of_file(Path(path), "token-file") if path else ""
    except TokenError as error:
        raise ExecutionError(str(error)) from None
