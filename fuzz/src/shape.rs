//! The shape of a target's input, made so that a mutation can change a part and leave the rest in its place.

use lycosa_iproto::frame::{Split, split};

/// The longest frame that is taken for one.
const FRAME_LIMIT: usize = 1 << 20;

/// How an input is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Bytes.
    Plain,
    /// Steps: each a byte that says what happens, then a frame with its length.
    Steps,
}

/// One part of an input: what stands before its content (for a step the byte that says what happens) and the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) control: Option<u8>,
    pub(crate) content: Vec<u8>,
}

impl Shape {
    /// The parts of an input. What does not fit the shape is lost.
    pub(crate) fn parts(self, input: &[u8]) -> Vec<Part> {
        match self {
            Self::Plain => vec![Part { control: None, content: input.to_vec() }],
            Self::Steps => steps(input)
                .map(|(control, content)| Part { control: Some(control), content: content.to_vec() })
                .collect(),
        }
    }

    /// The input with these parts.
    pub(crate) fn join(self, parts: &[Part]) -> Vec<u8> {
        let mut input = Vec::new();
        for Part { control, content } in parts {
            if let Some(control) = control {
                write_step(&mut input, *control, content);
            } else {
                input.extend_from_slice(content);
            }
        }
        input
    }
}

/// Appends a step.
pub(crate) fn write_step(out: &mut Vec<u8>, control: u8, content: &[u8]) {
    out.push(control);
    lycosa_tuple::mp::write_u32_wide(out, content.len() as u32);
    out.extend_from_slice(content);
}

/// The steps of an input: control byte and content of the frame. Ends where no whole frame follows.
pub(crate) fn steps(input: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = input;
    std::iter::from_fn(move || {
        let (&control, after) = rest.split_first()?;
        let Ok(Split::Frame { content, consumed }) = split(after, FRAME_LIMIT) else { return None };
        rest = &after[consumed..];
        Some((control, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_apart_and_put_together() {
        let mut input = Vec::new();
        write_step(&mut input, 7, &[1, 2, 3]);
        write_step(&mut input, 8, &[]);
        let parts = Shape::Steps.parts(&input);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0], Part { control: Some(7), content: vec![1, 2, 3] });
        assert_eq!(Shape::Steps.join(&parts), input);
        input.extend([9, 5, 1]);
        assert_eq!(Shape::Steps.parts(&input), parts, "a frame that is cut is lost");
        let plain = Shape::Plain.parts(&input);
        assert_eq!(Shape::Plain.join(&plain), input);
    }
}
