//! How families of chat models write tool calls. Each family is a row of a table.

/// A family's form of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSyntax {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, for each call: Hermes, Qwen
    /// 2.5 and 3, SmolLM3, Granite 4.
    Hermes,
    /// `{"name": .., "parameters": {..}}`, one call: Llama 3.
    Llama3,
    /// `[TOOL_CALLS] [{"name": .., "arguments": {..}}, ..]`: Mistral until 2024.
    MistralList,
    /// `[TOOL_CALLS]name[ARGS]{..}`, for each call: Mistral since 2024.
    MistralNamed,
    /// The name and a fenced block between DeepSeek's markers: DeepSeek V3 and R1.
    DeepSeekFenced,
    /// The name and the arguments between DeepSeek's markers: DeepSeek V3.1.
    DeepSeek,
    /// `<|START_ACTION|>[{"tool_name": .., "parameters": {..}}, ..]`: Command R7B, Command A.
    CommandR,
    /// Command R's list, in a code fence after `Action:`: the first Command R.
    CommandRFenced,
    /// `<|tool_call|>[{"name": .., "arguments": {..}}, ..]`: Granite 3.
    Granite,
    /// Granite's list between `<|tool_call|>` and `<|/tool_call|>`: Phi-4-mini.
    Phi4,
    /// Messages on channels, `to=functions.name`: gpt-oss.
    Harmony,
}

impl ToolSyntax {
    /// All families.
    pub const ALL: [Self; 11] = [
        Self::Hermes,
        Self::Llama3,
        Self::MistralList,
        Self::MistralNamed,
        Self::DeepSeekFenced,
        Self::DeepSeek,
        Self::CommandR,
        Self::CommandRFenced,
        Self::Granite,
        Self::Phi4,
        Self::Harmony,
    ];

    /// Finds a chat template's family by the markers in its source. Returns `None` if the template
    /// has no tools (Gemma, Llama 2, ChatML...) or writes calls without JSON (Qwen3-Coder, GLM).
    pub fn of_template(source: &str) -> Option<Self> {
        let has = |marker: &str| source.contains(marker);
        // `<tool_call>` with XML inside.
        if has("<function=") || has("<arg_key>") {
            return None;
        }
        // The first marker found decides; rare markers come first.
        let families = [
            (has("<|channel|>"), Self::Harmony),
            (has("<|START_ACTION|>"), Self::CommandR),
            (has("Action: ```json"), Self::CommandRFenced),
            (has("<｜tool▁calls▁begin｜>") && has("```json"), Self::DeepSeekFenced),
            (has("<｜tool▁calls▁begin｜>"), Self::DeepSeek),
            (has("[TOOL_CALLS]") && has("[ARGS]"), Self::MistralNamed),
            (has("[TOOL_CALLS]"), Self::MistralList),
            (has("<|tool|>") && has("<|/tool|>"), Self::Phi4),
            (has("<|tool_call|>"), Self::Granite),
            (has("<|python_tag|>") || has("<|start_header_id|>ipython"), Self::Llama3),
            (has("<tool_call>") || has("<tools>"), Self::Hermes),
        ];
        families.into_iter().find(|(is_it, _)| *is_it).map(|(_, syntax)| syntax)
    }

    /// Whether a call may be a JSON object without a marker.
    pub fn is_bare(self) -> bool {
        self.row().bare
    }

    pub(super) fn row(self) -> &'static Syntax {
        match self {
            Self::Hermes => &HERMES,
            Self::Llama3 => &LLAMA_3,
            Self::MistralList => &MISTRAL_LIST,
            Self::MistralNamed => &MISTRAL_NAMED,
            Self::DeepSeekFenced => &DEEPSEEK_FENCED,
            Self::DeepSeek => &DEEPSEEK,
            Self::CommandR => &COMMAND_R,
            Self::CommandRFenced => &COMMAND_R_FENCED,
            Self::Granite => &GRANITE,
            Self::Phi4 => &PHI_4,
            Self::Harmony => &HARMONY,
        }
    }
}

/// A row of the table. The parser accepts more forms than the grammar, because models deviate from
/// their own form.
#[derive(Debug)]
pub(super) struct Syntax {
    /// The markers that start calls. Calls are written with the first one.
    pub open: &'static [&'static str],
    /// Words that may follow the marker and are not part of the call.
    pub prefix: &'static [&'static str],
    /// Separators between a name outside JSON and the arguments. Empty if calls are objects.
    pub separators: &'static [&'static str],
    /// Markers that may follow a call.
    pub close: &'static [&'static str],
    /// Markers that are never content.
    pub noise: &'static [&'static str],
    /// Whether an object at the start of the answer is a call, even without a marker.
    pub bare: bool,

    /// The text between the marker and the first name.
    pub begin: &'static str,
    /// The text between a name and its arguments.
    pub infix: &'static str,
    /// The text between the arguments of a call and the next name. Empty if an answer has one call
    /// only.
    pub between: &'static str,
    /// The text after the last arguments.
    pub end: &'static str,
}

/// The defaults of every row. Also the syntax of a message without tools.
pub(super) static NONE: Syntax = NO_SYNTAX;
const NO_SYNTAX: Syntax = Syntax {
    open: &[],
    prefix: &[],
    separators: &[],
    close: &[],
    noise: &[],
    bare: false,
    begin: "",
    infix: "",
    between: "",
    end: "",
};

static HERMES: Syntax = Syntax {
    open: &["<tool_call>"],
    close: &["</tool_call>"],
    begin: "\n{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
    end: "}\n</tool_call>",
    ..NO_SYNTAX
};

static LLAMA_3: Syntax = Syntax {
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

static MISTRAL_LIST: Syntax = Syntax {
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]",
    ..MISTRAL_READ
};

static MISTRAL_NAMED: Syntax = Syntax { infix: "[ARGS]", between: "[TOOL_CALLS]", ..MISTRAL_READ };

const DEEPSEEK_READ: Syntax = Syntax {
    open: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    prefix: &["function<｜tool▁sep｜>"],
    separators: &["<｜tool▁sep｜>", "```json"],
    close: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    ..NO_SYNTAX
};

static DEEPSEEK_FENCED: Syntax = Syntax {
    begin: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    infix: "\n```json\n",
    between: "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    end: "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ..DEEPSEEK_READ
};

static DEEPSEEK: Syntax = Syntax {
    begin: "<｜tool▁call▁begin｜>",
    infix: "<｜tool▁sep｜>",
    between: "<｜tool▁call▁end｜><｜tool▁call▁begin｜>",
    end: "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ..DEEPSEEK_READ
};

static COMMAND_R: Syntax = Syntax {
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

static COMMAND_R_FENCED: Syntax = Syntax {
    open: &["Action:"],
    prefix: &["```json"],
    close: &["```"],
    begin: " ```json\n[\n    {\n        \"tool_name\": \"",
    infix: "\",\n        \"parameters\": ",
    between: "\n    },\n    {\n        \"tool_name\": \"",
    end: "\n    }\n]\n```",
    ..NO_SYNTAX
};

static GRANITE: Syntax = Syntax {
    open: &["<|tool_call|>", "<tool_call>"],
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]",
    ..NO_SYNTAX
};

static PHI_4: Syntax = Syntax {
    open: &["<|tool_call|>"],
    close: &["<|/tool_call|>"],
    begin: "[{\"name\": \"",
    infix: "\", \"arguments\": ",
    between: "}, {\"name\": \"",
    end: "}]<|/tool_call|>",
    ..NO_SYNTAX
};

/// Only for writing; `channels` reads this family.
static HARMONY: Syntax = Syntax {
    open: &["<|channel|>"],
    separators: &["<|constrain|>", "<|message|>"],
    close: &["<|start|>", "<|end|>"],
    begin: "commentary to=functions.",
    infix: " <|constrain|>json<|message|>",
    ..NO_SYNTAX
};

#[cfg(test)]
mod tests {
    use super::super::ReasoningSyntax;
    use super::*;

    #[test]
    fn a_template_shows_its_syntax() {
        use ToolSyntax::*;
        let cases = [
            ("{{ '<tool_call>\\n{\"name\": ' }}", Some(Hermes)),
            ("within <tools></tools> XML tags", Some(Hermes)),
            ("<tool_call>\\n<function=example>", None),
            ("<tool_call>{{ name }}\\n<arg_key>", None),
            ("{{- \"<|start_header_id|>ipython<|end_header_id|>\\n\\n\" }}", Some(Llama3)),
            ("{{- \"[TOOL_CALLS] [\" }}", Some(MistralList)),
            ("{{- '[TOOL_CALLS]' + name + '[ARGS]' }}", Some(MistralNamed)),
            ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + '```json'", Some(DeepSeekFenced)),
            ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name", Some(DeepSeek)),
            ("<|START_ACTION|>[", Some(CommandR)),
            ("{{ '\\nAction: ```json\\n[\\n' }}", Some(CommandRFenced)),
            ("<|end_of_role|><|tool_call|>", Some(Granite)),
            ("'<|tool|>' ~ tools ~ '<|/tool|>'", Some(Phi4)),
            ("<|channel|>analysis<|message|>", Some(Harmony)),
            ("<start_of_turn>user\\n{{ message.content }}<end_of_turn>", None),
            ("<|im_start|>{{ message.role }}", None),
        ];
        for (source, syntax) in cases {
            assert_eq!(ToolSyntax::of_template(source), syntax, "{source}");
        }
    }

    #[test]
    fn no_marker_begins_with_another_that_is_looked_for_beside_it() {
        let none_begins_another = |markers: &[&str]| {
            for (i, marker) in markers.iter().enumerate() {
                assert!(!marker.is_empty());
                let mut others = markers.iter().enumerate().filter(|(j, _)| *j != i);
                assert!(others.all(|(_, other)| !marker.starts_with(other)), "{marker}");
            }
        };
        none_begins_another(&ReasoningSyntax::ALL.map(ReasoningSyntax::opener));
        none_begins_another(&ReasoningSyntax::ALL.map(ReasoningSyntax::closer));
        for syntax in ToolSyntax::ALL {
            let row = syntax.row();
            none_begins_another(&[row.open, row.noise].concat());
            none_begins_another(row.prefix);
            none_begins_another(row.separators);
            none_begins_another(row.close);
        }
    }
}
