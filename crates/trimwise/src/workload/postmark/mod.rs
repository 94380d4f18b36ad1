//! PostMark.
