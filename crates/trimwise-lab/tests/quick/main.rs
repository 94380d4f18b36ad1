//! The device model against a flat array: quick, needs nothing.

mod ssd_reference;
