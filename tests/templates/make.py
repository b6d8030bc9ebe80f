"""Writes cases.json: what transformers' own renderer makes of the templates here.

    python3 -m venv venv && venv/bin/pip install transformers==5.23.0 jinja2==3.1.6
    venv/bin/python make.py

`tests/it/templates.rs` renders the same and compares. Each case names a template, a
conversation, and what is expected:

- `expected`: the prompt;
- `raises`: the template refused, with this message of its own;
- `fails`: the template cannot render this; the message is the engine's, so it
  is only noted here and not compared.
"""

import json
from datetime import datetime
from pathlib import Path

import jinja2
import transformers
from transformers.utils import chat_template_utils

HERE = Path(__file__).parent
NOW = datetime(2026, 7, 4, 9, 5, 8)


class FixedTime(datetime):
    """The clock that `strftime_now` reads."""

    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedTime

# The tokens that each family's tokenizer has; every other template gets these.
TOKENS = {
    "llama3.1": ("<|begin_of_text|>", "<|eot_id|>"),
    "gemma": ("<bos>", "<eos>"),
    "gemma3": ("<bos>", "<eos>"),
    "phi3": ("<s>", "<|endoftext|>"),
    "phi4": ("<|endoftext|>", "<|im_end|>"),
    "deepseek-r1": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "command-r": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"),
    "qwen2.5": ("", "<|im_end|>"),
    "qwen3": ("", "<|im_end|>"),
    "gpt-oss": ("<|startoftext|>", "<|return|>"),
    "granite": ("<|end_of_text|>", "<|end_of_text|>"),
}
DEFAULT_TOKENS = ("<s>", "</s>")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place; units as in \"72°F\" or '22 °C'. <b>Don't</b> & never guess: 気温 > 0?",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City, e.g. \"São Paulo\" <or> 'Zürich' & 東京"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 1e3, "default": 1},
            },
            "required": ["place"],
        },
    },
}
MAIL = {
    "type": "function",
    "function": {
        "name": "send_mail",
        "description": "Sends a mail.\nOnly when asked to.",
        "parameters": {
            "type": "object",
            "properties": {
                "to": {"type": "array", "items": {"type": "string"}, "description": "Addresses"},
                "items": {
                    "type": "array",
                    "description": "Named like a method of dict.",
                    "items": {
                        "type": "object",
                        "properties": {"text": {"type": "string"}, "scale": {"type": "number", "default": 0.1}},
                        "required": ["text"],
                    },
                },
                "urgent": {"type": ["boolean", "null"]},
                "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
            "required": ["to", "items"],
        },
    },
}
NOW_TOOL = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [WEATHER, MAIL]


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, id="call00001"):
    return {"role": "tool", "tool_call_id": id, "name": "get_weather", "content": content}


ASK = user("Wie ist das Wetter in Zürich? 🌦")
CALL = call("get_weather", {"place": "Zürich", "unit": "celsius", "days": 2})
ROUND = [ASK, assistant(None, tool_calls=[CALL]), result('{"°C": 22, "sky": "<clear> & \'dry\'"}')]

CONVERSATIONS = {
    "plain": {"messages": [user("Hello!")]},
    "system": {"messages": [system("You are terse."), user("Hello!")]},
    "turns": {"messages": [user("Hello!"), assistant("Hi. How can I help?"), user("  Tell me a joke.\n")]},
    "system turns": {
        "messages": [
            system("  You are terse.\n"),
            user("Hello!"),
            assistant("  Hi.\n"),
            user("Tell me a joke."),
            assistant("No."),
            user("Please?"),
        ]
    },
    "answered": {"messages": [user("Hello!"), assistant("Hi.")]},
    "unicode": {
        "messages": [
            system("Sois précis: \"é\" ≠ 'e' & <b>"),
            user("한국어 العربية עברית ไทย\u200d👩\u200d👩\u200d👧 e\u0301\t{{ messages }} {% raw %} \\n <|im_end|>"),
            assistant("\u00a0\u3000ok\u2028\u3000"),
            user("\n\n  {# not a comment #}  \n\n"),
        ]
    },
    "tools": {"messages": [ASK], "tools": TOOLS},
    "tools system": {"messages": [system("You are terse."), ASK], "tools": [NOW_TOOL, WEATHER]},
    "tools round": {"messages": ROUND, "tools": TOOLS},
    "tools parallel": {
        "messages": [
            system("You are terse."),
            user("Zürich and 東京?"),
            assistant(
                "I look.",
                tool_calls=[CALL, call("get_weather", {"place": "東京", "note": "a<b>'&\"c\"\n"}, "call00002")],
            ),
            result("22"),
            result("31", "call00002"),
        ],
        "tools": TOOLS,
    },
    "tools answered": {
        "messages": ROUND + [assistant("22 °C."), user("Thanks. And tomorrow?")],
        "tools": TOOLS,
    },
    "tools twice": {
        "messages": ROUND
        + [assistant("", tool_calls=[call("send_mail", {"to": ["a@b.c"], "items": [{"text": "22", "scale": 1.5}], "n": 0}, "call00003")]), result("sent", "call00003")],
        "tools": TOOLS,
    },
    "string arguments": {
        "messages": [ASK, assistant("", tool_calls=[call("get_weather", '{"place": "Zürich"}')]), result("22")],
        "tools": [WEATHER],
    },
    "long ids": {
        "messages": [ASK, assistant("", tool_calls=[call("get_weather", {}, "call_abcdef0123")]), result("22", "call_abcdef0123")],
        "tools": [WEATHER],
    },
    "null tool calls": {"messages": [user("Hello!"), assistant("Hi.", tool_calls=None), user("Go on.")]},
    "builtin": {
        "messages": [
            user("Who won?"),
            assistant("", tool_calls=[call("brave_search", {"query": "winner 2026", "lang": "en"})]),
            result({"output": "Nobody <yet>"}),
        ]
    },
    "reasoning": {
        "messages": [
            user("1+1?"),
            assistant("2", reasoning_content="One and one\nis two."),
            user("And 2+2?"),
            assistant("4", reasoning_content="\nTwo and two is four.\n"),
        ]
    },
    "reasoning inline": {
        "messages": [
            user("1+1?"),
            assistant("<think>\nOne and one is two.\n</think>\n\n2"),
            user("And 2+2?"),
            assistant("<think>\nFour.\n</think>\n\n4"),
        ]
    },
    "reasoning alias": {"messages": [user("1+1?"), assistant("2", reasoning="It is two.")]},
    "reasoning tools": {
        "messages": [
            ASK,
            assistant("", reasoning_content="I must look.", tool_calls=[CALL]),
            result("22"),
            assistant("", thinking="And again.", tool_calls=[CALL]),
            result("23"),
        ],
        "tools": [WEATHER],
    },
    "reasoning answered": {
        "messages": [
            ASK,
            assistant("", thinking="I must look.", tool_calls=[CALL]),
            result("22"),
            assistant("22 °C.", thinking="Easy."),
            user("Thanks."),
        ],
        "tools": [WEATHER],
    },
    "parts": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "You are terse."}]},
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is this? "}]},
            {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
            user("Sure?"),
        ]
    },
    "developer": {"messages": [{"role": "developer", "content": "Be kind."}, user("Hello!")]},
    "two users": {"messages": [user("Hello!"), user("Anyone?")]},
    "assistant first": {"messages": [assistant("Hi."), user("Hello!")]},
    "odd role": {"messages": [user("Hello!"), {"role": "critic", "content": "Bad."}]},
    "no content": {"messages": [{"role": "user"}]},
    "system only": {"messages": [system("You are terse.")]},
    "nothing": {"messages": []},
    "channels": {"messages": [user("Hello!"), assistant("<|channel|>final<|message|>Hi."), user("?")]},
    "orphan result": {"messages": [user("Hello!"), result("22")]},
    "no think": {"messages": [system("Be brief. /no_think"), user("Hello!"), assistant("\nHi.")]},
    "override": {"messages": [system("Only this. /system_override "), user("Hello!")]},
}

DOCUMENTS = [{"title": "A", "text": "Water boils at 100 °C."}, {"title": "B", "text": "Ice <melts> at 0 °C."}]

# Template, conversations, with a generation prompt?, chat_template_kwargs.
CASES = [
    ("qwen3", "plain|system|turns|system turns|unicode|tools|tools system|tools round|tools parallel|tools answered", True, {}),
    ("qwen3", "plain|reasoning|tools", True, {"enable_thinking": False}),
    ("qwen3", "plain", True, {"enable_thinking": True}),
    ("qwen3", "reasoning|reasoning inline|reasoning alias|reasoning tools|string arguments|tools twice|system only|answered", False, {}),
    ("qwen3", "nothing|parts|no content", True, {}),
    ("qwen2.5", "plain|system|system turns|unicode|tools|tools system|tools parallel|tools twice", True, {}),
    ("qwen2.5", "tools answered|answered|null tool calls", False, {}),
    ("qwen2.5", "no content", True, {}),
    ("llama3.1", "plain|system|system turns|unicode|tools|tools system|tools round|tools answered|tools twice", True, {}),
    ("llama3.1", "tools|tools round", True, {"tools_in_user_message": False}),
    ("llama3.1", "plain", True, {"date_string": "26 Jul 2024"}),
    ("llama3.1", "builtin", True, {"builtin_tools": ["brave_search", "wolfram_alpha", "code_interpreter"]}),
    ("llama3.1", "plain", False, {"custom_tools": [NOW_TOOL]}),
    ("llama3.1", "tools parallel|null tool calls", True, {}),
    ("llama3.1", "system only", True, {"custom_tools": [NOW_TOOL]}),
    ("llama2", "plain|system|turns|system turns|answered|unicode", False, {}),
    ("llama2", "two users|assistant first|no content", False, {}),
    ("mistral", "plain|system|turns|system turns|tools|tools round|tools parallel|tools answered|tools twice", True, {}),
    ("mistral", "two users|long ids|odd role|assistant first|nothing", True, {}),
    ("mixtral", "plain|system turns|answered|two users|odd role", True, {}),
    ("gemma", "plain|turns|answered|unicode|system|two users", True, {}),
    ("gemma", "turns", False, {}),
    ("gemma3", "plain|system turns|parts|unicode|two users|no content|odd role", True, {}),
    ("phi3", "plain|system turns|answered|unicode", True, {}),
    ("phi3", "answered", False, {}),
    ("phi4", "system|turns|tools system|unicode", True, {}),
    ("phi4", "answered", False, {}),
    ("deepseek-r1", "plain|system|turns|reasoning inline|tools round|tools parallel|tools answered|string arguments|unicode", True, {}),
    ("deepseek-r1", "tools twice|answered", False, {}),
    ("command-r", "plain|system turns|tools|tools system|tools parallel|tools round|unicode", True, {}),
    ("command-r", "answered", False, {}),
    ("chatml", "plain|system turns|unicode|developer", True, {}),
    ("chatml", "answered", False, {}),
    ("chatml", "no content|parts", False, {}),
    ("chatml-generation", "system turns|unicode", True, {}),
    ("chatml-generation", "answered", False, {}),
    ("zephyr", "plain|system turns|unicode", True, {}),
    ("zephyr", "answered", False, {}),
    ("smollm3", "plain|system turns|no think|override|tools|tools round", True, {}),
    ("smollm3", "plain|answered", True, {"enable_thinking": False}),
    ("smollm3", "plain", True, {"python_tools": ["def now() -> str", "def add(a, b)"]}),
    ("granite", "plain|system turns|tools|tools parallel|unicode", True, {}),
    ("granite", "plain", True, {"thinking": True}),
    ("granite", "plain", True, {"documents": DOCUMENTS, "controls": {"length": "short", "citations": True}}),
    ("granite", "tools", True, {"documents": DOCUMENTS}),
    ("gpt-oss", "plain|system|developer|system turns|unicode|tools|tools round|tools answered|reasoning tools|reasoning answered", True, {}),
    ("gpt-oss", "plain", True, {"reasoning_effort": "high", "model_identity": "You are corelane."}),
    ("gpt-oss", "reasoning|reasoning alias|answered", False, {}),
    ("gpt-oss", "channels|orphan result", True, {}),
    ("constructs", "system|unicode", True, {}),
]


def render(template, conversation, add_generation_prompt, kwargs):
    bos, eos = TOKENS.get(template, DEFAULT_TOKENS)
    messages = json.loads(json.dumps(conversation["messages"]))
    kwargs = dict(kwargs)
    documents = kwargs.pop("documents", None)
    try:
        [prompt], _ = chat_template_utils.render_jinja_template(
            [messages],
            tools=conversation.get("tools"),
            documents=documents,
            chat_template=(HERE / f"{template}.jinja").read_text(),
            add_generation_prompt=add_generation_prompt,
            bos_token=bos,
            eos_token=eos,
            **kwargs,
        )
        return {"expected": prompt}
    except jinja2.exceptions.TemplateError as error:
        # Of this class itself are only those that `raise_exception` makes.
        key = "raises" if type(error) is jinja2.exceptions.TemplateError else "fails"
        return {key: str(error)}
    except (TypeError, ValueError, KeyError) as error:
        return {"fails": f"{type(error).__name__}: {error}"}


def main():
    cases = []
    for template, names, add_generation_prompt, kwargs in CASES:
        for name in names.split("|"):
            outcome = render(template, CONVERSATIONS[name], add_generation_prompt, kwargs)
            case = {"template": template, "conversation": name, "add_generation_prompt": add_generation_prompt}
            cases.append(case | ({"kwargs": kwargs} if kwargs else {}) | outcome)
    names = {path.stem for path in HERE.glob("*.jinja")}
    assert names == {case["template"] for case in cases}, "each template has a case"
    assert set(CONVERSATIONS) == {case["conversation"] for case in cases}, "each conversation has a case"
    document = {
        "made_with": f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}",
        "now": NOW.isoformat(),
        "tokens": {name: TOKENS.get(name, DEFAULT_TOKENS) for name in sorted(names)},
        "conversations": CONVERSATIONS,
        "cases": cases,
    }
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    (HERE / "cases.json").write_text(text)
    outcomes = [next(key for key in ("expected", "raises", "fails") if key in case) for case in cases]
    for key in ("expected", "raises", "fails"):
        print(f"{outcomes.count(key)} cases with {key!r}")


if __name__ == "__main__":
    main()
