import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gearshift.ir.roofline import Caches, Roofline
from gearshift.ir.work import Work
from gearshift.observe.hal import (
    Bound,
    check_counters,
    measure_roofline,
    model_traffic,
)
from gearshift.observe.hal.blas import FORMS, _openblas, one_blas_thread
from gearshift.observe.hal.caches import find_caches
from gearshift.observe.hal.memory_model import ModelledMemory, Traffic
from tests.observe.hal.machines import write_cache

KIB, MIB = 1 << 10, 1 << 20
SIDE, TURNS = 1024, 20


@pytest.fixture(scope="module")
def roofline() -> Roofline:
    return measure_roofline(num_threads=1)


def sweep(set_bytes: int) -> Work:
    """Really reads a set of this size again and again, and says how long it took."""
    data = np.ones(set_bytes // 4, np.float32)
    times = max(4, 64 * MIB // set_bytes)
    repeated = np.broadcast_to(data, (times, data.size))
    start_s = time.perf_counter()
    np.maximum.reduce(repeated, axis=1)
    seconds = time.perf_counter() - start_s
    moved = float(times * data.nbytes)
    return Work(flops=moved / 4, moved_bytes=moved, set_bytes=data.nbytes, seconds=seconds)


def values(traffic: Traffic) -> tuple[float, float, float, float]:
    metrics = (
        traffic.l1_hit_share,
        traffic.l2_hit_share,
        traffic.l3_hit_share,
        traffic.dram_bytes_s,
    )
    assert {metric.source for metric in metrics} == {"modelled"}
    l1, l2, l3, dram = (metric.value or 0.0 for metric in metrics)
    return l1, l2, l3, dram


@pytest.mark.capability("core.hal")
def test_a_cache_resident_kernel_is_told_from_a_thrashing_one(roofline: Roofline) -> None:
    resident = values(model_traffic(sweep(16 * KIB), roofline))
    beyond_bytes = max(256 * MIB, 2 * roofline.caches.l3_bytes)
    thrashing = values(model_traffic(sweep(beyond_bytes), roofline))
    assert resident[0] > 0.9
    assert resident[2] > 0.9
    assert resident[3] < 0.1 * roofline.dram_bytes_s
    assert thrashing[0] < 0.5
    assert thrashing[2] < resident[2] - 0.2
    assert thrashing[3] > 1e8
    assert thrashing[3] <= roofline.dram_bytes_s * 1.001


def test_the_roofline_falls_from_level_to_level_and_takes_little_time(roofline: Roofline) -> None:
    r = roofline
    assert r.l1_bytes_s >= r.l2_bytes_s >= r.l3_bytes_s >= r.dram_bytes_s > 1e8
    assert r.peak_flops_s > 1e9
    assert r.took_s < 2
    assert Roofline.from_dict(json.loads(json.dumps(r.to_dict()))) == r


def test_the_peak_is_what_a_large_product_reaches() -> None:
    matrix, took_s = torch.ones(SIDE, SIDE), []
    for _ in range(TURNS):
        start_s = time.perf_counter()
        torch.mm(matrix, matrix)
        took_s.append(time.perf_counter() - start_s)
    flops_s = 2 * SIDE**3 / min(took_s)
    assert 0.5 < flops_s / measure_roofline().peak_flops_s < 1.5


def test_a_product_is_kept_to_its_own_thread_for_as_long_as_that_is_asked_for() -> None:
    library, form = _openblas()
    if library is None:
        pytest.skip("numpy multiplies by another library")
    assert form in FORMS
    num_threads = getattr(library, form.format("get"))
    before = num_threads()
    with one_blas_thread() as alone:
        assert alone
        assert num_threads() == 1
    assert num_threads() == before


ROOF = Roofline(
    num_threads=2,
    caches=Caches(l1_bytes=32 * KIB, l2_bytes=512 * KIB, l3_bytes=32 * MIB, origin="a test"),
    peak_flops_s=1e11,
    l1_bytes_s=1e11,
    l2_bytes_s=5e10,
    l3_bytes_s=2e10,
    dram_bytes_s=1e10,
    took_s=0.0,
)


def work(*, flops: float = 0.0, moved: float = 1e9, set_bytes: float, seconds: float) -> Work:
    return Work(flops=flops, moved_bytes=moved, set_bytes=set_bytes, seconds=seconds)


def test_a_set_larger_than_a_cache_finds_in_it_what_fits() -> None:
    l1, l2, l3, dram = values(model_traffic(work(set_bytes=64 * MIB, seconds=1.0), ROOF))
    assert (l1, l2, l3) == pytest.approx((1 / 1024, 1 / 64, 1 / 2))
    assert dram == pytest.approx(5e8)


def test_what_came_faster_than_memory_can_deliver_came_from_nearer() -> None:
    l1, l2, l3, dram = values(model_traffic(work(set_bytes=1e12, seconds=0.04), ROOF))
    assert dram == pytest.approx(ROOF.dram_bytes_s)
    assert l3 == pytest.approx(0.6)
    assert (l1, l2) == pytest.approx((0.0, 0.2), abs=1e-3)


def test_a_region_is_bound_by_what_takes_longer() -> None:
    streaming = work(flops=1e8, set_bytes=1e9, seconds=0.2)
    dense = work(flops=1e12, set_bytes=1e6, seconds=11.0)
    assert model_traffic(streaming, ROOF).bound is Bound.MEMORY
    assert model_traffic(dense, ROOF).bound is Bound.COMPUTE
    nothing = model_traffic(work(moved=0.0, set_bytes=0.0, seconds=0.0), ROOF)
    assert nothing.bound is None
    assert nothing.l1_hit_share.value is None


def test_counters_model_the_work_they_are_told_of_and_no_more() -> None:
    memory = ModelledMemory(roofline=ROOF)
    assert memory.read(0.0)["memory.dram_bytes_s"].value is None
    memory.note(work(set_bytes=64 * MIB, seconds=1.0))
    memory.note(work(set_bytes=16 * KIB, seconds=1.0))
    readings = memory.read(1.0)
    assert readings["memory.dram_bytes_s"].value == pytest.approx(2.5e8)
    assert readings["cache.l3_hit_share"].value == pytest.approx(0.75)
    assert memory.read(2.0)["cache.l3_hit_share"].value is None
    check_counters(memory, now_s=3.0)
    check_counters(ModelledMemory(roofline=None))


def test_cache_sizes_come_from_sysfs_else_from_elsewhere_and_say_so(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, 1, "Data", "48K")
    write_cache(tmp_path, 1, 1, "Instruction", "64K")
    write_cache(tmp_path, 2, 2, "Unified", "2M")
    partly = find_caches(sys=tmp_path)
    assert (partly.l1_bytes, partly.l2_bytes) == (48 * KIB, 2 * MIB)
    assert partly.l3_bytes > 0
    assert partly.origin != "sysfs"
    write_cache(tmp_path, 3, 3, "Unified", "16384K")
    assert find_caches(sys=tmp_path).l3_bytes == 16 * MIB
    assert find_caches(sys=tmp_path).origin == "sysfs"
