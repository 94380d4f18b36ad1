//! TRIM shown live: the models of `trimwise` compiled to WebAssembly, for the page that `scripts/build-web` puts
//! together.
//!
//! [`scene`] is a thin layer over the library: one drive, an ext4 at some fullness, a workload and a policy, which can
//! be advanced in virtual time and observed. `workload` has its workloads, `abi` the functions that the page calls.
//! Everything else (drawing, controls, text) is in `page/`.

mod abi;
mod scene;
mod workload;
