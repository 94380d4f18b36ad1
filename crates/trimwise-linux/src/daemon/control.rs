//! The control protocol of a running daemon: one line of JSON per request and per response, versioned.
//!
//! There are two sockets. `control.sock` is open to root and one group by its file mode, and the peer's credentials are
//! checked as well. `status.sock` exists only if the configuration lets everybody read the status, and accepts only
//! read requests.

mod client;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

pub use client::{Client, ClientError};

pub const VERSION: u32 = 1;
pub const REQUEST_MAX: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    Status,
    Explain {
        mount: PathBuf,
    },
    History {
        mount: PathBuf,
        /// Maximum number of entries; the latest are returned.
        #[serde(default = "some_entries")]
        limit: u32,
    },
    /// Pause trimming. Takes either a mount point or `all`, so that one bare word cannot stop everything.
    Pause {
        mount: Option<PathBuf>,
        #[serde(default)]
        all: bool,
    },
    Resume {
        /// Mount point to resume; `None` for all.
        mount: Option<PathBuf>,
    },
    /// Trim everything that is untrimmed now.
    Trim {
        mount: PathBuf,
    },
    Reload,
}

fn some_entries() -> u32 {
    50
}

#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    version: u32,
    #[serde(flatten)]
    request: serde_json::Value,
}

impl Request {
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        if line.len() > REQUEST_MAX {
            return Err(format!("request of {} bytes; expected at most {REQUEST_MAX}", line.len()));
        }
        let envelope: Envelope = serde_json::from_slice(line).map_err(|error| {
            format!("invalid request: {error}; expected {{\"version\":{VERSION},\"command\":...}}")
        })?;
        if envelope.version != VERSION {
            return Err(format!("version {}; expected {VERSION}", envelope.version));
        }
        let request: Self =
            serde_json::from_value(envelope.request).map_err(|error| format!("invalid request: {error}"))?;
        if let Self::Pause { mount, all } = &request
            && mount.is_some() == *all
        {
            return Err("pause; expected either a mount point or \"all\":true".to_owned());
        }
        let (Self::Explain { mount } | Self::History { mount, .. } | Self::Trim { mount }) = &request else {
            return Ok(request);
        };
        if !mount.is_absolute() {
            return Err(format!("mount '{}'; expected an absolute path", mount.display()));
        }
        Ok(request)
    }

    pub fn line(&self) -> String {
        let request = serde_json::to_value(self).unwrap_or_default();
        let mut line = serde_json::to_string(&Envelope { version: VERSION, request }).unwrap_or_default();
        line.push('\n');
        line
    }

    pub fn is_reading(&self) -> bool {
        matches!(self, Self::Status | Self::Explain { .. } | Self::History { .. })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    pub version: u32,
    pub error: Option<String>,
    /// True if the request itself is wrong, such as a mount that is not managed; if false, it may succeed later.
    #[serde(default)]
    pub bad_request: bool,
    /// The result, as JSON text: a parsed tree would take ten times the memory.
    pub data: Box<RawValue>,
}

impl Response {
    pub fn done(data: impl Serialize) -> Self {
        match to_raw_value(&data) {
            Ok(data) => Self { version: VERSION, error: None, bad_request: false, data },
            Err(error) => Self::refused(error.to_string()),
        }
    }

    /// Creates a refusal of a request that may succeed later.
    pub fn refused(why: impl Into<String>) -> Self {
        let error = Some(why.into());
        Self { version: VERSION, error, bad_request: false, data: RawValue::NULL.to_owned() }
    }

    /// Creates a refusal of a request that can never succeed.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self { bad_request: true, ..Self::refused(why) }
    }

    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_it_is_read() {
        let mount = PathBuf::from("/home");
        for request in [
            Request::Status,
            Request::Explain { mount: mount.clone() },
            Request::History { mount: mount.clone(), limit: 7 },
            Request::Pause { mount: None, all: true },
            Request::Resume { mount: Some(mount.clone()) },
            Request::Trim { mount },
            Request::Reload,
        ] {
            assert_eq!(Request::parse(request.line().trim_end().as_bytes()), Ok(request));
        }
        assert_eq!(
            Request::parse(br#"{"version":1,"command":"history","mount":"/x"}"#),
            Ok(Request::History { mount: "/x".into(), limit: 50 })
        );
    }

    #[test]
    fn invalid_requests_are_refused_with_a_reason() {
        for (line, words) in [
            ("", "invalid request"),
            ("{}", "expected {\"version\":1"),
            (r#"{"version":2,"command":"status"}"#, "version 2; expected 1"),
            (r#"{"version":1,"command":"destroy"}"#, "unknown variant `destroy`"),
            (r#"{"version":1,"command":"trim"}"#, "missing field `mount`"),
            (
                r#"{"version":1,"command":"pause","mount":null}"#,
                "expected either a mount point or \"all\":true",
            ),
            (
                r#"{"version":1,"command":"pause","mount":"/home","all":true}"#,
                "expected either a mount point or",
            ),
            (r#"{"version":1,"command":"trim","mount":"home"}"#, "expected an absolute path"),
            (r#"{"version":1,"command":"trim","mount":"/","force":true}"#, "unknown field `force`"),
        ] {
            let said = Request::parse(line.as_bytes()).unwrap_err();
            assert!(said.contains(words), "{line}: {said}");
        }
        assert!(Request::parse(&vec![b' '; REQUEST_MAX + 1]).unwrap_err().contains("at most"));
    }
}
