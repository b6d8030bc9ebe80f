//! The server that is asked: one at a URL, or one inside this process.

use corelane::config::ServeConfig;
use corelane::flags::EngineArgs;
use corelane::keys::ApiKey;
use corelane::lanes;
use corelane::server::listener::Address;

use super::client::Client;
use crate::cli::progress::progress_bar;
use crate::cli::random;

/// Bytes of the key of a server inside this process, which listens on an address that every user of the machine can
/// reach.
const KEY_BYTES: usize = 16;

/// A server to ask.
pub struct Server {
    client: Client,
    model: String,
    inside: Option<lanes::Server>,
}

impl Server {
    /// The server at a URL.
    ///
    /// # Errors
    /// A sentence for the user, if it does not answer.
    pub fn at(url: &str, key: Option<String>) -> Result<Self, String> {
        let client = Client::new(url, key)?;
        let model = client.models()?.into_iter().next();
        let model = model.ok_or_else(|| format!("the server at {url} has no model"))?;
        Ok(Self { client, model, inside: None })
    }

    /// Starts a server in this process, for this process alone. Downloads a model by name.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn inside(
        engine: &EngineArgs,
        config: impl FnOnce(ServeConfig) -> ServeConfig,
    ) -> Result<Self, String> {
        let key: [u8; KEY_BYTES] = random::bytes()?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let source = engine.obtain()?;
        let config = config(ServeConfig {
            keys: vec![ApiKey::plain(&key)],
            ui: false,
            entropy: u64::from_ne_bytes(random::bytes()?),
            ..engine.config()?
        });
        let mut server = lanes::Server::start(config)?;
        let served = server.load(&source, progress_bar(&source))?;
        let served = served.expect("nothing drains it before it serves");
        let Some(address @ Address::Tcp(_)) = server.addresses().first() else {
            return Err("a server inside this process needs no socket of a service manager".into());
        };
        let client = Client::new(&address.to_string(), Some(key))?;
        Ok(Self { client, model: served.name.clone(), inside: Some(server) })
    }

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The name of the model that answers.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The names of all its models.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn models(&self) -> Result<Vec<String>, String> {
        self.client.models()
    }

    /// Changes to another model.
    ///
    /// # Errors
    /// If the server has none of this name.
    pub fn choose(&mut self, name: &str) -> Result<(), String> {
        let models = self.models()?;
        if !models.iter().any(|model| model == name) {
            return Err(format!("the server has no model {name}; it has {}", models.join(", ")));
        }
        name.clone_into(&mut self.model);
        Ok(())
    }

    /// Ends the server, if it is inside this process.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn end(self) -> Result<(), String> {
        let Some(server) = self.inside else { return Ok(()) };
        server.control().drain();
        server.join()
    }
}
