//! SQL as the store asks for it: each question on the big stack, as an expression is as deep as its text is long.

use lycosa_store::SqlKnowledge;

use crate::big_stack::on_big_stack;

/// What the store has to know of SQL.
pub const SQL_KNOWLEDGE: SqlKnowledge = SqlKnowledge {
    check: |store, text| on_big_stack(|| lycosa_sql::check_text(store, text)),
    spaces_of_view: |store, view| on_big_stack(|| lycosa_sql::spaces_of_view(store, view)),
};
