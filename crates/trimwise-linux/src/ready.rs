use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use thiserror::Error;

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the workload waits for something that a real directory does not offer")]
pub struct NotReady;

/// Returns the value of a future that never waits, because each call that it makes blocks until it is done. Fails if
/// the future does wait, as one for virtual time would.
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
    fn a_ready_future_returns_its_value_and_a_waiting_one_is_an_error() {
        assert_eq!(block_on(async { 5 }), Ok(5));
        assert_eq!(block_on(std::future::pending::<u8>()), Err(NotReady));
    }
}
