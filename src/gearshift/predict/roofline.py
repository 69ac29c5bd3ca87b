"""The least time work can take on this machine, by its measured roofline.

Must not know plans or backends. No backend reaches it; `calibration` knows how far each is off.
"""

from gearshift.ir.roofline import Roofline
from gearshift.ir.work import Work


def least_s(work: Work, roofline: Roofline, threads: int) -> float:
    return max(compute_s(work, roofline, threads), memory_s(work, roofline))


def compute_s(work: Work, roofline: Roofline, threads: int) -> float:
    """Arithmetic divides over threads."""
    share = min(1.0, threads / roofline.num_threads)
    return work.flops / (roofline.peak_flops_s * share)


def memory_s(work: Work, roofline: Roofline) -> float:
    """Bytes come from the nearest level that holds them all."""
    near = work.set_bytes <= roofline.caches.l3_bytes
    return work.set_bytes / (roofline.l3_bytes_s if near else roofline.dram_bytes_s)
