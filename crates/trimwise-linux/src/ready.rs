//! Running a workload on a real directory.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use thiserror::Error;

/// A future waited for something that nobody here could bring about.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the workload waits for something that a real directory does not offer")]
pub struct NotReady;

/// The value of a future that never has to wait, because each call that it makes blocks until it is done.
///
/// # Errors
/// [`NotReady`] if it does wait, as a future does that was meant for virtual time.
pub fn block_on<T>(future: impl Future<Output = T>) -> Result<T, NotReady> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err(NotReady),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_is_answered_and_what_waits_is_an_error() {
        assert_eq!(block_on(async { 5 }), Ok(5));
        assert_eq!(block_on(std::future::pending::<u8>()), Err(NotReady));
    }
}
