//! Real files and devices: finds the one that an argument names, and opens it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::failure::{Failure, Mistake, key};
use trimwise::units::Bytes;
use trimwise::words;
use trimwise_linux::consent;
use trimwise_linux::raw_device::{Access, Options, RawDevice, RawDeviceError, Target};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealTarget {
    pub target: Target,
    /// The name that the user repeated to allow overwriting the target.
    pub destroy: Option<String>,
    /// Size of a newly created file; `None` for the host's default.
    pub size: Option<Bytes>,
}

impl fmt::Display for RealTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl RealTarget {
    /// Parses `file:PATH` and `dev:PATH`, with the values of `--size` and `--destroy`. Returns `None` for any other
    /// prefix.
    pub fn parse(text: &str, size: Option<Bytes>, destroy: Option<&String>) -> Result<Option<Self>, Failure> {
        if !["file:", "dev:"].iter().any(|prefix| text.starts_with(prefix)) {
            return Ok(None);
        }
        let target = text.parse::<Target>().map_err(|e| Mistake::that(e.to_string()).fail())?;
        if let (Target::Device(_), Some(_)) = (&target, size) {
            let expected = words!["no ", key("size"), " with it"];
            return Err(Mistake::on("size")
                .because(format!("{text} has its own size"))
                .expected(expected)
                .fail());
        }
        Ok(Some(Self { target, destroy: destroy.cloned(), size }))
    }

    /// Opens the target for at least `depth` operations in flight. To write to it, the user must have agreed.
    pub fn open(&self, is_written: bool, depth: u32, stop: &Arc<AtomicBool>) -> Result<RawDevice, Failure> {
        let access = if is_written {
            let agreed = consent::check(&self.target, self.destroy.as_deref());
            Access::Write(agreed.map_err(|error| error.mistake().fail())?)
        } else {
            Access::Read(self.target.clone())
        };
        let defaults = Options::default();
        let options = Options {
            file_bytes: self.size.unwrap_or(defaults.file_bytes),
            queue_depth: depth.max(defaults.queue_depth),
            interrupted: Arc::clone(stop),
            ..defaults
        };
        RawDevice::open(access, &options).map_err(|error| match error {
            RawDeviceError::NoRing { .. } | RawDeviceError::Changed { .. } => Failure::run(error),
            RawDeviceError::Consent(error) => error.mistake().fail(),
            _ => Mistake::that(error.to_string()).fail(),
        })
    }
}
