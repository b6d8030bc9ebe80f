//! An API key.

use ring::digest::{SHA256, digest};

use crate::limits::PRIORITY_MAX;

/// An API key.
#[derive(Clone, PartialEq)]
pub struct ApiKey {
    /// Its name in the log. A plain key has none.
    pub name: Option<String>,
    /// The secret that clients send.
    pub secret: String,
    /// Its share of the server, relative to the other keys.
    pub weight: f64,
    /// The lowest priority number that its requests may ask for. With the default of 0, no key can
    /// go before others.
    pub priority_min: i32,
}

impl ApiKey {
    /// A key without a name.
    pub fn plain(secret: &str) -> Self {
        Self { name: None, secret: secret.into(), weight: 1.0, priority_min: 0 }
    }

    /// Whether both are the same tenant: named keys with equal names, or plain keys with equal
    /// secrets.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.name, &other.name) {
            (Some(name), Some(others)) => name == others,
            (None, None) => self.secret == other.secret,
            _ => false,
        }
    }
}

impl ApiKey {
    /// A number of the tenant that is the same in every process. It shows nothing of the secret.
    pub fn tenant(&self) -> u128 {
        let (kind, text) = match &self.name {
            Some(name) => ("name", name),
            None => ("secret", &self.secret),
        };
        let digest = digest(&SHA256, format!("corelane tenant {kind} {text}").as_bytes());
        let (first, _) = digest.as_ref().split_first_chunk().expect("more than 16 bytes");
        u128::from_le_bytes(*first)
    }
}

impl std::fmt::Debug for ApiKey {
    /// Shows no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, weight, priority_min, .. } = self;
        write!(f, "ApiKey({name:?}, weight {weight}, priority {priority_min})")
    }
}

impl std::str::FromStr for ApiKey {
    type Err = String;

    /// Parses `NAME:SECRET[:WEIGHT[:PRIORITY]]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (name, secret) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (weight, priority) = (parts.next().unwrap_or("1"), parts.next());
        if name.is_empty() || secret.is_empty() || parts.next().is_some() {
            return Err("it must be NAME:SECRET, NAME:SECRET:WEIGHT or \
                        NAME:SECRET:WEIGHT:PRIORITY"
                .into());
        }
        let weight = weight.parse().ok().filter(|weight: &f64| (0.001..=1000.0).contains(weight));
        let weight = weight.ok_or("the weight must be a number from 0.001 to 1000")?;
        let range = -PRIORITY_MAX..=PRIORITY_MAX;
        let priority = priority.map_or(Some(0), |text| text.parse().ok());
        let priority_min =
            priority.filter(|priority| range.contains(priority)).ok_or_else(|| {
                format!(
                    "the priority must be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
                )
            })?;
        Ok(Self { name: Some(name.into()), secret: secret.into(), weight, priority_min })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_its_name_or_else_its_secret() {
        let tenant = |text: &str| text.parse::<ApiKey>().unwrap().tenant();
        assert_eq!(tenant("a:one"), tenant("a:two:3"));
        assert_ne!(tenant("a:one"), tenant("b:one"));
        assert_eq!(ApiKey::plain("one").tenant(), ApiKey::plain("one").tenant());
        assert_ne!(ApiKey::plain("a").tenant(), tenant("a:a"));
    }

    #[test]
    fn a_key_is_its_name_its_secret_its_weight_and_its_priority() {
        let key = |text: &str| text.parse::<ApiKey>();
        let whole = key("batch:s3cret:0.5:2").unwrap();
        assert_eq!((whole.name.as_deref(), whole.secret.as_str()), (Some("batch"), "s3cret"));
        assert_eq!((whole.weight, whole.priority_min), (0.5, 2));
        assert!(!format!("{whole:?}").contains("s3cret"));
        let short = key("a:b").unwrap();
        assert_eq!((short.weight, short.priority_min), (1.0, 0));
        for wrong in ["", "a", "a:", ":b", "a:b:0", "a:b:x", "a:b:nan", "a:b:1:9999", "a:b:1:2:3"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
