//! The types of tubes: the queue brings five, each in a file of its own, and programs register more.

use std::sync::Arc;

use super::{TubeType, fifo, fifottl, limfifottl, utube, utubettl};
use crate::error::{Error, Result};

/// Names of the types that come with the queue; a program may register more.
pub const BUILT_IN: [&str; 5] = ["fifo", "fifottl", "limfifottl", "utube", "utubettl"];

/// The types of tubes that there are.
#[derive(Debug, Default)]
pub(crate) struct TubeTypes(Vec<Arc<TubeType>>);

impl TubeTypes {
    pub(crate) fn built_in() -> Self {
        let all = [
            fifo::tube_type(),
            fifottl::tube_type(),
            limfifottl::tube_type(),
            utube::tube_type(),
            utubettl::tube_type(),
        ];
        Self(all.into_iter().map(Arc::new).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<TubeType>> {
        self.0.iter().find(|tube_type| tube_type.name == name)
    }

    /// Adds a type whose name is new.
    pub(crate) fn add(&mut self, tube_type: TubeType) -> Result<()> {
        if self.get(&tube_type.name).is_some() {
            return Err(Error::DriverExists(tube_type.name));
        }
        self.0.push(Arc::new(tube_type));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_layouts_are_sound() {
        for tube_type in &TubeTypes::built_in().0 {
            assert_eq!(tube_type.layout.check(), Ok(()), "{}", tube_type.name);
        }
    }
}
