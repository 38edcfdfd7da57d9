//! The journal: .xlog and .snap files, group commit, recovery.
