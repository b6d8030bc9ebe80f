//! A conversation: messages, tools, and what the model's template is told beside
//! them. Every chat dialect reads its own shapes into this.

use serde_json::{Map, Value};

/// A conversation to be continued.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The messages, oldest first; at least one.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it may, or must.
    pub tool_choice: ToolChoice,
    /// It may call several at once.
    pub parallel_tool_calls: bool,
    /// The JSON schema of an answer that calls none of them.
    pub form: Option<Value>,
    /// More variables for the template.
    pub template_kwargs: Map<String, Value>,
    /// The last message is the beginning of the answer.
    pub continue_final_message: bool,
    /// The prompt ends with the last message, and does not begin an answer.
    pub without_generation_prompt: bool,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// Whose it is: `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: Role,
    /// What it says.
    pub content: Content,
    /// The name of its author, or of the tool that answers.
    pub name: Option<String>,
    /// What an assistant thought before it said this.
    pub reasoning: Option<String>,
    /// What an assistant called.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool answers.
    pub tool_call_id: Option<String>,
}

/// Whose message it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The operator's instructions.
    System,
    /// The same, as OpenAI's newer models call it.
    Developer,
    /// The person's.
    #[default]
    User,
    /// The model's.
    Assistant,
    /// What a tool answered.
    Tool,
}

impl Role {
    /// Its name, as templates know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::Developer => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// Nothing: an assistant that only calls tools.
    #[default]
    None,
    /// Text.
    Text(String),
    /// Text in parts, which some templates want to see apart.
    Parts(Vec<String>),
}

impl Content {
    /// The whole text: parts are lines of it, as llama-server and vLLM have it.
    pub fn text(&self) -> String {
        match self {
            Content::None => String::new(),
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.join("\n"),
        }
    }
}

/// Something an assistant called.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The client's or the server's name for this call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: an object, or the text that was to be one.
    pub arguments: Value,
}

/// Something that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
    /// All of it in OpenAI's shape, as templates want it.
    pub definition: Value,
}

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Never; the template does not see them either.
    #[default]
    None,
    /// When the model wants to.
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}
