//! How families of chat models write tool calls. Each family is a row of a table, in `rows`.

use super::form::Syntax;
use super::rows;

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
    /// `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{..}`: Kimi K2.
    Kimi,
    /// `<TOOLCALL>[{"name": .., "arguments": {..}}, ..]</TOOLCALL>`: Nemotron Nano 2.
    NemotronList,
    /// `<function=name>` with `<parameter=key>` inside, in `<tool_call>`: Qwen3-Coder, Qwen 3.5,
    /// Nemotron 3.
    QwenCoder,
    /// Qwen3-Coder's tags in `<seed:tool_call>`: Seed-OSS.
    Seed,
    /// `<tool_call>name` with `<arg_key>` and `<arg_value>` on lines: GLM-4.5 and 4.6.
    GlmLines,
    /// GLM-4.5's tags without line breaks: GLM-4.7.
    Glm,
    /// `<invoke name="..">` with `<parameter name="..">` inside: MiniMax M2.
    MiniMax,
    /// MiniMax's tags with DeepSeek's bars, in `function_calls`: DeepSeek V3.2.
    Dsml,
    /// DeepSeek V3.2's tags in `tool_calls`: DeepSeek V4.
    DsmlCalls,
    /// `<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>`: Gemma 4.
    Gemma,
    /// `<|tool_call_start|>[name(key="text"), ..]<|tool_call_end|>`: LFM2.
    Lfm2,
}

impl ToolSyntax {
    /// All families.
    pub const ALL: [Self; 22] = [
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
        Self::Kimi,
        Self::NemotronList,
        Self::QwenCoder,
        Self::Seed,
        Self::GlmLines,
        Self::Glm,
        Self::MiniMax,
        Self::Dsml,
        Self::DsmlCalls,
        Self::Gemma,
        Self::Lfm2,
    ];

    /// Finds a chat template's family by the markers in its source. Returns `None` if the template
    /// has no tools (Gemma 3, Llama 2, ChatML...).
    pub fn of_template(source: &str) -> Option<Self> {
        let has = |marker: &str| source.contains(marker);
        // The first marker found decides; rare markers come first.
        let families = [
            (has("<minimax:tool_call>"), Self::MiniMax),
            (has("<seed:tool_call>"), Self::Seed),
            (has("｜DSML｜") && has("function_calls"), Self::Dsml),
            (has("｜DSML｜"), Self::DsmlCalls),
            // The first templates of Kimi K2 and of LFM2 show only the list of tools.
            (has("<|tool_calls_section_begin|>") || has("tool_declare<|im_middle|>"), Self::Kimi),
            (has("<|tool_call>call:") || has("<tool_call|>"), Self::Gemma),
            (has("<|tool_call_start|>") || has("<|tool_list_start|>"), Self::Lfm2),
            (has("<TOOLCALL>"), Self::NemotronList),
            (has("</arg_key><arg_value>"), Self::Glm),
            (has("<arg_key>"), Self::GlmLines),
            (has("<function="), Self::QwenCoder),
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
            Self::Hermes => &rows::HERMES,
            Self::Llama3 => &rows::LLAMA_3,
            Self::MistralList => &rows::MISTRAL_LIST,
            Self::MistralNamed => &rows::MISTRAL_NAMED,
            Self::DeepSeekFenced => &rows::DEEPSEEK_FENCED,
            Self::DeepSeek => &rows::DEEPSEEK,
            Self::CommandR => &rows::COMMAND_R,
            Self::CommandRFenced => &rows::COMMAND_R_FENCED,
            Self::Granite => &rows::GRANITE,
            Self::Phi4 => &rows::PHI_4,
            Self::Harmony => &rows::HARMONY,
            Self::Kimi => &rows::KIMI,
            Self::NemotronList => &rows::NEMOTRON_LIST,
            Self::QwenCoder => &rows::QWEN_CODER,
            Self::Seed => &rows::SEED,
            Self::GlmLines => &rows::GLM_LINES,
            Self::Glm => &rows::GLM,
            Self::MiniMax => &rows::MINIMAX,
            Self::Dsml => &rows::DSML,
            Self::DsmlCalls => &rows::DSML_CALLS,
            Self::Gemma => &rows::GEMMA,
            Self::Lfm2 => &rows::LFM2,
        }
    }
}

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
            ("<|start_of_role|>{{ role }}<|end_of_role|><tool_call>\\n{\"name\": ", Some(Hermes)),
            ("<tool_call>\\n<function=example>", Some(QwenCoder)),
            ("<seed:tool_call>\\n<function=example>", Some(Seed)),
            ("<tool_call>{{ name }}\\n<arg_key>{{ k }}</arg_key>\n<arg_value>", Some(GlmLines)),
            ("<tool_call>{{ name }}<arg_key>{{ k }}</arg_key><arg_value>", Some(Glm)),
            ("<tools></tools> '<minimax:tool_call>'", Some(MiniMax)),
            ("dsml_token = '｜DSML｜' <{{ dsml_token }}function_calls>", Some(Dsml)),
            ("dsml_token = '｜DSML｜' <{{ dsml_token }}tool_calls>", Some(DsmlCalls)),
            ("<|tool_calls_section_begin|><|tool_call_begin|>", Some(Kimi)),
            ("'<|tool_call>call:' + name", Some(Gemma)),
            ("'<|tool_call_start|>['", Some(Lfm2)),
            ("List of tools: <|tool_list_start|>[", Some(Lfm2)),
            ("'<TOOLCALL>['", Some(NemotronList)),
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
