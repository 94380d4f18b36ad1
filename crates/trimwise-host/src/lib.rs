//! What trimwise does on a running Linux host.
