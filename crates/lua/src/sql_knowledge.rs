//! SQL as the store asks for it: each question on the big stack, as an expression is as deep as its text is long.

use lycosa_store::{RowCheck, SqlFault, SqlKnowledge};

use crate::big_stack::on_big_stack;

/// What the store has to know of SQL.
pub const SQL_KNOWLEDGE: SqlKnowledge = SqlKnowledge {
    check: |store, text| on_big_stack(|| lycosa_sql::check_text(store, text)),
    spaces_of_view: |store, view| on_big_stack(|| lycosa_sql::spaces_of_view(store, view)),
    compile_check: |store, space, text| {
        let compiled = on_big_stack(|| lycosa_sql::compile_check(store, space, text))?;
        Ok(Box::new(DeepCheck(Some(compiled))))
    },
};

/// A check whose evaluation and end need the big stack; the check stays until the end.
#[derive(Debug)]
struct DeepCheck(Option<Box<dyn RowCheck>>);

impl RowCheck for DeepCheck {
    fn passes(&self, tuple: &[u8], spent: &mut u64) -> Result<bool, SqlFault> {
        self.0.as_ref().map_or(Ok(true), |check| on_big_stack(|| check.passes(tuple, spent)))
    }
}

impl Drop for DeepCheck {
    fn drop(&mut self) {
        on_big_stack(|| drop(self.0.take()));
    }
}
