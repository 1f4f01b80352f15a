"""One rank's part of sharing memory; what takes several ranks is in tests/mpi/test_shared_memory.py."""

import os

import numpy as np
import pytest

from nnabla_torus.collectives import memory as module
from nnabla_torus.collectives.memory import PAGE, Memory, MemoryUnavailable


def pages_of(array):
    """The kernel's word on the mapping that holds an array's address: (permissions, name)."""
    address = array.ctypes.data
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions, _, _, _, *name = line.split(maxsplit=5)
            start, stop = (int(edge, 16) for edge in span.split("-"))
            if start <= address < stop:
                return permissions, (name or [""])[0].strip()
    raise AssertionError("unmapped")


def test_new_memory_is_shared_and_zero():
    memory = Memory(3 * PAGE)
    assert memory.array.nbytes == 3 * PAGE and not memory.array.any()
    permissions, name = pages_of(memory.array)
    assert permissions == "rw-s" and "nnabla_torus" in name
    memory.array[:] = 7
    memory.close()
    assert (memory.array == 7).all()  # closing ends the offer, not the memory


def test_pages_under_an_array_are_exchanged_and_given_back():
    array = np.arange(5 * PAGE, dtype=np.uint8)
    memory = Memory.under(array)
    assert memory.array.nbytes in (4 * PAGE, 5 * PAGE) and memory.array.ctypes.data % PAGE == 0
    assert pages_of(memory.array)[0] == "rw-s"
    assert (array == np.arange(5 * PAGE, dtype=np.uint8)).all()
    array[2 * PAGE] = 99
    assert memory.array[array.ctypes.data + 2 * PAGE - memory.array.ctypes.data] == 99
    memory.close()
    assert pages_of(array[2 * PAGE :])[0] == "rw-p"
    assert array[2 * PAGE] == 99 and (array[: 2 * PAGE] == np.arange(2 * PAGE, dtype=np.uint8)).all()
    memory.close()  # twice does no harm


def test_holds_is_exact():
    memory = Memory(PAGE)
    assert memory.holds(memory.array) and memory.holds(memory.array[5:9]) and memory.holds(memory.array[PAGE:])
    outside = np.zeros(8, np.uint8)
    assert not memory.holds(outside)
    whole = np.ctypeslib.as_array((module.ctypes.c_ubyte * (PAGE + 1)).from_address(memory.array.ctypes.data))
    assert not memory.holds(whole)


def test_an_array_without_a_whole_page_is_refused():
    with pytest.raises(MemoryUnavailable, match="no whole page"):
        Memory.under(np.zeros(100, np.uint8))


def test_a_lack_of_memory_is_told_before_it_is_used(monkeypatch):
    def lack(*_):
        raise OSError(28, "No space left on device")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(module.os, "posix_fallocate", lack)
    with pytest.raises(MemoryUnavailable, match="4096 B cannot be shared: No space left"):
        Memory(4096)
    assert len(os.listdir("/proc/self/fd")) == before


def test_only_x86_promises_the_order_of_writes(monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    with pytest.raises(MemoryUnavailable, match="not aarch64"):
        Memory(4096)


def test_nothing_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Memory(PAGE).close()
        Memory.under(np.zeros(3 * PAGE, np.uint8)).close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
