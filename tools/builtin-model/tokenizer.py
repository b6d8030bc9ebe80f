"""The byte-level BPE tokenizer: training, loading, and documents as token ids.

The pre-tokenizer is the one that llama.cpp calls "qwen2", so that the server
splits text exactly as the training did: digits stand alone, a word takes the
space before it. All 256 bytes are tokens, hence every text round-trips.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2
END_OF_TEXT, TURN_START, TURN_END = range(3)

QWEN2 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# ChatML, with the header of the answer when one is asked for.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train(texts: Iterable[str], vocab: int) -> Tokenizer:
    """A tokenizer of `vocab` tokens, the special ones first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    size = tokenizer.get_vocab_size()
    assert size == vocab, f"the tokenizer has {size} tokens, not {vocab}: too little text"
    return tokenizer


def load(path: Path) -> Tokenizer:
    """The tokenizer that `train` made and `save` wrote."""
    return Tokenizer.from_file(str(path))


def encode_document(tokenizer: Tokenizer, document: str | list[tuple[str, str]]) -> tuple[list[int], list[int]]:
    """Token ids of a document, and for each 1 if it is learned, 0 if only read.

    Plain text is learned whole, with its end. Of a conversation, the answers
    and their ends are learned; what the user and the system say is read.
    """
    if isinstance(document, str):
        ids = tokenizer.encode(document, add_special_tokens=False).ids + [END_OF_TEXT]
        return ids, [1] * len(ids)
    ids, learned = [], []
    for role, text in document:
        header = [TURN_START] + tokenizer.encode(role + "\n", add_special_tokens=False).ids
        # The header and the text are one piece to the pre-tokenizer.
        turn = [TURN_START] + tokenizer.encode(f"{role}\n{text}", add_special_tokens=False).ids
        assert turn[: len(header)] == header, f"the header merged with the text: {text!r}"
        turn.append(TURN_END)
        answer = int(role == "assistant")
        learned += [0] * len(header) + [answer] * (len(turn) - len(header))
        newline = tokenizer.encode("\n", add_special_tokens=False).ids
        ids += turn + newline
        learned += [0] * len(newline)
    return ids + [END_OF_TEXT], learned + [1]


def encode_prompt(tokenizer: Tokenizer, prompt: str | list[tuple[str, str]]) -> list[int]:
    """Token ids of a raw prompt, or of messages that wait for an answer."""
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, add_special_tokens=False).ids
    ids, _ = encode_document(tokenizer, prompt)
    return ids[:-1] + [TURN_START] + tokenizer.encode("assistant\n", add_special_tokens=False).ids
