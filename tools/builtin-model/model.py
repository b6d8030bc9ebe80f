"""The network, as plain functions over a dictionary of tensors.

In: parameters and token ids. Out: logits. The shapes are those of the Qwen3
family (RMSNorm before each block, per-head norm of queries and keys, rotary
positions that rotate halves, grouped key/value heads, SwiGLU, tied
embeddings), because that is what the server's GGUF loader knows how to run.

Parameters bear their GGUF names without `.weight`, and matrices are kept as
`[out, in]`, which is also the GGUF order.
"""

import dataclasses

import torch
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyper-parameters. Every matrix row is a multiple of 32 (a Q8_0 block)."""

    vocab: int = 2048
    width: int = 192
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    ffn: int = 512
    rope_base: float = 10000.0
    norm_eps: float = 1e-6
    context: int = 1024


def init(config: Config, seed: int) -> dict[str, torch.Tensor]:
    """Fresh parameters: truncated normals, smaller where a residual is added.

    Attention begins as copying: the output matrix of a head is the transpose of
    its value matrix, so that a token that is attended to becomes more likely
    (the embedding is tied). With a random output matrix, the model had not begun
    to repeat names after 800 000 tokens; so, it does within 200 000.
    """
    c = config
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, cols: int, scale: float = 1.0) -> torch.Tensor:
        draw = torch.randn(rows, cols, generator=generator).clamp(-2, 2)
        return draw * scale * cols**-0.5

    into_residual = (2 * c.layers) ** -0.5
    q_width, kv_width = c.heads * c.head_size, c.kv_heads * c.head_size
    params = {"token_embd": matrix(c.vocab, c.width, 2.0), "output_norm": torch.ones(c.width)}
    for i in range(c.layers):
        value = matrix(kv_width, c.width)
        per_head = value.view(c.kv_heads, c.head_size, c.width).repeat_interleave(c.heads // c.kv_heads, 0)
        params |= {
            f"blk.{i}.attn_norm": torch.ones(c.width),
            f"blk.{i}.attn_q": matrix(q_width, c.width),
            f"blk.{i}.attn_k": matrix(kv_width, c.width),
            f"blk.{i}.attn_v": value,
            f"blk.{i}.attn_q_norm": torch.ones(c.head_size),
            f"blk.{i}.attn_k_norm": torch.ones(c.head_size),
            f"blk.{i}.attn_output": 0.3 * per_head.reshape(q_width, c.width).T.contiguous(),
            f"blk.{i}.ffn_norm": torch.ones(c.width),
            f"blk.{i}.ffn_gate": matrix(c.ffn, c.width),
            f"blk.{i}.ffn_up": matrix(c.ffn, c.width),
            f"blk.{i}.ffn_down": matrix(c.width, c.ffn, into_residual),
        }
    return params


def forward(config: Config, params: dict, tokens: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    """Hidden states `[B, T, width]` after the last norm; `logits` reads them out.

    `documents` `[B, T]` numbers the document of each token within its row: a
    token sees earlier tokens of its own document only. Positions count along
    the row; rotary attention depends on differences alone, so this equals
    restarting them at each document.
    """
    length = tokens.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    seen = causal & (documents[:, :, None] == documents[:, None, :])
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[:, None]
    cos, sin = rope_tables(config, torch.arange(length))
    x = F.embedding(tokens, params["token_embd"])
    for i in range(config.layers):
        q, k, v = project_qkv(config, params, i, x, cos, sin)
        x = x + attend(config, q, k, v, mask) @ params[f"blk.{i}.attn_output"].T
        x = x + feed_forward(config, params, i, x)
    return rms_norm(config, x, params["output_norm"])


def logits(params: dict, hidden: torch.Tensor) -> torch.Tensor:
    """Scores of the next token; the embedding is read backwards (tied)."""
    return hidden @ params["token_embd"].T


def step(config: Config, params: dict, tokens: torch.Tensor, start: int, cache: list) -> torch.Tensor:
    """Hidden states of `tokens` `[1, T]` at positions from `start`, with a KV cache.

    `cache[i]` holds the keys and values of layer `i` so far and is extended.
    """
    length = tokens.shape[1]
    cos, sin = rope_tables(config, torch.arange(start, start + length))
    seen = torch.ones(length, start + length, dtype=torch.bool).tril(start)
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))[None, None]
    x = F.embedding(tokens, params["token_embd"])
    for i in range(config.layers):
        q, k, v = project_qkv(config, params, i, x, cos, sin)
        if i == len(cache):
            cache.append((k, v))
        else:
            cache[i] = (torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2))
        x = x + attend(config, q, *cache[i], mask) @ params[f"blk.{i}.attn_output"].T
        x = x + feed_forward(config, params, i, x)
    return rms_norm(config, x, params["output_norm"])


def rms_norm(config: Config, x, weight):
    """Scale each row to unit root mean square, then by `weight`."""
    return F.rms_norm(x, weight.shape, weight, config.norm_eps)


def rope_tables(config: Config, positions):
    """Cosines and sines `[T, head_size / 2]` for integer `positions`."""
    half = config.head_size // 2
    frequency = config.rope_base ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = positions[:, None].float() * frequency
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotary embedding of `x` `[B, heads, T, head_size]`: halves are paired."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def project_qkv(config: Config, params: dict, i: int, x, cos, sin):
    """Queries, keys and values `[B, heads, T, head_size]` of layer `i`."""
    c = config
    batch, length, _ = x.shape
    h = rms_norm(c, x, params[f"blk.{i}.attn_norm"])
    q = (h @ params[f"blk.{i}.attn_q"].T).view(batch, length, c.heads, c.head_size)
    k = (h @ params[f"blk.{i}.attn_k"].T).view(batch, length, c.kv_heads, c.head_size)
    v = (h @ params[f"blk.{i}.attn_v"].T).view(batch, length, c.kv_heads, c.head_size)
    q = rotate(rms_norm(c, q, params[f"blk.{i}.attn_q_norm"]).transpose(1, 2), cos, sin)
    k = rotate(rms_norm(c, k, params[f"blk.{i}.attn_k_norm"]).transpose(1, 2), cos, sin)
    return q, k, v.transpose(1, 2)


def attend(config: Config, q, k, v, mask):
    """Softmax attention; each key/value head serves `heads / kv_heads` queries."""
    group = config.heads // config.kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return mixed.transpose(1, 2).flatten(2)


def feed_forward(config: Config, params: dict, i: int, x):
    """SwiGLU block of layer `i`."""
    h = rms_norm(config, x, params[f"blk.{i}.ffn_norm"])
    gated = F.silu(h @ params[f"blk.{i}.ffn_gate"].T) * (h @ params[f"blk.{i}.ffn_up"].T)
    return gated @ params[f"blk.{i}.ffn_down"].T
