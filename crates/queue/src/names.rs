//! Enums whose variants have names: each name stands beside its variant, once.

/// Defines such an enum, with `ALL` in the order of its definition, and `name`.
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        $visibility:vis enum $of:ident {
            $( $(#[$meaning:meta])* $variant:ident = $name:literal, )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility enum $of {
            $( $(#[$meaning])* $variant, )*
        }

        impl $of {
            /// All of them, in the order of their definition.
            $visibility const ALL: [Self; [$( $name ),*].len()] = [$( Self::$variant ),*];

            /// The name, as clients and people read it.
            #[must_use]
            $visibility const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }
        }
    };
}
