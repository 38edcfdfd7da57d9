//! The journal as a whole: real files, damaged files, faults.

mod corpus;
mod damage;
mod faults;
mod support;
