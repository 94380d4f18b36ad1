//! The published experiments and drives under verification: samples of them, or all by an environment variable (`just
//! full`).

mod advise;
mod capacity;
mod lazy_paper;
mod postmark_vendors;
mod published;
mod sandforce;
mod scaled;
mod set;
mod verify;
