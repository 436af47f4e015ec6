# mxkern/checkpoints/folders.py: folders in that of a model that its files name.
from __future__ import annotations

import os
from typing import NoReturn

from mxkern.checkpoints.source_folder import SourceFolder
from mxkern.files.json_object import json_list, json_object, shown
from mxkern.files.regular_file import RegularFile, named_errors, read_regular

MODULES, SPEAKERS = "modules.json", "speaker_embeddings_path.json"
# That programs look for without a file that names them: transformers' templates, and RAG's.
KNOWN_FOLDERS = ("additional_chat_templates", "question_encoder_tokenizer", "generator_tokenizer")
MOST_BYTES = 1 << 24


def folders_to_copy(
    folder: SourceFolder, folders: list[str], others: dict[str, RegularFile]
) -> list[str]:
    """The folders that the model's files name: those of sentence-transformers' modules and of
    Bark's voices; and those that programs look for."""
    named = [name for name in KNOWN_FOLDERS if name in folders]
    for name in (MODULES, SPEAKERS):
        if name in others:
            named += _named_folders(folder, others[name])
    return list(dict.fromkeys(named))


def _named_folders(folder: SourceFolder, file: RegularFile) -> list[str]:
    def fail(found: str, wanted: str) -> NoReturn:
        raise ValueError(f"{file.path}: {found}; expected {wanted}")

    with named_errors(file.path):
        data = read_regular(file, MOST_BYTES)
        if os.path.basename(file.path) == MODULES:
            modules = json_list(data, "it", "modules", fail)
            paths = [module.get("path") for module in modules if isinstance(module, dict)]
        else:
            voices = json_object(data, "it", "voices", fail)
            files = [voice for voice in voices.values() if isinstance(voice, dict)]
            paths = [os.path.dirname(str(path)) for voice in files for path in voice.values()]
    named = []
    for path in paths:
        if not isinstance(path, str) or path == "":
            continue  # the model's own folder
        parts = path.rstrip("/").split("/")
        if "\0" in path or not all(part not in ("", ".", "..") for part in parts):
            fail(f"it names the folder {shown(path)}", "one in the model's folder")
        if folder.has("/".join(parts)):  # those without a file are in no repository
            named.append("/".join(parts))
    return named
