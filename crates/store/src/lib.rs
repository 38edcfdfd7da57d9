//! Spaces, indexes, schema, transactions and privileges: all data, in memory, behind one door.
