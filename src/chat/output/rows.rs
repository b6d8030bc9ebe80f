//! The rows of the table of families: how each writes tool calls.

use super::form::{Form, Syntax};
use super::tags;

/// The defaults of every row. Also the syntax of a message without tools.
pub(super) static NONE: Syntax = NO_SYNTAX;
const NO_SYNTAX: Syntax = Syntax {
    open: &[],
    prefix: &[],
    separators: &[],
    has_index: false,
    close: &[],
    noise: &[],
    bare: false,
    form: Form::Json,
    short_open: None,
    begin: "",
    infix: "",
    between: "",
    end: "",
};

pub(super) static HERMES: Syntax = Syntax {
    open: &["<tool_call>"],
    close: &["</tool_call>"],
    begin: "\n{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
    end: "}\n</tool_call>",
    ..NO_SYNTAX
};

pub(super) static LLAMA_3: Syntax = Syntax {
    open: &["<|python_tag|>"],
    close: &[";"],
    bare: true,
    begin: "{\"name\": \"",
    infix: "\", \"parameters\": ",
    end: "}",
    ..NO_SYNTAX
};

const MISTRAL_READ: Syntax =
    Syntax { open: &["[TOOL_CALLS]"], separators: &["[CALL_ID]", "[ARGS]"], ..NO_SYNTAX };

pub(super) static MISTRAL_LIST: Syntax = Syntax {
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]",
    ..MISTRAL_READ
};

pub(super) static MISTRAL_NAMED: Syntax =
    Syntax { infix: "[ARGS]", between: "[TOOL_CALLS]", ..MISTRAL_READ };

const DEEPSEEK_READ: Syntax = Syntax {
    open: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    prefix: &["function<｜tool▁sep｜>"],
    separators: &["<｜tool▁sep｜>", "```json"],
    close: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    ..NO_SYNTAX
};

pub(super) static DEEPSEEK_FENCED: Syntax = Syntax {
    begin: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    infix: "\n```json\n",
    between: "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    end: "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ..DEEPSEEK_READ
};

pub(super) static DEEPSEEK: Syntax = Syntax {
    begin: "<｜tool▁call▁begin｜>",
    infix: "<｜tool▁sep｜>",
    between: "<｜tool▁call▁end｜><｜tool▁call▁begin｜>",
    end: "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ..DEEPSEEK_READ
};

pub(super) static COMMAND_R: Syntax = Syntax {
    open: &["<|START_ACTION|>"],
    close: &["<|END_ACTION|>"],
    noise: &["<|START_RESPONSE|>", "<|END_RESPONSE|>"],
    // The ids carry no information: clients get ids from corelane.
    begin: "[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"",
    infix: "\", \"parameters\": ",
    between: "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"",
    end: "}\n]<|END_ACTION|>",
    ..NO_SYNTAX
};

pub(super) static COMMAND_R_FENCED: Syntax = Syntax {
    open: &["Action:"],
    prefix: &["```json"],
    close: &["```"],
    begin: " ```json\n[\n    {\n        \"tool_name\": \"",
    infix: "\",\n        \"parameters\": ",
    between: "\n    },\n    {\n        \"tool_name\": \"",
    end: "\n    }\n]\n```",
    ..NO_SYNTAX
};

pub(super) static GRANITE: Syntax = Syntax {
    open: &["<|tool_call|>", "<tool_call>"],
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]",
    ..NO_SYNTAX
};

pub(super) static PHI_4: Syntax = Syntax {
    open: &["<|tool_call|>"],
    close: &["<|/tool_call|>"],
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]<|/tool_call|>",
    ..NO_SYNTAX
};

/// Only for writing; `channels` reads this family.
pub(super) static HARMONY: Syntax = Syntax {
    open: &["<|channel|>"],
    separators: &["<|constrain|>", "<|message|>"],
    close: &["<|start|>", "<|end|>"],
    begin: "commentary to=functions.",
    infix: " <|constrain|>json<|message|>",
    ..NO_SYNTAX
};

pub(super) static KIMI: Syntax = Syntax {
    open: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    prefix: &["functions."],
    separators: &["<|tool_call_argument_begin|>"],
    has_index: true,
    close: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
    begin: "<|tool_call_begin|>functions.",
    infix: "<|tool_call_argument_begin|>",
    between: "<|tool_call_end|><|tool_call_begin|>functions.",
    end: "<|tool_call_end|><|tool_calls_section_end|>",
    ..NO_SYNTAX
};

pub(super) static NEMOTRON_LIST: Syntax = Syntax {
    open: &["<TOOLCALL>"],
    close: &["</TOOLCALL>"],
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]</TOOLCALL>",
    ..NO_SYNTAX
};

pub(super) static QWEN_CODER: Syntax = Syntax {
    open: &["<tool_call>", "<function="],
    close: &["</function>", "</tool_call>"],
    form: Form::Tagged(&tags::QWEN_CODER),
    short_open: Some("<function="),
    begin: "\n<function=",
    infix: ">\n",
    between: "\n</tool_call>\n<tool_call>\n<function=",
    end: "\n</tool_call>",
    ..NO_SYNTAX
};

pub(super) static SEED: Syntax = Syntax {
    open: &["<seed:tool_call>", "<function="],
    close: &["</function>", "</seed:tool_call>"],
    form: Form::Tagged(&tags::SEED),
    short_open: Some("<function="),
    begin: "\n<function=",
    infix: ">\n",
    between: "\n</seed:tool_call>\n<seed:tool_call>\n<function=",
    end: "\n</seed:tool_call>",
    ..NO_SYNTAX
};

const GLM_READ: Syntax = Syntax { open: &["<tool_call>"], close: &["</tool_call>"], ..NO_SYNTAX };

pub(super) static GLM_LINES: Syntax = Syntax {
    form: Form::Tagged(&tags::GLM_LINES),
    infix: "\n",
    between: "</tool_call>\n<tool_call>",
    end: "</tool_call>",
    ..GLM_READ
};

pub(super) static GLM: Syntax = Syntax {
    form: Form::Tagged(&tags::GLM),
    between: "</tool_call><tool_call>",
    end: "</tool_call>",
    ..GLM_READ
};

pub(super) static MINIMAX: Syntax = Syntax {
    open: &["<minimax:tool_call>"],
    close: &["</invoke>", "</minimax:tool_call>"],
    form: Form::Tagged(&tags::MINIMAX),
    begin: "\n<invoke name=\"",
    infix: "\">\n",
    between: "\n<invoke name=\"",
    end: "\n</minimax:tool_call>",
    ..NO_SYNTAX
};

const DSML_READ: Syntax = Syntax {
    open: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
    close: &["</｜DSML｜invoke>", "</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
    form: Form::Tagged(&tags::DSML),
    begin: "\n<｜DSML｜invoke name=\"",
    infix: "\">\n",
    between: "\n<｜DSML｜invoke name=\"",
    ..NO_SYNTAX
};

pub(super) static DSML: Syntax = Syntax { end: "\n</｜DSML｜function_calls>", ..DSML_READ };

pub(super) static DSML_CALLS: Syntax = Syntax {
    open: &["<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"],
    end: "\n</｜DSML｜tool_calls>",
    ..DSML_READ
};

pub(super) static GEMMA: Syntax = Syntax {
    open: &["<|tool_call>"],
    prefix: &["call:"],
    close: &["<tool_call|>"],
    form: Form::Gemma,
    begin: "call:",
    infix: "{",
    between: "<tool_call|><|tool_call>call:",
    end: "<tool_call|>",
    ..NO_SYNTAX
};

pub(super) static LFM2: Syntax = Syntax {
    open: &["<|tool_call_start|>"],
    close: &["<|tool_call_end|>"],
    form: Form::Python,
    begin: "[",
    infix: "(",
    between: ", ",
    end: "]<|tool_call_end|>",
    ..NO_SYNTAX
};
