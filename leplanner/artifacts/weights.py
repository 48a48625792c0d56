"""Weights as safetensors: written without loss, read strictly."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .files import atomic_path


def write_safetensors(path: Path, module: nn.Module) -> None:
    """In fp16 where that holds every number exactly (`round_to_half`), else as they are."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    if all(tensor.half().to(tensor.dtype).equal(tensor) for tensor in floats.values()):
        tensors |= {name: tensor.half() for name, tensor in floats.items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}). Copy it again, or make it again.") from error


def load_strictly(model: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Every tensor of the model, no other, of the same shape, finite; or an error that lists what differs."""
    expected = model.state_dict()
    problems = [f"missing: {name}" for name in expected if name not in tensors]
    problems += [f"unexpected: {name}" for name in tensors if name not in expected]
    for name in expected.keys() & tensors.keys():
        if expected[name].shape != tensors[name].shape:
            problems.append(f"shape of {name}: {tuple(tensors[name].shape)}, expected {tuple(expected[name].shape)}")
        elif tensors[name].is_floating_point() and not tensors[name].isfinite().all():
            problems.append(f"not finite: {name}")
    if problems:
        listed = "\n  ".join(problems[:20]) + (f"\n  and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise ValueError(f"The weights in {source} do not fit the model:\n  {listed}")
    model.load_state_dict(tensors, strict=True)
