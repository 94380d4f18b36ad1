//! Directories and the doctor, on folders that the tests make: quick, needs nothing.

mod append_benchmark;
mod applications;
mod doctor;
mod here;
mod raw_file;
mod real_directory;
