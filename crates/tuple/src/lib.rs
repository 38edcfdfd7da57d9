//! MessagePack values, tuples, field types, keys and their order, update operations.
