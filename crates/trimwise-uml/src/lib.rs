//! A real Linux kernel on the modelled SSD, in virtual time.
//!
//! The kernel is a User-Mode Linux: an ordinary program, the kernel's own code compiled for the "machine" that is the
//! Linux system-call interface. With `time-travel=ext:` it keeps no time of its own. It asks a *calendar* when it may
//! run, and the calendar moves the clock to the next moment at which anything happens. Its processor takes no time,
//! except 256 ns for each reading of its clock. Its disk is a vhost-user device. The calendar is a library in the
//! kernel's process, and the disk acts only while the kernel waits for it: all events are in one order, so that a run
//! repeats to the byte.
//!
//! - [`images`]: the kernels, built from the distribution's source and kept in a cache;
//! - `line`: shared memory between the kernel's process and this one;
//! - `vhost`: the protocol between a kernel and its disk, and the disk's queues;
//! - `disk`: block requests on the modelled drive, and their bytes;
//! - [`channel`]: what a guest reports while it runs: output of programs, and results of steps;
//! - [`machine`]: boots a kernel, advances its time, and ends it in every case;
//! - [`cell`]: one run of a comparison on a kernel, as in the model;
//! - [`job`]: a guest's steps and their results, as data; [`guest`]: carries them out.

pub mod cell;
pub mod channel;
pub mod disk;
pub mod guest;
pub mod images;
pub mod job;
mod line;
pub mod machine;
mod vhost;
