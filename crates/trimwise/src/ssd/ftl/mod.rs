//! What the mappings have in common.

mod bitmap;
mod pool;
mod reads;
mod superblock;
mod victims;

pub(super) use bitmap::Bitmap;
pub(super) use pool::Pool;
pub(super) use reads::Reads;
pub(super) use superblock::{Block, NONE, State};
pub(super) use victims::{Victims, must_have_gained};
