//! A real Linux kernel on the modelled SSD, in virtual time.
//!
//! The kernel is a User-Mode Linux: an ordinary program, the kernel's own code compiled for the "machine" that is the
//! Linux system-call interface. With `time-travel=ext:` it keeps no time of its own. It asks a *calendar* when it may run, and
//! the calendar lets the clock jump to the next instant at which anything happens; its processor time is zero, but for 256 ns
//! each time that its clock is read. Its disk
//! is a vhost-user device, whose messages are answered one by one. Calendar and disk are one thread here ([`machine`]):
//! each event has its place in one order, so that a run repeats to the byte.
//!
//! - [`images`]: the kernels, built from the distribution's source and kept in a cache;
//! - `calendar`: the protocol of time, by messages or by shared memory;
//! - `vhost`: the protocol between a kernel and its disk, and the disk's queues;
//! - `disk`: block requests on the modelled drive, and the bytes;
//! - [`machine`]: boots a kernel, carries time on, and ends it in every case;
//! - [`cell`]: one run of a comparison, as the model has it, made on a kernel;
//! - [`job`]: what a guest is told to do and what came of it, as data; [`guest`]: how it does it.

mod calendar;
pub mod cell;
pub mod disk;
pub mod guest;
pub mod images;
pub mod job;
pub mod machine;
mod vhost;
