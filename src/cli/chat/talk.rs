//! The flags that `corelane chat` and `corelane run` share.

use clap::Args;
use corelane::config::ServeConfig;
use corelane::flags::EngineArgs;

use super::client::{Request, StreamOptions};
use super::conversation::Conversation;
use super::server::Server;
use crate::cli::template::TemplateArgs;

/// Whom to ask, and how.
#[derive(Clone, Debug, Args)]
pub struct TalkArgs {
    /// Ask the server at this URL instead of starting one: any with OpenAI's API
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub url: Option<String>,
    /// Name of the model to ask at --url [default: the first that the server lists]
    #[arg(long, value_name = "NAME", requires = "url", help_heading = "Server")]
    url_model: Option<String>,
    /// API key for the server at --url; of several, separated by commas, the first
    #[arg(long, value_name = "KEY", hide_env_values = true, help_heading = "Server")]
    api_key: Option<String>,

    /// System prompt (also -sys)
    #[arg(long, visible_alias = "system", value_name = "TEXT", help_heading = "Answers")]
    pub system_prompt: Option<String>,
    /// Most tokens of an answer [default: as many as fit]
    #[arg(
        short,
        long,
        visible_alias = "predict",
        value_name = "N",
        value_parser = at_least_one,
        allow_negative_numbers = true,
        help_heading = "Answers"
    )]
    n_predict: Option<i64>,
    /// Most tokens of reasoning; 0 answers without it, -1 sets no limit [default: -1]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)),
        allow_negative_numbers = true,
        help_heading = "Answers"
    )]
    reasoning_budget: Option<i64>,
    /// Temperature; 0 always takes the likeliest token [default: the server's]
    #[arg(long, visible_alias = "temperature", value_name = "T", value_parser = finite, help_heading = "Answers")]
    temp: Option<f32>,
    /// Choose among the K likeliest tokens [default: the server's]
    #[arg(long, value_name = "K", help_heading = "Answers")]
    top_k: Option<u32>,
    /// Choose among the likeliest tokens whose probabilities sum up to P [default: the server's]
    #[arg(long, value_name = "P", value_parser = finite, help_heading = "Answers")]
    top_p: Option<f32>,
    /// Choose among tokens with at least P times the probability of the likeliest [default: the server's]
    #[arg(long, value_name = "P", value_parser = finite, help_heading = "Answers")]
    min_p: Option<f32>,
    /// Seed; the same one gives the same answer [default: another one for each answer]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, help_heading = "Answers")]
    seed: Option<i64>,

    #[command(flatten)]
    pub engine: EngineArgs,
    /// Tokens of context; 0 chooses by the model and memory
    #[arg(short, long, value_name = "N", default_value_t = 0, help_heading = "KV cache")]
    ctx_size: u32,
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Log level of the server inside: error, warn, info, debug or trace
    #[arg(long, value_name = "FILTER", default_value = "error", help_heading = "Server")]
    pub log: String,
}

/// A number of tokens, or -1 for as many as fit.
fn at_least_one(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(tokens) if tokens == -1 || (1..=i64::from(u32::MAX)).contains(&tokens) => Ok(tokens),
        _ => Err("it must be at least 1, or -1 for as many as fit".into()),
    }
}

/// A number that JSON can hold.
fn finite(text: &str) -> Result<f32, String> {
    let number = text.parse::<f32>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "it must be a number such as 0.7".into())
}

impl TalkArgs {
    /// The server at `--url`, or one inside this process.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn server(&self) -> Result<Server, String> {
        if let Some(url) = &self.url {
            let keys = self.api_key.as_deref().unwrap_or_default();
            let key = keys.split(',').next().filter(|key| !key.is_empty());
            let mut server = Server::at(url, key.map(str::to_owned))?;
            if let Some(name) = &self.url_model {
                server.choose(name)?;
            }
            return Ok(server);
        }
        let chat_template = self.template.read()?;
        Server::inside(&self.engine, |config| ServeConfig {
            context_tokens: (self.ctx_size != 0).then_some(self.ctx_size),
            parallel: 1,
            cache_ram: Some(0), // the KV cache itself has room for the one conversation
            chat_template,
            ..config
        })
    }

    /// The request for the answer to a conversation.
    pub fn request(&self, server: &Server, conversation: &Conversation) -> Request {
        // -1 is the default in every flag of llama.cpp.
        let some = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        Request {
            model: server.model().to_owned(),
            messages: conversation.all(),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            max_tokens: some(self.n_predict),
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed.and_then(|seed| u64::try_from(seed).ok()),
            reasoning_budget: some(self.reasoning_budget),
        }
    }
}
