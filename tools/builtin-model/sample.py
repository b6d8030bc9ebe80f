"""Generate text from a GGUF of the built-in model, in the training framework.

In: dequantised weights, a prompt, a temperature, a seed. Out: token ids. This
is the reference that the server's output is compared with.
"""

import argparse
from pathlib import Path

import torch

import export
import model
import tokenizer as tok

# The file that is compiled into the binary.
MODEL = Path(__file__).parents[2] / "src/model/builtin/builtin.gguf"


@torch.no_grad()
def generate(
    config, params, prompt: list[int], count: int, temperature: float = 0.0, seed: int = 0, stop: bool = True
) -> list[int]:
    """At most `count` tokens after `prompt`; greedy at temperature 0.

    With `stop`, ends before the first token that ends a turn or a text.
    """
    generator = torch.Generator().manual_seed(seed)
    cache: list = []
    tokens, out = prompt, []
    start = 0
    for _ in range(count):
        hidden = model.step(config, params, torch.tensor([tokens]), start, cache)
        scores = model.logits(params, hidden[0, -1])
        start += len(tokens)
        if temperature == 0.0:
            token = int(scores.argmax())
        else:
            token = int(torch.multinomial((scores / temperature).softmax(-1), 1, generator=generator))
        if stop and token in (tok.END_OF_TEXT, tok.TURN_END):
            break
        out.append(token)
        tokens = [token]
    return out


def main() -> None:
    """Answer prompts from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="+", help="prompts; raw text, or a chat question with --chat")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--work", type=Path, default=Path("work"), help="folder with tokenizer.json")
    parser.add_argument("--chat", action="store_true", help="ask as a ChatML user")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args()
    config, (params, _) = model.Config(), export.read(options.model)
    tokenizer = tok.load(options.work / "tokenizer.json")
    for prompt in options.prompt:
        ids = tok.encode_prompt(tokenizer, [("user", prompt)] if options.chat else prompt)
        out = generate(config, params, ids, options.count, options.temperature, options.seed)
        print(f">>> {prompt}\n{tokenizer.decode(out)}\n")


if __name__ == "__main__":
    main()
