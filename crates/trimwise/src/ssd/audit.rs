#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("audit: {0}")]
pub struct AuditError(String);

impl AuditError {
    pub(super) fn new(what: String) -> Self {
        Self(what)
    }
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err($crate::ssd::audit::AuditError::new(format!($($message)*)));
        }
    };
}

pub(super) use ensure;
