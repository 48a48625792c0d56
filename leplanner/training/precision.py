"""Which number format and device to compute in: measured, not assumed."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from functools import lru_cache
from typing import Any

import torch
from torch import nn


def pick_device(requested: str = "auto") -> torch.device:
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available = [name for name, there in present.items() if there]
    if requested == "auto":
        return torch.device(available[0])
    if requested.split(":")[0] not in available:
        raise ValueError(f"Device {requested!r} was requested; this machine has {', '.join(available)}.")
    return torch.device(requested)


def keep_freed_memory() -> None:
    """Training on a CPU frees and asks again for the same large tensors every step. glibc returns each to the
    system, and the page faults of getting it back cost a fifth of a step; this tells it to keep them."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            mmap_threshold, trim_threshold = -3, -1
            libc.mallopt(mmap_threshold, 1 << 30)
            libc.mallopt(trim_threshold, (1 << 31) - 1)


def matmul_gflops(dtype: torch.dtype, size: int = 768, repeats: int = 3) -> float:
    """What one large matrix multiplication reaches on the CPU with the current threads."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


@lru_cache(maxsize=4)
def _bf16_is_faster_on_cpu(threads: int) -> bool:
    # a small product first: without hardware support bf16 is hundreds of times slower
    if matmul_gflops(torch.bfloat16, 192, 1) < 0.5 * matmul_gflops(torch.float32, 192, 1):
        return False
    return matmul_gflops(torch.bfloat16) > 1.2 * matmul_gflops(torch.float32)


def pick_precision(requested: str, device: torch.device) -> str:
    """'fp32' or 'bf16'; 'auto' takes bf16 where it is faster."""
    if requested not in ("auto", "fp32", "bf16"):
        raise ValueError(f"precision must be auto, fp32 or bf16; got {requested!r}.")
    if requested != "auto":
        return requested
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    if device.type == "cpu" and _bf16_is_faster_on_cpu(torch.get_num_threads()):
        return "bf16"
    return "fp32"


def round_to_half(module: nn.Module) -> None:
    """Every weight to the nearest number that fp16 holds; computing stays in fp32. Files are then half as large, and
    what is stored is exactly what was measured."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            if not tensor.half().isfinite().all():
                raise FloatingPointError(
                    f"{name} holds numbers that fp16 cannot: the largest is {tensor.abs().max():.3g}."
                )
            tensor.copy_(tensor.half())


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()
