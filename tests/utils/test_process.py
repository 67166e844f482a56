"""Settings of the command's own process."""

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from unida.utils import process


class FakeLibrary:
    """Stands for the C library; notes the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def mallopt(self, option: int, value: int) -> int:
        self.calls.append((option, value))
        return 1


@pytest.fixture(autouse=True)
def no_user_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in process._USER_SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
    return fake


def test_large_blocks_are_used_again(library: FakeLibrary) -> None:
    process.reuse_memory()
    assert dict(library.calls) == {-3: 2**30, -1: 2**31 - 1}


@pytest.mark.parametrize("name", process._USER_SETTINGS)
def test_user_settings_stay(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "131072")
    process.reuse_memory()
    assert library.calls == []


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class WithoutMallopt:
        def __getattr__(self, name: str) -> None:
            calls.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: WithoutMallopt())
    process.reuse_memory()
    assert calls == ["mallopt"]


FAULTS = """
import ctypes, resource, sys
from unida.utils.process import reuse_memory
if sys.argv[1:]:
    reuse_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(1 << 26)
before = faults()
for _ in range(6):
    bytearray(1 << 26)
print(faults() - before)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="glibc alone has the call",
)
def test_fewer_pages_are_requested(tmp_path: Path) -> None:
    """64 MiB, six times: the pages are requested once, not every time."""
    script = tmp_path / "faults.py"
    script.write_text(FAULTS)

    def faults(*given: str) -> int:
        done = subprocess.run(
            [sys.executable, script, *given], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert faults("reuse") < faults() / 3


class TestSharingCores:
    @pytest.fixture(autouse=True)
    def _two_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in process._SPIN_SETTINGS:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("torch.get_num_threads", lambda: 2)
        monkeypatch.setattr(process, "_SECONDS_WATCHED", 0.01)

    def watched(self, monkeypatch: pytest.MonkeyPatch, share: float) -> int:
        """How many teams are started where the thread has this share of a core."""
        started: list[int] = []
        looked = threading.Event()
        clock = [0.0]

        def passed() -> float:
            clock[0] += 1
            if clock[0] > 5:
                looked.set()
            return clock[0]

        monkeypatch.setattr(process.time, "perf_counter", passed)
        monkeypatch.setattr(process.time, "clock_gettime", lambda _: share * clock[0])
        monkeypatch.setattr(process, "_start_team", lambda: (started.append(1), looked.set()))
        with process.sharing_cores():
            assert looked.wait(60)
        return len(started)

    def test_a_second_team_is_started_once_beside_other_programs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.watched(monkeypatch, 0.5) == 1

    def test_alone_nothing_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.watched(monkeypatch, 0.95) == 0

    @pytest.mark.parametrize("name", process._SPIN_SETTINGS)
    def test_a_choice_of_the_user_stays(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, "1")
        monkeypatch.setattr(process, "_watch", lambda *args: pytest.fail("watched"))
        with process.sharing_cores():
            pass
