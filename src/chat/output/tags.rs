//! The tags of each family that writes a call's arguments between tags.

/// The tags of a family. The lists are for reading: one of them, or none if the list is empty. The
/// texts are for writing; they include line breaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tags {
    /// Before a function's name.
    pub name: &'static [&'static str],
    /// After a function's name.
    pub name_end: &'static [&'static str],
    /// Before a parameter's name, and at the end of a call.
    pub members: [&'static str; 2],
    /// After a parameter's name.
    pub key_end: &'static [&'static str],
    /// Between `key_end` and the value.
    pub value: &'static [&'static str],
    /// After a value.
    pub value_end: &'static str,
    /// Whether a line break after a value's opening tag, and one before its closing tag, are not a
    /// part of the value.
    pub value_on_lines: bool,

    /// The text between a parameter's name and a value that is a string.
    pub before_text: &'static str,
    /// The text between a parameter's name and a value in JSON.
    pub before_json: &'static str,
    /// The text between a value in JSON and `value_end`.
    pub after_json: &'static str,
    /// The text after `value_end`.
    pub after_value: &'static str,
    /// The text after the last parameter.
    pub end: &'static str,
}

/// The ends of a parameter's name in DSML, which show the type of the value.
pub(super) const IS_STRING: &str = "\" string=\"true\">";
pub(super) const IS_JSON: &str = "\" string=\"false\">";

const FUNCTION: Tags = Tags {
    name: &["<function="],
    name_end: &[">"],
    members: ["<parameter=", "</function>"],
    key_end: &[">"],
    value: &[],
    value_end: "</parameter>",
    value_on_lines: true,
    before_text: ">\n",
    before_json: ">\n",
    after_json: "\n",
    after_value: "\n",
    end: "</function>",
};

/// The tags of Qwen3-Coder.
pub(super) static QWEN_CODER: Tags = FUNCTION;

/// The tags of Seed-OSS, which writes a value without line breaks around it.
pub(super) static SEED: Tags =
    Tags { value_on_lines: false, before_text: ">", before_json: ">", after_json: "", ..FUNCTION };

/// The tags of GLM-4.7.
pub(super) static GLM: Tags = Tags {
    name: &[],
    name_end: &[],
    members: ["<arg_key>", "</tool_call>"],
    key_end: &["</arg_key>"],
    value: &["<arg_value>"],
    value_end: "</arg_value>",
    value_on_lines: false,
    before_text: "</arg_key><arg_value>",
    before_json: "</arg_key><arg_value>",
    after_json: "",
    after_value: "",
    // The row of the family has the closing tag.
    end: "",
};

/// The tags of GLM-4.5 and GLM-4.6.
pub(super) static GLM_LINES: Tags = Tags {
    before_text: "</arg_key>\n<arg_value>",
    before_json: "</arg_key>\n<arg_value>",
    after_value: "\n",
    ..GLM
};

/// The tags of MiniMax M2.
pub(super) static MINIMAX: Tags = Tags {
    name: &["<invoke name=\""],
    name_end: &["\">"],
    members: ["<parameter name=\"", "</invoke>"],
    key_end: &["\">"],
    value: &[],
    value_end: "</parameter>",
    value_on_lines: false,
    before_text: "\">",
    before_json: "\">",
    after_json: "",
    after_value: "\n",
    end: "</invoke>",
};

/// The tags of DeepSeek V3.2. Their bars are those of DeepSeek's tokens.
pub(super) static DSML: Tags = Tags {
    name: &["<｜DSML｜invoke name=\""],
    name_end: &["\">"],
    members: ["<｜DSML｜parameter name=\"", "</｜DSML｜invoke>"],
    key_end: &[IS_STRING, IS_JSON, "\">"],
    value: &[],
    value_end: "</｜DSML｜parameter>",
    value_on_lines: false,
    before_text: IS_STRING,
    before_json: IS_JSON,
    after_json: "",
    after_value: "\n",
    end: "</｜DSML｜invoke>",
};

impl Tags {
    /// All texts of the tags.
    pub fn texts(&self) -> Vec<&'static str> {
        let lists = [self.name, self.name_end, &self.members, self.key_end, self.value];
        let mut texts = lists.concat();
        texts.extend([self.value_end, self.before_text, self.before_json, self.end]);
        texts
    }
}
