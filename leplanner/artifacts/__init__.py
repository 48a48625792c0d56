"""What every artifact shares: atomic writes, digests, strict weights, locks, and a record of where it came from."""

from .configs import from_dict, other_values, to_dict
from .digests import digest_bytes, digest_json, digest_tensors
from .files import atomic_path, read_json, read_lines, write_arrays, write_json
from .hub import fetch_folder
from .lock import folder_lock
from .provenance import command_line, provenance
from .store import check_digest, is_whole, load_modules, migration, read_artifact, write_artifact
from .weights import load_strictly, read_safetensors, write_safetensors

__all__ = [
    "atomic_path",
    "check_digest",
    "command_line",
    "digest_bytes",
    "digest_json",
    "digest_tensors",
    "fetch_folder",
    "folder_lock",
    "from_dict",
    "is_whole",
    "load_modules",
    "load_strictly",
    "migration",
    "other_values",
    "provenance",
    "read_artifact",
    "read_json",
    "read_lines",
    "read_safetensors",
    "to_dict",
    "write_arrays",
    "write_artifact",
    "write_json",
    "write_safetensors",
]
