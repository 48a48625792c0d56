"""Artifacts from elsewhere: a local folder, or a repository on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path


def fetch_folder(source: str | Path, patterns: tuple[str, ...], revision: str | None = None) -> Path:
    """A local folder as it is; the files of a Hugging Face repository `owner/name`, fetched
    once and kept in its cache."""
    path = Path(source)
    if path.is_dir():
        if revision is not None:
            raise ValueError(f"{source} is a folder, which has no revision {revision!r}; leave revision out.")
        return path
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(source)):
        raise ValueError(f"{source} is neither a folder nor a Hugging Face id like owner/name.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"{source} is not a local folder and could not be fetched from the Hugging Face hub "
            f"({type(error).__name__}: {error}). Check the id and the network, or download it "
            "elsewhere and give the folder."
        ) from error
