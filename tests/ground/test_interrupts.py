"""Signals that come at a bad moment are heard a moment later."""

import signal
import sys
import threading
from pathlib import Path

import pytest
from stable_baselines3.common.logger import TensorBoardOutputFormat

from collapipe_env.agents.learned.curves import curves_logger
from collapipe_env.ground.interrupts import SIGNALS, uninterrupted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without a signal")


class Stopped(BaseException):
    """Exception that the handlers of these tests raise."""


@pytest.fixture(autouse=True)
def handlers():
    def stop(number: int, _: object) -> None:
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_after_the_work(number: int, handlers) -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(number)
            done.append("after the signal")

    with pytest.raises(Stopped, match=str(int(number))):
        work()
    assert done
    assert {signal.getsignal(each) for each in SIGNALS} == {handlers}


def test_without_a_signal_and_after_an_error_the_handlers_are_back(handlers) -> None:
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is not handlers
    with pytest.raises(ZeroDivisionError), uninterrupted():
        1 / 0  # noqa: B018
    assert {signal.getsignal(each) for each in SIGNALS} == {handlers}


def test_other_threads_leave_signals_alone(handlers) -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [handlers]


@pytest.mark.parametrize("method", ["write", "close"])
def test_curves_are_written_and_closed_whole(method: str, tmp_path: Path, monkeypatch) -> None:
    logger = curves_logger(tmp_path / "curves")
    original, ended = getattr(TensorBoardOutputFormat, method), []

    def signalled(self, *arguments: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        original(self, *arguments)
        ended.append(method)

    monkeypatch.setattr(TensorBoardOutputFormat, method, signalled)
    logger.record("loss", 1.0)
    with pytest.raises(Stopped):
        logger.dump(1) if method == "write" else logger.close()
    assert ended == [method]
    monkeypatch.undo()
    logger.close()
    (file,) = (tmp_path / "curves").iterdir()
    assert (b"loss" in file.read_bytes()) == (method == "write")
