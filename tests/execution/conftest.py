"""Endpoints of TCP in this process, of which nothing is left after a test."""

import pytest
from transport_support import TOKEN, open_sockets, require_no_transport_threads, transport_threads

from collapipe_env.execution.transport.tcp import TcpEndpoint


@pytest.fixture
def endpoints():
    """Makes endpoints, and sees that nothing is left of them."""
    assert transport_threads() == []
    before, made = open_sockets(), []

    def make(name: str, **settings) -> TcpEndpoint:
        made.append(TcpEndpoint(name, **{"token": TOKEN} | settings))
        return made[-1]

    yield make
    for endpoint in made:
        endpoint.close()
    require_no_transport_threads()
    assert open_sockets() <= before  # what an earlier test has left may go meanwhile


@pytest.fixture
def network(endpoints):
    """Makes endpoints of the names given, which know each other's addresses."""

    def make(*names: str) -> list[TcpEndpoint]:
        made = [endpoints(name) for name in names]
        for endpoint in made:
            endpoint.connect({other.name: other.address for other in made})
        return made

    return make
