//! What of the source holds.
pub fn evaluate() {}
