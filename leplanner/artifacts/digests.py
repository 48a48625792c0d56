"""Content digests: the identity of bytes, values and weights, however they are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .files import plain


def digest_bytes(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def digest_json(value: Any) -> str:
    return digest_bytes(json.dumps(value, sort_keys=True, default=plain).encode())


def digest_tensors(tensors: Mapping[str, Any]) -> str:
    """Of names, types, shapes and values."""
    parts: list[bytes] = []
    for name in sorted(tensors):
        array = tensors[name].detach().cpu().contiguous().numpy()
        parts += [name.encode(), str(array.dtype).encode(), str(array.shape).encode(), array.tobytes()]
    return digest_bytes(*parts)
