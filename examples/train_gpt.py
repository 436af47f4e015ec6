"""examples/train_gpt.py: trains a small GPT with several recipes, and draws how its losses fall.

    python examples/train_gpt.py --steps 300 --recipes plain mxfp8 nvfp4 --output losses.png
    python examples/train_gpt.py --size large --steps 1000 --output losses.svg   # for a GPU

The text is the source of Python's standard library, byte by byte. All recipes begin with the same
weights and see the same batches. What is not quantized is bfloat16 on a GPU, and float32 on a CPU,
as PyTorch's bfloat16 products are slow on many of them.
"""

import argparse
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

import mxkern
import mxkern.torch as mxt

RECIPES = {
    "plain": None,
    "mxfp8": mxt.mxfp8(),
    "hybrid": mxt.mxfp8("hybrid"),
    "nvfp4": mxt.nvfp4(),
    "mxfp4": mxt.mxfp4(),
}


class Size(NamedTuple):
    width: int
    heads: int
    blocks: int
    context: int
    batch: int


SIZES = {"small": Size(128, 4, 2, 64, 12), "large": Size(768, 12, 8, 512, 32)}
SMALL = SIZES["small"]


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        width, self.heads = size.width, size.heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [batch, heads, tokens, width of a head]
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class GPT(nn.Module):
    """Logits [batch, tokens, 256] of bytes [batch, tokens]."""

    def __init__(self, size: Size = SMALL) -> None:
        super().__init__()
        self.size = size
        self.bytes = nn.Embedding(256, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.blocks))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 256, bias=False)
        self.init_weights()

    def init_weights(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            elif isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02 if module is self.head else 0.06)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, tokens: Any) -> Any:
        x = self.bytes(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def quantized(model: GPT, recipe: Any) -> GPT:
    """The model with its blocks trained by a recipe; the head stays as it is."""
    if recipe is None:
        return model
    return mxt.quantize_(model, mxt.by_name({"head": None, "*": mxt.Training(recipe)}))


def standard_library(size: int = 4_000_000) -> torch.Tensor:
    """The first bytes of the modules that Python ships, in the order of their names."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = b"".join(file.read_bytes() for file in files)
    return torch.frombuffer(bytearray(text[:size]), dtype=torch.uint8)


def loss_of(model: Any, text: torch.Tensor, batch: int, generator: torch.Generator) -> Any:
    """The mean loss of a batch of random places in the text."""
    device, context = next(model.parameters()).device, model.size.context
    starts = torch.randint(len(text) - context, (batch, 1), generator=generator)
    chunk = text[starts + torch.arange(context + 1)].long().to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu"):
        logits = model(chunk[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), chunk[:, 1:].flatten())


def train(
    recipe: Any, steps: int, *, size: Size = SMALL, device: str = "cpu", seed: int = 0
) -> Iterator[float]:
    """Yields the loss of each step, in nats a byte."""
    text, generator = standard_library(), torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = quantized(GPT(size).to(device), recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 30, 1 - 0.9 * step / steps)
    )
    for _ in range(steps):
        loss = loss_of(model, text, size.batch, generator)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        yield loss.item()


def draw(losses: dict[str, list[float]], output: Path, title: str = "") -> Path:
    """Writes a picture of the losses, as means of 20 steps; a table where Matplotlib is missing."""
    means = {
        name: torch.tensor(values).unfold(0, min(20, len(values)), 1).mean(1).tolist()
        for name, values in losses.items()
    }
    try:
        from matplotlib.figure import Figure
    except ImportError:
        output = output.with_suffix(".csv")
    if output.suffix == ".csv":
        rows = [means, *zip(*means.values(), strict=True)]
        output.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        return output
    figure = Figure(figsize=(8, 7), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    first, *_ = means
    for name, values in means.items():
        upper.plot(values, label=name, linewidth=1)
        further = [100 * (x / y - 1) for x, y in zip(values, means[first], strict=True)]
        lower.plot(further, linewidth=1)
    upper.set(ylabel="loss, nats a byte", title=title)
    lower.set(xlabel="step", ylabel=f"% more than {first}")
    upper.legend()
    figure.savefig(output, dpi=150)
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small GPT with several recipes.")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--output", type=Path, default=Path("losses.png"), help="a picture or a .csv"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    size = SIZES[options.size]
    torch.set_num_threads(1)  # steps are so small that more threads would wait for each other
    mxkern.set_num_threads(1)
    start, done, total = time.monotonic(), 0, options.steps * len(options.recipes)
    losses: dict[str, list[float]] = {name: [] for name in options.recipes}
    for name, values in losses.items():
        begun = time.monotonic()
        more = {"size": size, "device": options.device, "seed": options.seed}
        steps = train(RECIPES[name], options.steps, **more)
        for step, loss in enumerate(steps, 1):
            values.append(loss)
            done += 1
            if step % 20 and step < options.steps:
                continue
            now = time.monotonic()
            speed = step * size.batch * size.context / (now - begun)
            left = (now - start) / done * (total - done)
            print(
                f"{name:8} step {step:5} of {options.steps}   loss {loss:.4f}   "
                f"{speed:7.0f} tokens/s   {left:4.0f} s left",
                flush=True,
            )
    print(f"\n{'recipe':8}  mean loss of the last 50 steps")
    for name, values in losses.items():
        print(f"{name:8}  {sum(values[-50:]) / len(values[-50:]):.4f}")
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in GPT(size).parameters())
    title = f"A GPT of {count:,} parameters"
    print(f"losses: {draw(losses, options.output, title)}")


if __name__ == "__main__":
    main()
