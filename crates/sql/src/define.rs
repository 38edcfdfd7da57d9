//! CREATE TABLE, CREATE INDEX and their DROP: columns with types, primary and unique keys, AUTOINCREMENT; steps of a transaction.
//!
//! The statement becomes a [`Definition`]; the module `box.sql` makes the space and its indexes of it, by the functions of
//! `box.schema`. What a definition does not have (CHECK, FOREIGN KEY, COLLATE) is refused:
//! a constraint that is never enforced must not be accepted.

use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{
    ColumnDef, ColumnOption, CreateIndex, CreateTable, Expr, IndexColumn, ObjectType, Statement,
    TableConstraint, UnaryOperator, Value,
};

use crate::Failure;
use crate::resolve::{MAX_COLUMNS, at_most, generic, name, none, simple_name, unsupported};

/// `ER_SQL_SYNTAX_NEAR_TOKEN`, `ER_CREATE_SPACE`, `ER_SPACE_FIELD_IS_DUPLICATE` of Tarantool 2.6.
const SYNTAX_NEAR: u32 = 184;
const CREATE_SPACE: u32 = 9;
const DUPLICATE_FIELD: u32 = 149;

/// A column of a new space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// As the format of the space has it.
    pub name: String,
    /// A type of fields.
    pub ty: &'static str,
    /// NULL is allowed.
    pub nullable: bool,
    /// The literal of DEFAULT, as the format of the space has it.
    pub default: Option<String>,
}

/// What a statement defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Definition {
    /// A new space. Keys are numbers of fields from 1; the first is the primary one.
    Create {
        /// Its name.
        name: String,
        /// IF NOT EXISTS.
        is_optional: bool,
        /// Its format.
        fields: Vec<Field>,
        /// Its indexes, with the names that CONSTRAINT gives.
        keys: Vec<(Option<String>, Vec<usize>)>,
        /// The field that a sequence fills.
        sequence: Option<usize>,
    },
    /// A space that goes.
    Drop {
        /// Its name.
        name: String,
        /// IF EXISTS.
        is_optional: bool,
    },
    /// A new index of a space.
    CreateIndex {
        /// Its name.
        name: String,
        /// The name of the space.
        space: String,
        /// IF NOT EXISTS.
        is_optional: bool,
        /// UNIQUE.
        is_unique: bool,
        /// The names of its fields.
        columns: Vec<String>,
    },
    /// An index that goes.
    DropIndex {
        /// Its name.
        name: String,
        /// The name of the space.
        space: String,
        /// IF EXISTS.
        is_optional: bool,
    },
    /// A step of a transaction: `begin`, `commit`, `rollback`; of its savepoint with this name: `savepoint`, `release`, `rollback to`.
    Transaction(&'static str, Option<String>),
}

/// The definition that a statement is; `None` for any other statement.
///
/// # Errors
/// A clause that is not supported; columns that do not fit together.
pub(crate) fn definition_of(statement: Statement) -> Result<Option<Definition>, Failure> {
    match statement {
        Statement::CreateTable(table) => create_of(&table).map(Some),
        Statement::CreateIndex(index) => create_index_of(&index).map(Some),
        Statement::Drop {
            object_type: ObjectType::Index,
            if_exists,
            names,
            cascade: false,
            restrict: false,
            purge: false,
            temporary: false,
            table: Some(space),
        } if names.len() == 1 => {
            let (name, space) = (simple_name(&names[0])?, simple_name(&space)?);
            Ok(Some(Definition::DropIndex { name, space, is_optional: if_exists }))
        }
        Statement::StartTransaction { .. } | Statement::Commit { .. } => match statement.to_string().as_str()
        {
            "START TRANSACTION" => Ok(Some(Definition::Transaction("begin", None))),
            "COMMIT" => Ok(Some(Definition::Transaction("commit", None))),
            other => Err(unsupported(other)),
        },
        Statement::Rollback { chain: false, savepoint } => Ok(Some(match savepoint {
            Some(savepoint) => Definition::Transaction("rollback to", Some(name(&savepoint)?)),
            None => Definition::Transaction("rollback", None),
        })),
        Statement::Savepoint { name: ident } => {
            Ok(Some(Definition::Transaction("savepoint", Some(name(&ident)?))))
        }
        Statement::ReleaseSavepoint { name: ident } => {
            Ok(Some(Definition::Transaction("release", Some(name(&ident)?))))
        }
        Statement::Drop {
            object_type: ObjectType::Table,
            if_exists,
            names,
            cascade,
            restrict,
            purge,
            temporary,
            table,
        } => {
            none(!cascade && !restrict && !purge && !temporary && table.is_none(), "a clause of DROP TABLE")?;
            match &names[..] {
                [one] => Ok(Some(Definition::Drop { name: simple_name(one)?, is_optional: if_exists })),
                _ => Err(unsupported("DROP TABLE of several")),
            }
        }
        _ => Ok(None),
    }
}

/// A type's name in SQL to that of fields.
pub(crate) fn type_of(text: &str) -> Result<&'static str, Failure> {
    let upper = text.to_uppercase();
    let plain = upper.split('(').next().unwrap_or_default().trim();
    Ok(match plain {
        "INT" | "INTEGER" => "integer",
        "UNSIGNED" => "unsigned",
        "TEXT" | "STRING" | "VARCHAR" => "string",
        "DOUBLE" => "double",
        "NUMBER" => "number",
        "BOOLEAN" | "BOOL" => "boolean",
        "SCALAR" => "scalar",
        "VARBINARY" => "varbinary",
        _ => return Err(Failure::new(SYNTAX_NEAR, format!("Syntax error at line 1 near '{text}'"))),
    })
}

/// The numbers of a key's columns.
fn key_of(columns: &[IndexColumn], fields: &[Field]) -> Result<Vec<usize>, Failure> {
    let number = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(ident) => {
            let wanted = name(ident)?;
            let found = fields.iter().position(|field| field.name == wanted);
            found.map(|place| place + 1).ok_or_else(|| generic(format!("Can't resolve field '{wanted}'")))
        }
        _ => Err(unsupported("an expression in a key")),
    };
    columns.iter().map(number).collect()
}

/// Refuses what no space has, and sizes that no definition needs.
fn check_clauses(table: &CreateTable) -> Result<(), Failure> {
    at_most(MAX_COLUMNS, "The number of columns in set list", table.columns.len())?;
    let in_keys = |constraint: &TableConstraint| match constraint {
        TableConstraint::PrimaryKey(key) => key.columns.len(),
        TableConstraint::Unique(key) => key.columns.len(),
        _ => 1,
    };
    at_most(
        MAX_COLUMNS,
        "The number of columns in keys",
        table.constraints.iter().map(in_keys).sum::<usize>(),
    )?;
    // A definition of these four alone has no further clause.
    let plain = CreateTableBuilder::new(table.name.clone())
        .columns(table.columns.clone())
        .constraints(table.constraints.clone())
        .if_not_exists(table.if_not_exists)
        .build();
    none(plain == *table, "this clause of CREATE TABLE")
}

/// ASC and DESC mean nothing in an index, as in Tarantool.
fn create_index_of(index: &CreateIndex) -> Result<Definition, Failure> {
    at_most(MAX_COLUMNS, "The number of columns in keys", index.columns.len())?;
    let column_of = |column: &IndexColumn| {
        let is_plain = column.operator_class.is_none() && column.column.with_fill.is_none();
        none(is_plain && column.column.options.nulls_first.is_none(), "an order in an index")?;
        match &column.column.expr {
            Expr::Identifier(ident) => name(ident),
            _ => Err(unsupported("an expression in an index")),
        }
    };
    let columns = index.columns.iter().map(column_of).collect::<Result<_, _>>()?;
    let Some(own) = &index.name else { return Err(unsupported("an index without a name")) };
    // An index of these four alone has no further clause.
    let list = index.columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let unique = if index.unique { "UNIQUE " } else { "" };
    let optional = if index.if_not_exists { "IF NOT EXISTS " } else { "" };
    let plain = format!("CREATE {unique}INDEX {optional}{own} ON {}({list})", index.table_name);
    none(plain == index.to_string(), "this clause of CREATE INDEX")?;
    Ok(Definition::CreateIndex {
        name: simple_name(own)?,
        space: simple_name(&index.table_name)?,
        is_optional: index.if_not_exists,
        is_unique: index.unique,
        columns,
    })
}

fn create_of(table: &CreateTable) -> Result<Definition, Failure> {
    check_clauses(table)?;
    let space = simple_name(&table.name)?;
    let (mut fields, mut primary, mut unique, mut sequence) = (Vec::<Field>::new(), None, Vec::new(), None);
    for (number, column) in (1..).zip(&table.columns) {
        let ColumnDef { name: ident, data_type, options } = column;
        let ty = type_of(&data_type.to_string())?;
        let mut field = Field { name: name(ident)?, ty, nullable: true, default: None };
        if fields.iter().any(|known| known.name == field.name) {
            let message = format!("Space field '{}' is duplicate", field.name);
            return Err(Failure::new(DUPLICATE_FIELD, message));
        }
        for option in options {
            let constraint = option.name.as_ref().map(name).transpose()?;
            if let ColumnOption::Default(value) = &option.option {
                field.default = Some(default_of(value)?);
                continue;
            }
            match option.option.to_string().to_uppercase().as_str() {
                "NULL" => {}
                "NOT NULL" => field.nullable = false,
                "PRIMARY KEY" if primary.is_none() => primary = Some((constraint, vec![number])),
                "PRIMARY KEY" => return Err(two_primary_keys(&space)),
                "UNIQUE" => unique.push((constraint, vec![number])),
                "AUTOINCREMENT" => sequence = Some(number),
                other => return Err(unsupported(other)),
            }
        }
        fields.push(field);
    }
    for constraint in &table.constraints {
        let (constraint_name, columns, is_primary) = match constraint {
            TableConstraint::PrimaryKey(key) => (&key.name, &key.columns, true),
            TableConstraint::Unique(key) => (&key.name, &key.columns, false),
            other => return Err(unsupported(&other.to_string())),
        };
        let names = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let word = if is_primary { "PRIMARY KEY" } else { "UNIQUE" };
        let own = constraint_name.as_ref().map_or(String::new(), |own| format!("CONSTRAINT {own} "));
        let plain: String = format!("{own}{word}({names})").split_whitespace().collect();
        let text: String = constraint.to_string().split_whitespace().collect();
        none(text == plain, "such a constraint")?;
        let key = (constraint_name.as_ref().map(name).transpose()?, key_of(columns, &fields)?);
        match (is_primary, &primary) {
            (true, Some(_)) => return Err(two_primary_keys(&space)),
            (true, None) => primary = Some(key),
            (false, _) => unique.push(key),
        }
    }
    let Some(primary) = primary else {
        let message = format!("Failed to create space '{space}': PRIMARY KEY missing");
        return Err(Failure::new(CREATE_SPACE, message));
    };
    for number in &primary.1 {
        fields[number - 1].nullable = false;
    }
    if let Some(number) = sequence
        && (primary.1 != [number] || fields[number - 1].ty != "integer")
    {
        let message = "AUTOINCREMENT is only allowed on an INTEGER PRIMARY KEY";
        return Err(Failure::new(CREATE_SPACE, format!("Failed to create space '{space}': {message}")));
    }
    let keys = std::iter::once(primary).chain(unique).collect();
    Ok(Definition::Create { name: space, is_optional: table.if_not_exists, fields, keys, sequence })
}

/// The literal of a DEFAULT. Rows keep the text, so that a Tarantool can read them.
fn default_of(value: &Expr) -> Result<String, Failure> {
    let mut inner = value;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    let literal = match inner {
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => &**expr,
        other => other,
    };
    match literal {
        Expr::Value(literal) if !matches!(literal.value, Value::Placeholder(_)) => Ok(inner.to_string()),
        _ => Err(unsupported("a DEFAULT that is no literal")),
    }
}

fn two_primary_keys(space: &str) -> Failure {
    let message = format!("Failed to create space '{space}': primary key has been already declared");
    Failure::new(CREATE_SPACE, message)
}
