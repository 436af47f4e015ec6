# tests/zoo/inputs.py: what a model of any kind takes.
from __future__ import annotations

import inspect
from typing import Any

from tiny import VOCABULARY

ROWS, TOKENS = 2, 12


def inputs_of(model: Any) -> dict[str, Any]:
    """Tokens where its forward takes some, and otherwise a picture or a sound."""
    import torch

    taken = inspect.signature(model.forward).parameters
    tokens = torch.arange(ROWS * TOKENS).reshape(ROWS, TOKENS) * 5 % (VOCABULARY - 8) + 3
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).to(model.dtype)

    def needed(name: str) -> bool:
        return name in taken and taken[name].default is inspect.Parameter.empty

    config = model.config
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", 32)
    sides = tuple(side) if isinstance(side, (list, tuple)) else (side, side)
    speaks = "input_ids" in taken
    two_towers = hasattr(model, "get_text_features") and hasattr(model, "get_image_features")
    given: dict[str, Any] = {
        name: tokens
        for name in ("input_ids", "decoder_input_ids", "qformer_input_ids")
        if needed(name) or (name in taken and name != "qformer_input_ids")
    }
    if "pixel_values" in taken and (not speaks or two_towers or needed("pixel_values")):
        channels = getattr(vision, "num_channels", 3)
        frames = [config.num_frames] if hasattr(config, "num_frames") else []
        given["pixel_values"] = noise(ROWS, *frames, channels, *sides)
    if needed("pixel_values_videos"):
        given["pixel_values_videos"] = noise(ROWS, 2, 3, *sides)
    if "input_features" in taken and not speaks:
        encoder = getattr(config, "encoder_config", getattr(config, "audio_config", config))
        bins = getattr(config, "num_mel_bins", getattr(encoder, "num_mel_bins", 80))
        for name in ("input_feat_per_channel", "feature_projection_input_dim"):
            bins = getattr(config, name, bins)
        if hasattr(config, "input_feat_per_channel"):
            given["input_features"] = noise(ROWS, 64, bins)
        elif hasattr(config, "max_source_positions"):  # as Whisper's
            given["input_features"] = noise(ROWS, bins, 2 * config.max_source_positions)
        else:
            given["input_features"] = noise(ROWS, 64, bins)
    elif "input_values" in taken and not speaks:
        given["input_values"] = noise(ROWS, 2000)
    if "use_cache" in taken:
        given["use_cache"] = False
    return given


def outputs_of(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Its tensors of floats by name, all of them finite."""
    import torch

    with torch.no_grad():
        torch.manual_seed(0)
        out = model(**given)
    found: dict[str, Any] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                found[name] = value
        elif isinstance(value, dict):
            for key, part in value.items():
                walk(f"{name}.{key}", part)
        elif isinstance(value, (tuple, list)):
            for i, part in enumerate(value):
                walk(f"{name}.{i}", part)

    walk("out", dict(out) if hasattr(out, "keys") else out)
    assert found, "no outputs"
    for name, value in found.items():
        assert torch.isfinite(value).all(), f"{name} is not finite"
    return found
