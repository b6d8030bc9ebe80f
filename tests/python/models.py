"""Small models for the tests: written as GGUF, and computed here in float64.

The computation follows the papers' formulas and shares nothing with llama.cpp, so that the two check each other.
Weights are random, drawn from a seed, and stored as F32. A model's file is written by `write_encoder` or
`write_decoder`; the object that they return computes the same model:

    BERT with a head for ranking          write_encoder(path)
    Qwen3 with a yes-no head for ranking  write_decoder(path, QWEN3)
    Llama with fill-in-the-middle tokens  write_decoder(path, LLAMA)

Tokens are split here, too, and `Decoder.write_tokenizer` writes the files from which `transformers` makes the same ids.
"""

import collections
import dataclasses
import functools
import json
import math
import pathlib

import gguf
import numpy as np
import regex
from formulas import attention, gelu, heads_of, log_softmax, pooled, silu, unit

# The words that the encoder knows: these, and every letter as the beginning and as the rest of a word.
WORDS = """a an and answer ask at batch be bird black book boat by cache cat cold corelane cow dark day decode dog door eat fast
fish for forest from garden green grow hill house how in is it key lane light long mat model moon mouse of old on one over
park prompt queue rain red river run sat server ship sing slow small snow star step stone stream sun swim the to token tree
under walk warm water what where white wind with word yellow""".split()
PIECES = ["s", "ed", "ing", "er", "ly"]

# The texts from which the decoder's tokens are learned.
CORPUS = """the cat sat on the mat and the dog ran over the hill while the old ship sailed down the river
fn main() { let value = compute(first, second); return value; } def function(self, value): return self.value + value
for index in range(length): print(index, value[index]) if let Some(token) = self.tokens.next() { self.push(token); }
the server takes a prompt and answers with the tokens that the model finds most probable after the prompt
"""
MERGES = 160

FIM = {"pre": "<|fim_prefix|>", "suf": "<|fim_suffix|>", "mid": "<|fim_middle|>", "rep": "<|repo_name|>", "sep": "<|file_sep|>"}
TURN, TURN_END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIAL = [TEXT_END, TURN, TURN_END, *FIM.values()]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RERANK_TEMPLATE = (
    "<|im_start|>system\nJudge whether the document meets the query. Answer yes or no.<|im_end|>\n"
    "<|im_start|>user\n<query>: {query}\n<document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)


# --- The encoder: BERT (Devlin et al., 2018), with the ranking head of RoBERTa (Liu et al., 2019) ---


@dataclasses.dataclass
class Encoder:
    """BERT. `weights` are named as in the file; matrices have the shape [out, in]."""

    weights: dict[str, np.ndarray]
    tokens: list[str]
    context: int = 128
    width: int = 48
    layers: int = 2
    heads: int = 4
    ffn: int = 96
    epsilon: float = 1e-12

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    def tokenize(self, text: str) -> list[int]:
        """WordPiece (Wu et al., 2016): of each word, the longest known beginning, then the longest known rest."""
        found = []
        for word in regex.findall(r"\w+|[^\w\s]", text.lower()):
            pieces, rest = [], "▁" + word
            while rest:
                length = next((end for end in range(len(rest), 0, -1) if rest[:end] in self.ids), None)
                if length is None:
                    pieces = [self.ids["[UNK]"]]
                    break
                pieces.append(self.ids[rest[:length]])
                rest = rest[length:]
            found += pieces
        return found

    def text_ids(self, text: str) -> list[int]:
        """A text as it is embedded."""
        return [self.ids["[CLS]"], *self.tokenize(text), self.ids["[SEP]"]]

    def pair_ids(self, query: str, document: str) -> list[int]:
        """A pair as it is ranked. The vocabulary asks for [CLS] and [SEP], and for no end of the text."""
        return [self.ids["[CLS]"], *self.tokenize(query), self.ids["[SEP]"], *self.tokenize(document)]

    def vectors(self, ids: list[int]) -> np.ndarray:
        """The last layer's vectors, of the shape [tokens, width]."""
        w = self.weights
        x = w["token_embd.weight"][ids] + w["position_embd.weight"][: len(ids)] + w["token_types.weight"][0]
        x = self.norm(x, "token_embd_norm")
        for layer in range(self.layers):
            name = f"blk.{layer}"
            q, k, v = (heads_of(self.linear(x, f"{name}.attn_{part}"), self.heads) for part in "qkv")
            mixed = self.linear(attention(q, k, v, causal=False), f"{name}.attn_output")
            x = self.norm(x + mixed, f"{name}.attn_output_norm")
            hidden = gelu(self.linear(x, f"{name}.ffn_up"))
            x = self.norm(x + self.linear(hidden, f"{name}.ffn_down"), f"{name}.layer_output_norm")
        return x

    def embedding(self, ids: list[int], pooling: str) -> np.ndarray:
        """The vector of a text, of length 1."""
        return unit(pooled(self.vectors(ids), pooling))

    def logit(self, ids: list[int]) -> float:
        hidden = np.tanh(self.linear(self.vectors(ids)[0], "cls"))
        return self.linear(hidden, "cls.output").item()

    def score(self, query: str, document: str) -> float:
        return 1 / (1 + math.exp(-self.logit(self.pair_ids(query, document))))

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def write_encoder(path: pathlib.Path, seed: int = 7, pooling: gguf.PoolingType | None = None, head: bool = True) -> Encoder:
    """A BERT whose metadata name `pooling`, or none."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = dict.fromkeys([*WORDS, *letters, *".,?!:;'()[]-/"])
    tokens = [*marks, *("▁" + word for word in words), *letters, *PIECES]
    tokens = list(dict.fromkeys(tokens))
    model = Encoder({}, tokens)
    draw = Drawn(seed, model.weights)
    draw.matrix("token_embd", len(tokens), model.width, 1.0)
    draw.matrix("position_embd", model.context, model.width, 0.5)
    draw.matrix("token_types", 2, model.width, 0.5)
    draw.norm("token_embd_norm", model.width, bias=True)
    for layer in range(model.layers):
        for part in ["attn_q", "attn_k", "attn_v", "attn_output"]:
            draw.linear(f"blk.{layer}.{part}", model.width, model.width, 2.0)  # so that scores depend on all words
        draw.norm(f"blk.{layer}.attn_output_norm", model.width, bias=True)
        draw.linear(f"blk.{layer}.ffn_up", model.ffn, model.width)
        draw.linear(f"blk.{layer}.ffn_down", model.width, model.ffn)
        draw.norm(f"blk.{layer}.layer_output_norm", model.width, bias=True)
    if head:
        draw.linear("cls", model.width, model.width)
        draw.linear("cls.output", 1, model.width, 2.0)

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_layer_norm_eps(model.epsilon)
        writer.add_causal_attention(False)
        if pooling is not None:
            writer.add_pooling_type(pooling)
        writer.add_tokenizer_model("bert")
        writer.add_token_list(tokens)
        control = gguf.TokenType.CONTROL
        writer.add_token_types([control if token in marks else gguf.TokenType.NORMAL for token in tokens])
        writer.add_token_type_count(2)
        writer.add_bos_token_id(model.ids["[CLS]"])
        writer.add_unk_token_id(model.ids["[UNK]"])
        writer.add_sep_token_id(model.ids["[SEP]"])
        writer.add_pad_token_id(model.ids["[PAD]"])
        writer.add_mask_token_id(model.ids["[MASK]"])

    write(path, "bert", "small encoder", model, describe)
    return model


# --- Decoders: Llama (Touvron et al., 2023) and Qwen3 (Qwen team, 2025) ---


@dataclasses.dataclass(frozen=True)
class Architecture:
    name: str
    pairs: str  # What RoPE turns: "neighbours" (0 and 1, 2 and 3), or "halves" (0 and n/2, 1 and n/2 + 1).
    head_norms: bool  # Queries and keys are normalised.
    ranks: bool  # Has a head of two outputs, yes and no.


LLAMA = Architecture("llama", "neighbours", head_norms=False, ranks=False)
QWEN3 = Architecture("qwen3", "halves", head_norms=True, ranks=True)


@dataclasses.dataclass
class Decoder:
    architecture: Architecture
    weights: dict[str, np.ndarray]
    tokens: list[str]
    merges: list[tuple[str, str]]
    bos: str | None = None
    context: int = 2048
    width: int = 64
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    ffn: int = 128
    epsilon: float = 1e-6
    rope_base: float = 10_000.0

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    @functools.cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    @functools.cached_property
    def fim(self) -> dict[str, int]:
        return {name: self.ids[token] for name, token in FIM.items() if token in self.ids}

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Byte-level byte-pair encoding (Sennrich et al., 2016; Radford et al., 2019). `special`: as tokens, not as text."""
        if special:
            marks = "|".join(regex.escape(token) for token in SPECIAL)
            parts = regex.split(f"({marks})", text)
            return [number for part in parts for number in ([self.ids[part]] if part in SPECIAL else self.tokenize(part))]
        found = []
        for word in split_words(text):
            pieces = list(word)
            while len(pieces) > 1:
                rank, at = min((self.ranks.get(pair, MERGES), at) for at, pair in enumerate(zip(pieces, pieces[1:])))
                if rank == MERGES:
                    break
                pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
            found += [self.ids[piece] for piece in pieces]
        return found

    def detokenize(self, ids: list[int]) -> bytes:
        """The text of tokens; special ones have none."""
        texts = (self.tokens[number] for number in ids)
        return b"".join(bytes(BYTES.index(letter) for letter in text) for text in texts if text not in SPECIAL)

    def text_ids(self, text: str) -> list[int]:
        return ([self.ids[self.bos]] if self.bos else []) + self.tokenize(text)

    def pair_ids(self, query: str, document: str) -> list[int]:
        """A pair as it is ranked: by the file's template, whose special tokens count as tokens."""
        return self.tokenize(RERANK_TEMPLATE.replace("{query}", query).replace("{document}", document), special=True)

    def vectors(self, ids: list[int]) -> np.ndarray:
        """The vectors behind the last norm, of the shape [tokens, width]."""
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            name = f"blk.{layer}"
            normed = self.norm(x, f"{name}.attn_norm")
            q = heads_of(self.linear(normed, f"{name}.attn_q"), self.heads)
            k = heads_of(self.linear(normed, f"{name}.attn_k"), self.kv_heads)
            v = heads_of(self.linear(normed, f"{name}.attn_v"), self.kv_heads)
            if self.architecture.head_norms:
                q, k = self.norm(q, f"{name}.attn_q_norm"), self.norm(k, f"{name}.attn_k_norm")
            q, k = self.rope(q), self.rope(k)
            # Grouped queries (Ainslie et al., 2023): neighbouring heads of the queries share one of the keys.
            k, v = (np.repeat(heads, self.heads // self.kv_heads, axis=0) for heads in (k, v))
            x = x + self.linear(attention(q, k, v, causal=True), f"{name}.attn_output")
            normed = self.norm(x, f"{name}.ffn_norm")
            # SwiGLU (Shazeer, 2020).
            hidden = silu(self.linear(normed, f"{name}.ffn_gate")) * self.linear(normed, f"{name}.ffn_up")
            x = x + self.linear(hidden, f"{name}.ffn_down")
        return self.norm(x, "output_norm")

    def logprobs(self, ids: list[int]) -> np.ndarray:
        """Natural logarithms of the probabilities of the token behind each one, of the shape [tokens, vocabulary]."""
        return log_softmax(self.linear(self.vectors(ids), "output"))

    def greedy(self, ids: list[int], count: int) -> list[int]:
        """The most probable continuation."""
        text = list(ids)
        for _ in range(count):
            text.append(int(self.logprobs(text)[-1].argmax()))
        return text[len(ids) :]

    def embedding(self, ids: list[int], pooling: str) -> np.ndarray:
        return unit(pooled(self.vectors(ids), pooling))

    def score(self, query: str, document: str) -> float:
        """The probability of yes."""
        outputs = self.linear(self.vectors(self.pair_ids(query, document))[-1], "cls.output")
        return math.exp(log_softmax(outputs)[0])

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """RMSNorm (Zhang and Sennrich, 2019)."""
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.epsilon) * self.weights[f"{name}.weight"]

    def rope(self, x: np.ndarray) -> np.ndarray:
        """Rotary positions (Su et al., 2021) of vectors of the shape [heads, tokens, head size]."""
        half = self.head_size // 2
        angles = np.outer(np.arange(x.shape[1]), self.rope_base ** (-np.arange(half) / half))
        turns = np.exp(1j * angles)
        if self.architecture.pairs == "neighbours":
            turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turns
            return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
        turned = (x[..., :half] + 1j * x[..., half:]) * turns
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def write_tokenizer(self, folder: pathlib.Path) -> None:
        """Files from which `transformers.AutoTokenizer` makes the same ids."""
        special = [
            {"id": self.ids[token], "content": token, "special": True}
            | dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
            for token in SPECIAL
            if token in self.ids
        ]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        split = {"type": "Split", "pattern": {"Regex": WORD}, "behavior": "Isolated", "invert": False}
        vocabulary = {token: number for token, number in self.ids.items() if token not in SPECIAL}
        whole = {
            "version": "1.0",
            "added_tokens": special,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": [list(pair) for pair in self.merges]},
        }
        folder.mkdir(exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": TEXT_END, "model_max_length": self.context}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_decoder(
    path: pathlib.Path,
    architecture: Architecture,
    seed: int = 1,
    bos: bool = False,
    fim: tuple[str, ...] = tuple(FIM),
    pooling: gguf.PoolingType | None = None,
) -> Decoder:
    """A decoder whose vocabulary has the fill-in-the-middle tokens `fim`. With `bos`, texts begin with a token."""
    merges = learned_merges(CORPUS, MERGES)
    special = [token for token in SPECIAL if token not in FIM.values() or token in (FIM[name] for name in fim)]
    tokens = [*BYTES, *(left + right for left, right in merges), *special]
    model = Decoder(architecture, {}, tokens, merges, TEXT_END if bos else None)
    draw = Drawn(seed, model.weights)
    draw.matrix("token_embd", len(tokens), model.width, 1.0)
    for layer in range(model.layers):
        name = f"blk.{layer}"
        draw.norm(f"{name}.attn_norm", model.width)
        draw.matrix(f"{name}.attn_q", model.heads * model.head_size, model.width)
        draw.matrix(f"{name}.attn_k", model.kv_heads * model.head_size, model.width)
        draw.matrix(f"{name}.attn_v", model.kv_heads * model.head_size, model.width)
        draw.matrix(f"{name}.attn_output", model.width, model.heads * model.head_size)
        if architecture.head_norms:
            draw.norm(f"{name}.attn_q_norm", model.head_size)
            draw.norm(f"{name}.attn_k_norm", model.head_size)
        draw.norm(f"{name}.ffn_norm", model.width)
        draw.matrix(f"{name}.ffn_gate", model.ffn, model.width)
        draw.matrix(f"{name}.ffn_up", model.ffn, model.width)
        draw.matrix(f"{name}.ffn_down", model.width, model.ffn)
    draw.norm("output_norm", model.width)
    draw.matrix("output", len(tokens), model.width, 2.0 / math.sqrt(model.width))
    # Half characters and marks stay improbable, so that the texts can be read. A text may end.
    ends = [model.ids[TEXT_END], model.ids[TURN_END]]
    rare = [number for number, token in enumerate(tokens) if token in special or not model.detokenize([number]).isascii()]
    model.weights["output.weight"][[number for number in rare if number not in ends]] = 0
    if architecture.ranks:
        draw.matrix("cls.output", 2, model.width, 1.5 / math.sqrt(model.width))

    def describe(writer: gguf.GGUFWriter) -> None:
        writer.add_head_count_kv(model.kv_heads)
        writer.add_key_length(model.head_size)
        writer.add_value_length(model.head_size)
        writer.add_rope_dimension_count(model.head_size)
        writer.add_rope_freq_base(model.rope_base)
        writer.add_layer_norm_rms_eps(model.epsilon)
        if pooling is not None:
            writer.add_pooling_type(pooling)
        templates = [{"name": "default", "template": CHAT_TEMPLATE}]
        if architecture.ranks:
            writer.add_classifier_output_labels(["yes", "no"])
            templates.append({"name": "rerank", "template": RERANK_TEMPLATE})
        writer.add_chat_template(templates)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        control = gguf.TokenType.CONTROL
        writer.add_token_types([control if token in special else gguf.TokenType.NORMAL for token in tokens])
        writer.add_token_merges([f"{left} {right}" for left, right in merges])
        writer.add_bos_token_id(model.ids[TEXT_END])
        writer.add_eos_token_id(model.ids[TEXT_END])
        writer.add_eot_token_id(model.ids[TURN_END])
        writer.add_add_bos_token(bos)
        for name, number in model.fim.items():
            writer.add_uint32(f"tokenizer.ggml.fim_{name}_token_id", number)

    write(path, architecture.name, "small decoder", model, describe)
    return model


# --- Byte-level tokens ---

# The pattern of Qwen2's tokenizer.
WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_letters() -> str:
    """For each byte the letter that stands for it: itself where it can be seen, else one from 256 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unseen = [byte for byte in range(256) if byte not in seen]
    letters = {byte: chr(byte) for byte in seen} | {byte: chr(256 + at) for at, byte in enumerate(unseen)}
    return "".join(letters[byte] for byte in range(256))


BYTES = byte_letters()


def split_words(text: str) -> list[str]:
    """The words of a text, as letters for bytes."""
    return ["".join(BYTES[byte] for byte in word.encode()) for word in regex.findall(WORD, text)]


@functools.cache
def learned_merges(corpus: str, count: int) -> list[tuple[str, str]]:
    """The pair that is most frequent, again and again. No merge has a line's end, so that lines split alike everywhere."""
    words = [list(word) for word in split_words(corpus)]
    line_end = BYTES[ord("\n")]
    merges = []
    for _ in range(count):
        pairs = collections.Counter(pair for word in words for pair in zip(word, word[1:]) if line_end not in pair)
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        for word in words:
            at = 0
            while at < len(word) - 1:
                if word[at] == left and word[at + 1] == right:
                    word[at : at + 2] = [left + right]
                at += 1
    return merges


# --- Weights and files ---


@dataclasses.dataclass
class Drawn:
    """Draws random weights. They are rounded to float32, as the file has them, and kept as float64."""

    seed: int
    weights: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def put(self, name: str, mean: float, spread: float, *shape: int) -> None:
        drawn = self.random.normal(mean, spread, shape)
        self.weights[name] = drawn.astype(np.float32).astype(np.float64)

    def matrix(self, name: str, rows: int, columns: int, spread: float | None = None) -> None:
        self.put(f"{name}.weight", 0, 1 / math.sqrt(columns) if spread is None else spread, rows, columns)

    def linear(self, name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        self.matrix(name, rows, columns, gain / math.sqrt(columns))
        self.put(f"{name}.bias", 0, 0.2, rows)

    def norm(self, name: str, width: int, bias: bool = False) -> None:
        self.put(f"{name}.weight", 1, 0.2, width)
        if bias:
            self.put(f"{name}.bias", 0, 0.2, width)


def write(path: pathlib.Path, architecture: str, name: str, model: Encoder | Decoder, describe) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(model.layers)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.width)
    writer.add_feed_forward_length(model.ffn)
    writer.add_head_count(model.heads)
    describe(writer)
    for tensor, values in model.weights.items():
        writer.add_tensor(tensor, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
