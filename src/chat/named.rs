//! Chat templates with the names that llama.cpp gives them, for `--chat-template NAME`.
//!
//! In llama.cpp they are code. Here each is a template in Jinja. A test compares both.

use std::fmt::Write;

/// A template in which the text of a turn does not depend on other turns.
struct Form {
    name: &'static str,
    /// At the start.
    start: &'static str,
    /// At the start, unless the first turn is the system's.
    without_system: &'static str,
    /// The turns of the system, the user and the assistant. `{}` is the text, `{trim}` the text
    /// without the space around it, `ROLE` the role. An empty turn is left out.
    turns: [&'static str; 3],
    /// The start of the answer.
    answer: &'static str,
}

const ROLES: [&str; 3] = ["system", "user", "assistant"];

/// The source of the template with this name.
pub fn source(name: &str) -> Option<String> {
    if let Some((_, source)) = SOURCES.iter().find(|(known, _)| *known == name) {
        return Some((*source).to_owned());
    }
    FORMS.iter().find(|form| form.name == name).map(Form::source)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.name).chain(SOURCES.iter().map(|(name, _)| *name))
}

impl Form {
    const fn start(self, start: &'static str) -> Self {
        Self { start, ..self }
    }

    const fn without_system(self, without_system: &'static str) -> Self {
        Self { without_system, ..self }
    }

    fn source(&self) -> String {
        let mut source = literal(self.start);
        if !self.without_system.is_empty() {
            let text = literal(self.without_system);
            write!(source, "{{% if messages[0].role != \"system\" %}}{text}{{% endif %}}")
                .expect("a String takes all");
        }
        source.push_str("{% for m in messages %}");
        for (role, turn) in ROLES.iter().zip(self.turns).filter(|(_, turn)| !turn.is_empty()) {
            let turn = turn.replace("ROLE", role);
            let (before, after, text) = match turn.split_once("{trim}") {
                Some((before, after)) => (before, after, "{{ m.content | trim }}"),
                None => {
                    let (before, after) = turn.split_once("{}").expect("a turn has a text");
                    (before, after, "{{ m.content }}")
                }
            };
            let (before, after) = (literal(before), literal(after));
            write!(source, "{{% if m.role == \"{role}\" %}}{before}{text}{after}{{% endif %}}")
                .expect("a String takes all");
        }
        let answer = literal(self.answer);
        write!(source, "{{% endfor %}}{{% if add_generation_prompt %}}{answer}{{% endif %}}")
            .expect("a String takes all");
        source
    }
}

/// An expression that prints a text as it is.
fn literal(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("{{{{ {} }}}}", serde_json::to_string(text).expect("a string is JSON"))
}

/// A form whose turns differ only in their role.
const fn same(name: &'static str, turn: &'static str, answer: &'static str) -> Form {
    form(name, [turn; 3], answer)
}

const fn form(name: &'static str, turns: [&'static str; 3], answer: &'static str) -> Form {
    Form { name, start: "", without_system: "", turns, answer }
}

const FORMS: &[Form] = &[
    same("chatml", "<|im_start|>ROLE\n{}<|im_end|>\n", "<|im_start|>assistant\n"),
    same("phi3", "<|ROLE|>\n{}<|end|>\n", "<|assistant|>\n"),
    same("phi4", "<|im_start|>ROLE<|im_sep|>{}<|im_end|>", "<|im_start|>assistant<|im_sep|>"),
    same("falcon3", "<|ROLE|>\n{}\n", "<|assistant|>\n"),
    same("zephyr", "<|ROLE|>\n{}<|endoftext|>\n", "<|assistant|>\n"),
    same(
        "llama3",
        "<|start_header_id|>ROLE<|end_header_id|>\n\n{trim}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    same(
        "llama4",
        "<|header_start|>ROLE<|header_end|>\n\n{trim}<|eot|>",
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    same("chatglm3", "<|ROLE|>\n {}", "<|assistant|>").start("[gMASK]sop"),
    same("chatglm4", "<|ROLE|>\n{}", "<|assistant|>\n").start("[gMASK]<sop>"),
    same("glmedge", "<|ROLE|>\n{}", "<|assistant|>"),
    same("granite", GRANITE, GRANITE_ANSWER),
    same("granite-4.0", GRANITE, GRANITE_ANSWER),
    same("granite-4.1", GRANITE, GRANITE_ANSWER),
    same(
        "megrez",
        "<|role_start|>ROLE<|role_end|>{}<|turn_end|>",
        "<|role_start|>assistant<|role_end|>",
    ),
    same("solar-open", "<|begin|>ROLE<|content|>{}<|end|>", "<|begin|>assistant"),
    same("deepseek-ocr", "{}", ""),
    form("mistral-v7", ["[SYSTEM_PROMPT] {}[/SYSTEM_PROMPT]", "[INST] {}[/INST]", " {}</s>"], ""),
    form(
        "mistral-v7-tekken",
        ["[SYSTEM_PROMPT]{}[/SYSTEM_PROMPT]", "[INST]{}[/INST]", "{}</s>"],
        "",
    ),
    form(
        "openchat",
        [
            "{}<|end_of_turn|>",
            "GPT4 Correct User: {}<|end_of_turn|>",
            "GPT4 Correct Assistant: {}<|end_of_turn|>",
        ],
        "GPT4 Correct Assistant:",
    ),
    form("vicuna", ["{}\n\n", "USER: {}\n", "ASSISTANT: {}</s>\n"], "ASSISTANT:"),
    form("vicuna-orca", ["SYSTEM: {}\n", "USER: {}\n", "ASSISTANT: {}</s>\n"], "ASSISTANT:"),
    form(
        "deepseek",
        ["{}", "### Instruction:\n{}\n", "### Response:\n{}\n<|EOT|>\n"],
        "### Response:\n",
    ),
    form(
        "deepseek2",
        ["{}\n\n", "User: {}\n\n", "Assistant: {}<｜end▁of▁sentence｜>"],
        "Assistant:",
    ),
    form(
        "deepseek3",
        ["{}\n\n", "<｜User｜>{}", "<｜Assistant｜>{}<｜end▁of▁sentence｜>"],
        "<｜Assistant｜>",
    ),
    form(
        "command-r",
        [
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{trim}<|END_OF_TURN_TOKEN|>",
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{trim}<|END_OF_TURN_TOKEN|>",
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{trim}<|END_OF_TURN_TOKEN|>",
        ],
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    form("minicpm", ["{trim}", "<用户>{trim}<AI>", "{trim}"], ""),
    form("exaone3", EXAONE, "[|assistant|]"),
    form("exaone4", EXAONE, "[|assistant|]"),
    same("exaone-moe", "<|ROLE|>\n{trim}<|endofturn|>\n", "<|assistant|>\n"),
    form(
        "gpt-oss",
        [
            "<|start|>system<|message|>{}<|end|>",
            "<|start|>user<|message|>{}<|end|>",
            "<|start|>assistant<|message|>{}<|return|>",
        ],
        "<|start|>assistant",
    ),
    form(
        "hunyuan-moe",
        ["<|startoftext|>{}<|extra_4|>", "<|startoftext|>{}<|extra_0|>", "{}<|eos|>"],
        "",
    ),
    form(
        "hunyuan-dense",
        [
            "{}<｜hy_place▁holder▁no▁3｜>",
            "<｜hy_User｜>{}<｜hy_Assistant｜>",
            "<｜hy_Assistant｜>{}<｜hy_place▁holder▁no▁2｜>",
        ],
        "",
    ),
    form(
        "hunyuan-vl",
        ["{}<｜hy_place▁holder▁no▁3｜>", "{}<｜hy_User｜>", "{}<｜hy_Assistant｜>"],
        "",
    )
    .start("<｜hy_begin▁of▁sentence｜>"),
    form(
        "kimi-k2",
        [
            "<|im_system|>system<|im_middle|>{}<|im_end|>",
            "<|im_user|>user<|im_middle|>{}<|im_end|>",
            "<|im_assistant|>assistant<|im_middle|>{}<|im_end|>",
        ],
        "<|im_assistant|>assistant<|im_middle|>",
    ),
    form(
        "seed_oss",
        [
            "<seed:bos>system\n{}<seed:eos>",
            "<seed:bos>user\n{}<seed:eos>",
            "<seed:bos>assistant\n{trim}<seed:eos>",
        ],
        "<seed:bos>assistant\n",
    ),
    form(
        "grok-2",
        [
            "System: {trim}<|separator|>\n\n",
            "Human: {trim}<|separator|>\n\n",
            "Assistant: {}<|separator|>\n\n",
        ],
        "Assistant:",
    ),
    form(
        "gigachat",
        [
            "{}<|message_sep|>",
            "user<|role_sep|>{}<|message_sep|>available functions<|role_sep|>[]<|message_sep|>",
            "assistant<|role_sep|>{}<|message_sep|>",
        ],
        "assistant<|role_sep|>",
    )
    .start("<s>"),
    form("yandex", ["", " Пользователь: {}\n\n", " Ассистент: {}\n\n"], " Ассистент:[SEP]"),
    form("bailing", BAILING, "<role>ASSISTANT</role>"),
    form("bailing-think", BAILING, "<role>ASSISTANT</role><think>"),
    form(
        "bailing2",
        [
            "<role>SYSTEM</role>{}<|role_end|>",
            "<role>HUMAN</role>{}<|role_end|>",
            "<role>ASSISTANT</role>{}<|role_end|>",
        ],
        "<role>ASSISTANT</role>",
    )
    .without_system("<role>SYSTEM</role>detailed thinking off<|role_end|>"),
    form(
        "smolvlm",
        ["{}\n\n", "User: {}<end_of_utterance>\n", "Assistant: {}<end_of_utterance>\n"],
        "Assistant:",
    )
    .start("<|im_start|>"),
    form(
        "rwkv-world",
        ["System: {trim}\n\n", "User: {trim}\n\n", "Assistant: {trim}\n\n"],
        "Assistant:",
    ),
    form(
        "pangu-embedded",
        [
            "[unused9]系统：{}[unused10]",
            "[unused9]用户：{}[unused10]",
            "[unused9]助手：{}[unused10]",
        ],
        "[unused9]助手：",
    )
    .without_system("[unused9]系统：[unused10]"),
];

const GRANITE: &str = "<|start_of_role|>ROLE<|end_of_role|>{}<|end_of_text|>\n";
const GRANITE_ANSWER: &str = "<|start_of_role|>assistant<|end_of_role|>";
const EXAONE: [&str; 3] =
    ["[|system|]{trim}[|endofturn|]\n", "[|user|]{trim}\n", "[|assistant|]{trim}[|endofturn|]\n"];
const BAILING: [&str; 3] =
    ["<role>SYSTEM</role>{}", "<role>HUMAN</role>{}", "<role>ASSISTANT</role>{}"];

/// A template in which turns form exchanges: `$open` is printed at the start of an exchange, and
/// the assistant's turn ends it.
macro_rules! exchanges {
    ($first:literal, $open:literal, $system:literal, $user:literal, $assistant:literal) => {
        concat!(
            "{{ \"",
            $first,
            "\" }}{% for m in messages %}{% if not loop.first and loop.previtem.role == \"assistant\" \
             %}{{ \"",
            $open,
            "\" }}{% endif %}{% if m.role == \"system\" %}",
            $system,
            "{% elif m.role == \"user\" %}",
            $user,
            "{% else %}",
            $assistant,
            "{% endif %}{% endfor %}"
        )
    };
}

const SOURCES: &[(&str, &str)] = &[
    (
        "llama2",
        exchanges!(
            "[INST] ",
            "[INST] ",
            "{{ m.content }}{{ \"\\n\" }}",
            "{{ m.content }}{{ \" [/INST]\" }}",
            "{{ m.content }}{{ \"</s>\" }}"
        ),
    ),
    (
        "llama2-sys",
        exchanges!(
            "[INST] ",
            "[INST] ",
            "{{ \"<<SYS>>\\n\" }}{{ m.content }}{{ \"\\n<</SYS>>\\n\\n\" }}",
            "{{ m.content }}{{ \" [/INST]\" }}",
            "{{ m.content }}{{ \"</s>\" }}"
        ),
    ),
    (
        "llama2-sys-bos",
        exchanges!(
            "[INST] ",
            "<s>[INST] ",
            "{{ \"<<SYS>>\\n\" }}{{ m.content }}{{ \"\\n<</SYS>>\\n\\n\" }}",
            "{{ m.content }}{{ \" [/INST]\" }}",
            "{{ m.content }}{{ \"</s>\" }}"
        ),
    ),
    (
        "llama2-sys-strip",
        exchanges!(
            "[INST] ",
            "[INST] ",
            "{{ \"<<SYS>>\\n\" }}{{ m.content | trim }}{{ \"\\n<</SYS>>\\n\\n\" }}",
            "{{ m.content | trim }}{{ \" [/INST]\" }}",
            "{{ m.content | trim }}{{ \"</s>\" }}"
        ),
    ),
    (
        "mistral-v1",
        exchanges!(
            " [INST] ",
            " [INST] ",
            "{{ m.content }}{{ \"\\n\\n\" }}",
            "{{ m.content }}{{ \" [/INST]\" }}",
            "{{ \" \" }}{{ m.content }}{{ \"</s>\" }}"
        ),
    ),
    (
        "mistral-v3",
        exchanges!(
            "[INST] ",
            "[INST] ",
            "{{ m.content }}{{ \"\\n\\n\" }}",
            "{{ m.content }}{{ \"[/INST]\" }}",
            "{{ \" \" }}{{ m.content | trim }}{{ \"</s>\" }}"
        ),
    ),
    (
        "mistral-v3-tekken",
        exchanges!(
            "[INST]",
            "[INST]",
            "{{ m.content }}{{ \"\\n\\n\" }}",
            "{{ m.content }}{{ \"[/INST]\" }}",
            "{{ m.content }}{{ \"</s>\" }}"
        ),
    ),
    (
        "monarch",
        "{% for m in messages %}{% if not loop.first %}{{ \"<s>\" }}{% endif %}{{ m.role }}\
         {{ \"\\n\" }}{{ m.content }}{{ \"</s>\\n\" }}{% endfor %}\
         {% if add_generation_prompt %}{{ \"<s>assistant\\n\" }}{% endif %}",
    ),
    (
        "gemma",
        "{% set ns = namespace(system=\"\") %}{% for m in messages %}{% if m.role == \"system\" %}\
         {% set ns.system = ns.system ~ (m.content | trim) %}{% else %}{{ \"<start_of_turn>\" }}\
         {{ \"model\" if m.role == \"assistant\" else m.role }}{{ \"\\n\" }}\
         {% if ns.system and m.role != \"assistant\" %}{{ ns.system }}{{ \"\\n\\n\" }}\
         {% set ns.system = \"\" %}{% endif %}{{ m.content | trim }}{{ \"<end_of_turn>\\n\" }}\
         {% endif %}{% endfor %}{% if add_generation_prompt %}{{ \"<start_of_turn>model\\n\" }}\
         {% endif %}",
    ),
    (
        "orion",
        "{% set ns = namespace(system=\"\") %}{% for m in messages %}{% if m.role == \"system\" %}\
         {% set ns.system = ns.system ~ m.content %}{% elif m.role == \"user\" %}{{ \"Human: \" }}\
         {% if ns.system %}{{ ns.system }}{{ \"\\n\\n\" }}{% set ns.system = \"\" %}{% endif %}\
         {{ m.content }}{{ \"\\n\\nAssistant: </s>\" }}{% else %}{{ m.content }}{{ \"</s>\" }}\
         {% endif %}{% endfor %}",
    ),
];
