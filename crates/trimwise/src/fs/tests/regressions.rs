//! Failures that were found, each made again in the fewest steps.
