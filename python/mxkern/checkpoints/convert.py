# mxkern/checkpoints/convert.py: a model's checkpoint with quantized weights, a part of a tensor at
# a time.
from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mxkern.checkpoints.compressed_tensors import activations_to_store, scheme_to_store
from mxkern.checkpoints.conversion import Conversion
from mxkern.checkpoints.form import Form
from mxkern.checkpoints.gpt_oss import MODEL_TYPE, SCHEME, GptOssExperts
from mxkern.checkpoints.journal import Journal
from mxkern.checkpoints.linear import LinearLayers
from mxkern.checkpoints.outputs import outputs_of, planned
from mxkern.checkpoints.source import read_source
from mxkern.checkpoints.target import TargetFolder
from mxkern.files.progress import progress_bar
from mxkern.values.names import ScaleRule, SchemeName
from mxkern.values.options import options_of
from mxkern.values.scheme import Scheme


def convert_checkpoint(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    scheme: SchemeName | Scheme,
    *,
    scale_rule: ScaleRule = "rceil",
    ignore: Sequence[str] = (),
    activations: SchemeName | Scheme | None = None,
    experts: bool = False,
    resume: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> Conversion:
    """Writes a checkpoint whose linear layers have quantized weights, as compressed-tensors stores
    them and as transformers loads it; or one of gpt-oss whose experts have, as it was published.

    source       a folder as Hugging Face has it: config.json, and model.safetensors or the files
                 that model.safetensors.index.json names
    target       a folder that is not there, or empty
    scheme       "nvfp4", "mxfp4", "mxfp6_e2m3" or "mxfp8_e4m3"
    scale_rule   of the MX schemes: "rceil", "floor", "ceil", "even"
    ignore       regular expressions: modules with a match in their names stay as they are too
    activations  what programs that load it shall quantize the layers' inputs to as they come:
                 "mxfp8_e4m3" beside weights of mxfp8_e4m3 or mxfp6_e2m3, "mxfp4" beside those of
                 mxfp4; None: nothing
    experts      whether nvfp4 and mxfp8_e4m3 quantize experts.0 and so on, too. transformers does
                 not load these right, other programs may; otherwise mxfp8_e4m3 leaves them as they
                 are, and nvfp4 is refused
    resume       continues a conversion of the same source and options that target has a part of
    force        replaces an earlier conversion in target, where there is nothing else
    dry_run      writes nothing; the result says what would be written

    Quantized is every matrix NAME.weight of float32, float16 or bfloat16, but those of embeddings,
    norms, routers, vision towers and lm_head, and those whose rows are no whole blocks. Query, key
    and value, and gate and up, share nvfp4's tensor scale. Where one expert stays all do. Of a
    model of the type gpt_oss, with "mxfp4", it is the stacks of experts [E, K, N], and nothing
    else. A block with NaN or infinity becomes NaN, and is counted. Other files are copied, but for
    weights in other formats, and for folders that no configuration names. Where it fails the files
    that are finished stay in the target, and resume goes on from there.
    Returns a Conversion. Raises ValueError, before anything is written, for a checkpoint that is
    damaged, quantized already, or of layers that keep their weights transposed, and for links out
    of the source; and OSError.
    """
    source, target = os.fsdecode(source), os.fsdecode(target)
    kind = scheme_to_store("convert", scheme)
    inputs = activations_to_store("convert", kind, activations)
    options_of("convert", kind, scale_rule=scale_rule)  # for its errors
    if resume and force:
        raise ValueError("convert: resume and force are given; expected one of them")
    asked = _patterns(ignore)
    model = read_source(source)
    form: Form
    if model.config.get("model_type") == MODEL_TYPE and kind.name == SCHEME:
        if inputs is not None:
            raise ValueError(
                "convert: activations is given; expected None for gpt-oss in mxfp4, whose form "
                "says nothing of them"
            )
        form = GptOssExperts(model.files, kind, scale_rule, asked, model.config)
    else:
        form = LinearLayers(model.files, kind, scale_rule, asked, inputs, experts, model.config)
    entries = [entry for file in model.files.values() for entry in file.entries.values()]
    before = sum(entry.end - entry.begin for entry in entries)
    plans = {name: planned(file, form) for name, file in model.files.items()}
    after = sum(plan.bytes for own in plans.values() for plan in own)
    options = {
        "scheme": kind.name,
        "scale_rule": scale_rule,
        "ignore": list(ignore),
        "activations": inputs.name if inputs else None,
        "experts": experts,
    }
    facts = {name: [file.size, file.modified] for name, file in model.read.items()}
    with progress_bar("quantizing", before) as advance:
        outputs = outputs_of(model, form, plans, advance)
        journal = Journal(options, facts)
        folder = TargetFolder(target, journal, outputs, resume=resume, force=force)
        if dry_run:
            folder.check()
        else:
            folder.write()
    poisoned = {
        name: count for file in journal.files.values() for name, count in file["poisoned"].items()
    }
    return Conversion(
        kind,
        form.quantized,
        form.left,
        before,
        after,
        model.not_copied,
        poisoned,
        form.heads,
        form.apart,
        {output.name: output.size for output in outputs},
        form.loads_with,
        dry_run,
    )


def _patterns(ignore: Sequence[str]) -> list[re.Pattern[str]]:
    if isinstance(ignore, str):
        raise ValueError(f"convert: ignore is {ignore!r}; expected a sequence, [{ignore!r}]")
    try:
        return [re.compile(pattern) for pattern in ignore]
    except re.error as error:
        raise ValueError(f"convert: {error.pattern!r} is no regular expression: {error}") from None
