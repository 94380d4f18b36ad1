//! The report: one HTML file that needs nothing else.
pub mod compare;
pub mod reproduce;
