//! The device model against a flat array, and what tables say of their making: quick, needs nothing.

mod ssd_reference;
mod tables;
