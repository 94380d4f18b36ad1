//! The device against a flat array, under random commands, with every mapping.
//!
//! After every command the accounting is audited, and every unit must read back what the array says. The geometry is
//! small enough for garbage collection to run after a few dozen writes.

mod commands;
mod configs;

use commands::{command, repeat, run};
use proptest::prelude::*;

/// The two properties, for devices of one mapping.
macro_rules! a_mapping {
    ($mapping:ident) => {
        mod $mapping {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig {
                    failure_persistence: None,
                    ..ProptestConfig::default()
                })]

                #[test]
                fn the_device_agrees_with_a_flat_array(
                    config in configs::$mapping(), commands in prop::collection::vec(command(), 1..250)
                ) {
                    run(&config, &commands)?;
                }

                #[test]
                fn a_run_repeats_exactly(
                    config in configs::$mapping(), commands in prop::collection::vec(command(), 1..60)
                ) {
                    repeat(&config, &commands)?;
                }
            }
        }
    };
}

a_mapping!(page);
a_mapping!(slc);
a_mapping!(map_cache);
a_mapping!(slc_and_map_cache);
a_mapping!(block);
a_mapping!(compressing);
