"""Write the trained model as GGUF, and read it back.

Matrices become Q8_0 (blocks of 32 weights with one scale), norms stay F32.
`read` gives back the dequantised weights: what the server computes with.
"""

import json
from pathlib import Path

import gguf
import numpy as np
import torch

import tokenizer as tok
from model import Config

# The logits of the written model are this much larger than those of the trained one:
# it samples at temperature 0.8 as the trained one does at 0.44, where its stories do
# not break. Greedy text is the same. The output norm's weights carry the factor.
SHARPEN = 1.8


def write(path: Path, config: Config, params: dict[str, torch.Tensor], tokenizer) -> None:
    """Write hyper-parameters, vocabulary and weights to `path`."""
    # Written beside and then moved, so that a reader never sees half a file.
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "qwen3")
    writer.add_name("corelane built-in")
    writer.add_description("A very small language model, trained on generated text, that is part of corelane.")
    writer.add_license("same as corelane")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_size)
    writer.add_value_length(config.head_size)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_base)
    write_vocabulary(writer, tokenizer)
    for name, value in params.items():
        array = value.numpy().astype(np.float32)
        if name == "output_norm":
            array *= SHARPEN
        if array.ndim == 2:
            quantised = gguf.quants.quantize(array, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{name}.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)


def write_vocabulary(writer: gguf.GGUFWriter, tokenizer) -> None:
    """Tokens, merges, special tokens and the chat template."""
    ids = tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.get)
    assert [ids[token] for token in tokens] == list(range(len(tokens))), "token ids have gaps"
    kinds = [gguf.TokenType.CONTROL if token in tok.SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges(tokenizer))
    writer.add_eos_token_id(tok.TURN_END)
    writer.add_eot_token_id(tok.TURN_END)
    writer.add_pad_token_id(tok.END_OF_TEXT)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tok.CHAT_TEMPLATE)


def merges(tokenizer) -> list[str]:
    """The merges, in order of rank, as `left right`."""
    rows = json.loads(tokenizer.to_str())["model"]["merges"]
    return [row if isinstance(row, str) else " ".join(row) for row in rows]


def read(path: Path) -> tuple[dict[str, torch.Tensor], gguf.GGUFReader]:
    """The dequantised weights of `path`, under the names of `model.py`; and the reader."""
    reader = gguf.GGUFReader(path)
    params = {}
    for tensor in reader.tensors:
        array = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        shape = [int(n) for n in reversed(tensor.shape)]
        params[tensor.name.removesuffix(".weight")] = torch.from_numpy(array.reshape(shape).copy())
    return params, reader
