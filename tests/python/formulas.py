"""The formulas of transformers in numpy, for the models of `models.py`."""

import math

import numpy as np


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """Attention (Vaswani et al., 2017) of the shape [tokens, heads x head size]; the inputs are [heads, tokens, head size]."""
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    mixed = np.exp(log_softmax(scores)) @ v
    return mixed.transpose(1, 0, 2).reshape(q.shape[1], -1)


def heads_of(x: np.ndarray, count: int) -> np.ndarray:
    """[tokens, width] as [heads, tokens, head size]."""
    return x.reshape(len(x), count, -1).transpose(1, 0, 2)


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    """The approximation by tanh (Hendrycks and Gimpel, 2016), which llama.cpp takes for BERT."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def pooled(vectors: np.ndarray, pooling: str) -> np.ndarray:
    return {"mean": vectors.mean(axis=0), "cls": vectors[0], "last": vectors[-1]}[pooling]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).sum(-1, keepdims=True))


# --- Weights and files ---
