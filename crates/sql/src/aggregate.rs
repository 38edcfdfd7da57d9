//! Aggregate functions: what they have seen, and their result.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use lycosa_tuple::field::FieldType;
use lycosa_tuple::scalar;
use lycosa_tuple::value::Value;

use crate::collect::DEPTH;
use crate::effort::weight;
use crate::eval::{MAX_MADE, Row};
use crate::limits::OVERHEAD;
use crate::tree::{Aggregate, AggregateKind, Select};
use crate::value::{self, Number};
use crate::{SqlFault, functions, strings};

/// What an aggregate function has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    count: u64,
    whole: i128,
    sum: f64,
    has_double: bool,
    best: Option<Value>,
    /// What GROUP_CONCAT has made.
    text: Vec<u8>,
    /// The values that an aggregate of distinct values has taken.
    values: BTreeSet<Distinct>,
    /// Bytes of these values.
    bytes_of_values: usize,
}

/// An encoded value. Equal numbers of two types are one value.
#[derive(Debug)]
struct Distinct(Vec<u8>, strings::Order);

impl Ord for Distinct {
    fn cmp(&self, other: &Self) -> Ordering {
        scalar::compare(&self.0, &other.0, strings::collation_of(&self.1))
    }
}

impl PartialOrd for Distinct {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Distinct {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Distinct {}

impl Seen {
    /// Bytes of what it remembers.
    pub(crate) fn bytes(&self) -> usize {
        let best = match &self.best {
            Some(Value::Str(bytes) | Value::Bin(bytes) | Value::Ext(_, bytes)) => bytes.len(),
            Some(value) => 16 * weight(value) as usize,
            None => 0,
        };
        best + self.text.len() + self.bytes_of_values
    }

    /// Whether the row is the one that `MIN` or `MAX` shows now.
    pub(crate) fn add(&mut self, aggregate: &Aggregate, row: &Row<'_>) -> Result<bool, SqlFault> {
        let Some(argument) = &aggregate.argument else {
            self.count += 1;
            return Ok(false);
        };
        let value = row.evaluate(argument)?;
        if value == Value::Nil {
            return Ok(false);
        }
        if aggregate.distinct {
            let encoded = Distinct(value.encode(), aggregate.order.clone());
            row.effort.spend(DEPTH * weight(&value))?;
            let bytes = encoded.0.len() + OVERHEAD;
            if !self.values.insert(encoded) {
                return Ok(false);
            }
            self.bytes_of_values += bytes;
        }
        self.count += 1;
        match aggregate.kind {
            AggregateKind::Count => Ok(false),
            AggregateKind::GroupConcat => {
                self.concatenate(value, aggregate, row)?;
                Ok(false)
            }
            AggregateKind::Min | AggregateKind::Max => {
                let wanted = match aggregate.kind {
                    AggregateKind::Min => Ordering::Less,
                    _ => Ordering::Greater,
                };
                row.effort.spend(2 * weight(&value))?;
                let collation = strings::collation_of(&aggregate.order);
                let is_better =
                    self.best.as_ref().is_none_or(|best| value::order_by(&value, best, collation) == wanted);
                if is_better {
                    self.best = Some(value);
                }
                Ok(is_better)
            }
            AggregateKind::Sum | AggregateKind::Total | AggregateKind::Avg => {
                match value::summand(&value)? {
                    Number::Int(number) => self.whole = self.whole.saturating_add(number),
                    Number::Double(number) => {
                        self.has_double = true;
                        self.sum += number;
                    }
                }
                Ok(false)
            }
        }
    }

    /// Appends a value to the text that GROUP_CONCAT makes.
    fn concatenate(&mut self, value: Value, aggregate: &Aggregate, row: &Row<'_>) -> Result<(), SqlFault> {
        let text_of = |value: Value| match functions::cast(value, FieldType::String, row.effort)? {
            Value::Str(text) => Ok(text),
            _ => Ok::<_, SqlFault>(Vec::new()),
        };
        let text = text_of(value)?;
        if self.count > 1 {
            match &aggregate.separator {
                Some(separator) => self.text.extend(text_of(row.evaluate(separator)?)?),
                None => self.text.push(b','),
            }
        }
        if self.text.len() + text.len() > MAX_MADE {
            return Err(value::execution(&format!("a text of more than {MAX_MADE} bytes cannot be made")));
        }
        row.effort.spend((text.len() / 128) as u64)?;
        self.text.extend_from_slice(&text);
        Ok(())
    }

    pub(crate) fn result(&self, aggregate: &Aggregate) -> Result<Value, SqlFault> {
        let all = self.sum + self.whole as f64;
        Ok(match aggregate.kind {
            AggregateKind::Count => Value::Uint(self.count),
            AggregateKind::Min | AggregateKind::Max => self.best.clone().unwrap_or(Value::Nil),
            AggregateKind::Total => Value::Double(all),
            _ if self.count == 0 => Value::Nil,
            AggregateKind::GroupConcat => Value::Str(self.text.clone()),
            AggregateKind::Avg => Value::Double(all / self.count as f64),
            AggregateKind::Sum if self.has_double => Value::Double(all),
            AggregateKind::Sum => Number::Int(self.whole).into_value()?,
        })
    }
}

/// The aggregate functions of a group of rows.
#[derive(Debug)]
pub(crate) struct Group {
    seen: Vec<Seen>,
    /// The tuple that plain columns beside aggregate functions are of; empty before the first row.
    pub(crate) tuple: Vec<u8>,
}

impl Group {
    pub(crate) fn of(select: &Select) -> Group {
        Group { seen: select.aggregates.iter().map(|_| Seen::default()).collect(), tuple: Vec::new() }
    }

    /// Adds a row. Returns by how many bytes the group has grown.
    pub(crate) fn add(&mut self, select: &Select, row: &Row<'_>, tuple: &[u8]) -> Result<usize, SqlFault> {
        let (mut chosen, mut grown, mut picks) = (false, 0, false);
        for (aggregate, seen) in select.aggregates.iter().zip(&mut self.seen) {
            let before = seen.bytes();
            chosen |= seen.add(aggregate, row)?;
            grown += seen.bytes().saturating_sub(before);
            picks |= matches!(aggregate.kind, AggregateKind::Min | AggregateKind::Max);
        }
        if chosen || !picks || self.tuple.is_empty() {
            row.effort.spend((tuple.len() / 128) as u64)?;
            grown += tuple.len().saturating_sub(self.tuple.len());
            self.tuple.clear();
            self.tuple.extend_from_slice(tuple);
        }
        Ok(grown)
    }

    /// The results of the aggregate functions.
    pub(crate) fn results(&self, select: &Select) -> Result<Vec<Value>, SqlFault> {
        select.aggregates.iter().zip(&self.seen).map(|(aggregate, seen)| seen.result(aggregate)).collect()
    }
}
