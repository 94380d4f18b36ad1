//! Advice for when the kernel refuses something that only root may do.

/// Returns `to_user`, or for root the likely cause of the refusal.
pub fn advice(to_user: &str) -> &str {
    advice_to(rustix::process::geteuid().is_root(), to_user)
}

fn advice_to(is_root: bool, to_user: &str) -> &str {
    if is_root {
        "even root has no access here, because of a container or its device rules; run it outside"
    } else {
        to_user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_root_is_not_told_to_become_root() {
        assert_eq!(advice_to(false, "run it as root"), "run it as root");
        assert!(advice_to(true, "run it as root").starts_with("even root has no access"));
    }
}
