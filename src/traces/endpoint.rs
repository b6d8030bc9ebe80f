//! The address of the collector of spans.

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The collector's URL for traces.
    pub url: String,
    /// Header fields for it, such as a key.
    pub headers: Vec<(String, String)>,
}

impl Endpoint {
    /// Reads the values of `--otlp-endpoint` and `--otlp-headers`. Appends the path of traces to a
    /// collector's URL, as OpenTelemetry does for its environment variables.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn new(url: &str, headers: &[String]) -> Result<Self, String> {
        let wrong =
            |why: &str| format!("--otlp-endpoint {url:?} {why}; such as http://127.0.0.1:4318");
        let uri: ureq::http::Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(wrong("does not begin with http:// or https:// and a host"));
        }
        if uri.query().is_some() {
            return Err(wrong("has a query, and may have none"));
        }
        let base = url.trim_end_matches('/');
        let url = match base.ends_with(PATH) {
            true => base.to_owned(),
            false => format!("{base}{PATH}"),
        };
        let headers = headers.iter().map(|field| {
            let split = field.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
            let good = |(name, value): &(&str, &str)| {
                ureq::http::HeaderName::try_from(*name).is_ok()
                    && ureq::http::HeaderValue::try_from(*value).is_ok()
            };
            // The value may be a secret, so it is not repeated.
            let (name, value) = split.filter(good).ok_or(
                "--otlp-headers is not a list of NAME=VALUE, such as authorization=Bearer abc",
            )?;
            Ok((name.to_owned(), value.to_owned()))
        });
        Ok(Self { url, headers: headers.collect::<Result<_, &str>>()? })
    }
}

/// The path of traces at a collector.
const PATH: &str = "/v1/traces";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_gets_the_path_of_traces() {
        for (url, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otel.example/base/", "https://otel.example/base/v1/traces"),
            ("http://a/v1/traces", "http://a/v1/traces"),
        ] {
            assert_eq!(Endpoint::new(url, &[]).unwrap().url, expected);
        }
        for wrong in ["127.0.0.1:4318", "grpc://a:4317", "http://", "http://a/?b", ""] {
            let error = Endpoint::new(wrong, &[]).unwrap_err();
            assert!(error.contains("such as http://127.0.0.1:4318"), "{error}");
        }
    }

    #[test]
    fn headers_are_pairs_and_stay_secret() {
        let headers = ["authorization=Bearer a=b".to_owned(), " x-team = 7 ".to_owned()];
        let endpoint = Endpoint::new("http://a", &headers).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(endpoint.headers, [pair("authorization", "Bearer a=b"), pair("x-team", "7")]);
        let error = Endpoint::new("http://a", &["Bearer s3cret".to_owned()]).unwrap_err();
        assert!(error.contains("NAME=VALUE") && !error.contains("s3cret"), "{error}");
    }
}
