"""examples/huggingface_trainer.py: trains a model of transformers with its Trainer, in MXFP8.

It needs transformers and accelerate. The model is a Llama with random weights, so small that a few
steps take seconds on a CPU; a real one is AutoModelForCausalLM.from_pretrained(...).
"""

import inspect
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import mxkern.torch as mxt

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
model = LlamaForCausalLM(config)
recipe = mxt.Training(mxt.mxfp8(), cache_weights=True)
mxt.quantize_(model, mxt.by_name({"lm_head": None, "*": recipe}))
print(mxt.explain(model))

text = torch.tensor(list(inspect.getsource(inspect).encode()))  # bytes are tokens
samples = [{"input_ids": piece, "labels": piece} for piece in text[: 64 * 512].view(-1, 64)]

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=20,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,  # weights are quantized once for both
        gradient_checkpointing=True,  # the recipe is the layers' own, so that it holds there too
        learning_rate=3e-3,
        logging_steps=5,
        dataloader_pin_memory=False,
        save_strategy="no",
        report_to="none",
    )
    trainer = Trainer(model, arguments, train_dataset=samples)
    trainer.train()
    trainer.save_model(folder)  # ordinary weights: any tool loads them
    LlamaForCausalLM.from_pretrained(folder)

losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print("losses", losses)
assert losses[-1] < losses[0]
